"""The drafter of `outrider verify-lossless`: a drafter actor that takes its time.

It is told that rounds are long, since the verifier waits for its drafts there. A round of a small target is over before
more than one token could be drafted, and then longer drafts would never be checked.
"""

import msgspec

from cluster.messages import Message, Round
from cluster.transport.channel import PeerId
from deployments.drafter_core import Ahead, Outgoing
from deployments.drafter_process import main

ROUND_S = 0.2
"""How long a round seems to last, at least."""


class PatientAhead:
    """Passes everything on, but for how long rounds last.

    Args:
        ahead: the drafter's mind.
    """

    def __init__(self, ahead: Ahead) -> None:
        self._ahead = ahead
        self.step, self.drop_peer, self.evict_idle = ahead.step, ahead.drop_peer, ahead.evict_idle

    @property
    def has_work(self) -> bool:
        """As the drafter says."""
        return self._ahead.has_work

    def handle(self, peer: PeerId, message: Message) -> Outgoing:
        """Take a message in; returns answers."""
        if isinstance(message, Round):
            message = msgspec.structs.replace(message, verify_s=max(message.verify_s, ROUND_S))
        return self._ahead.handle(peer, message)


if __name__ == "__main__":
    main(wrap=PatientAhead)
