"""The drafters that a verifier knows, and the one that it uses: choosing, connecting, giving up, coming back."""

import logging
import math
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import fields

from cluster.engine.drafters.table import LookupResult
from cluster.messages import Close, Hello, Lost, Message, SequenceTable, Welcome
from cluster.transport.address import Address
from cluster.transport.channel import Channel, Traffic
from cluster.types import DrafterStats
from deployments.draft_follow import Missing
from deployments.draft_health import Change, Health, HealthConfig, HealthState
from deployments.draft_link import DraftLink
from deployments.pairing import Candidate, choose, patience_s

CHOICE_INTERVAL_S = 0.5
"""How often another drafter is looked for while there is none, or a bad one."""

ANSWER_PATIENCE_S = 5.0
"""A drafter that was connected to and says nothing at all for this long is given up."""

CONNECT_PAUSE_S = 2.0
"""How long a drafter that could not be connected to, or did not answer, is left alone."""

TRANSITIONS: tuple[str, ...] = (
    "connected", "welcomed", "restarted", "refused", "gone", "unreachable", *(change.value for change in Change),
)  # fmt: skip
"""Reasons that are counted."""

logger = logging.getLogger(__name__)


class DraftPeers:
    """Zero or one connection to a drafter, and what is known of the others.

    Belongs to the engine's thread, but for `offer` and `stats`.

    Args:
        hello: how the verifier introduces itself; names it for the choice, too.
        node_id: the verifier's node.
        connect: opens a channel without waiting for the other side.
        health: when a drafter is left alone.

    Attributes:
        transitions: what happened so far, by reason; every reason is there from the start.
        generation: rises whenever nothing that was told before is known on the other side any more.
    """

    def __init__(
        self,
        *,
        hello: Hello,
        node_id: str,
        connect: Callable[[Address], Channel],
        health: HealthConfig | None = None,
    ) -> None:
        self.transitions: Counter[str] = Counter(dict.fromkeys(TRANSITIONS, 0))
        self.generation = 0
        self._hello, self._node_id, self._connect = hello, node_id, connect
        self._health_config = health or HealthConfig()
        self._health = Health(self._health_config)
        self._lock = threading.Lock()
        self._offered: tuple[Candidate, ...] | None = None
        self._candidates: tuple[Candidate, ...] = ()
        self._link: DraftLink | None = None
        self._is_welcome, self._num_restarts = False, 0
        # Incarnations that are not to be used before a clock time.
        self._bad_until_s: dict[int, float] = {}
        self._healths: dict[int, Health] = {}
        self._chosen_s = -math.inf
        # Clock time since which another drafter has been better than the one in use.
        self._better_since_s: float | None = None
        self._num_invalid = 0
        self._carried = Traffic()

    @property
    def is_connected(self) -> bool:
        """A drafter has welcomed this verifier."""
        return self._is_welcome

    @property
    def is_quarantined(self) -> bool:
        """The drafter is left alone, or on probation."""
        return self._health.state is not HealthState.GOOD

    @property
    def welcome(self) -> Welcome | None:
        """What the drafter in use said; None while none is, or while it is left alone."""
        link = self._link
        return link.welcome if link is not None and self._health.state is not HealthState.PAUSED else None

    @property
    def why_not(self) -> Missing:
        """Why a sequence that nothing is known about has no draft."""
        if not self._is_welcome:
            return Missing.DISCONNECTED
        return Missing.QUARANTINED if self.is_quarantined else Missing.OPENING

    @property
    def max_sequences(self) -> int | None:
        """How many sequences may use the drafter; None for all."""
        return self._health.max_sequences

    @property
    def traffic(self) -> Traffic:
        """What all channels so far have carried."""
        with self._lock:
            return self._carried if self._link is None else _sum(self._carried, self._link.traffic)

    def offer(self, candidates: Seq[Candidate]) -> None:
        """The drafters that run; taken up by the next `update`. May be called from any thread."""
        with self._lock:
            self._offered = tuple(candidates)

    def send(self, message: Message, now_s: float) -> bool:
        """Hand a message to the drafter in use; False when there is none or the queue is full."""
        return self._link is not None and self.welcome is not None and self._link.send(message, now_s)

    def receive(self, now_s: float, timeout_s: float = 0.0) -> list[SequenceTable | Lost]:
        """What the drafter says about sequences; nothing that was said before it was started anew."""
        link = self._link
        if link is None:
            return []
        found = link.receive(now_s, timeout_s)
        self._health.record_malformed(link.take_malformed())
        if link.num_restarts != self._num_restarts:
            self._num_restarts = link.num_restarts
            self._health = self._healths[link.candidate.incarnation] = Health(self._health_config)
            self._start_again()
            self._count("restarted", f"incarnation {link.welcome.incarnation if link.welcome else 0}")
            return []  # About sequences that it does not know any more.
        return found if self.welcome is not None else []

    def update(self, now_s: float, open_sequences: Callable[[], Seq[int]]) -> None:
        """Move on: another drafter, another opinion of this one.

        Args:
            now_s: clock time.
            open_sequences: gives what this drafter follows: to be told when it is left alone, or to be moved.
        """
        if self._link is not None:
            self._check_link(self._link, now_s)
        if self._link is not None:
            self._check_health(self._link, now_s, open_sequences)
        self._choose(now_s, open_sequences)

    def record_lookup(self, result: LookupResult) -> None:
        """A sequence that had asked looked for its draft."""
        self._health.record_lookup(result)

    def record_verdict(self, num_drafted: int, num_accepted: int) -> None:
        """A draft of the drafter was verified."""
        self._health.record_verdict(num_drafted, num_accepted)

    def record_malformed(self, count: int) -> None:
        """Tables came that no drafter of this target can send."""
        self._num_invalid += count
        self._health.record_malformed(count)

    def stats(self, *, lookups: Mapping[str, int], fallbacks: Mapping[str, int]) -> DrafterStats:
        """What happened so far, with what the caller counted. May be called from any thread."""
        traffic = self.traffic
        return DrafterStats(
            lookups=lookups,
            fallbacks=fallbacks,
            transitions=dict(self.transitions),
            is_connected=self.is_connected,
            is_quarantined=self.is_quarantined,
            num_sent=traffic.sent,
            num_received=traffic.received,
            num_dropped=traffic.dropped,
            num_malformed=traffic.malformed + self._num_invalid,
            num_sent_bytes=traffic.bytes_sent,
            num_received_bytes=traffic.bytes_received,
        )

    def close(self) -> None:
        """Close the connection."""
        self._drop_link()

    def _check_link(self, link: DraftLink, now_s: float) -> None:
        if link.refusal is not None:
            # Until it is started anew.
            self._bad_until_s[link.candidate.incarnation] = math.inf
            self._count("refused", link.refusal)
            self._drop_link()
        elif link.welcome is not None and not self._is_welcome:
            self._is_welcome = True
            self._count("welcomed", f"drafts of {link.welcome.num_speculative_tokens} tokens")
        elif link.welcome is None and now_s - link.last_heard_s > ANSWER_PATIENCE_S:
            self._bad_until_s[link.candidate.incarnation] = now_s + CONNECT_PAUSE_S
            self._count("unreachable", "no answer")
            self._drop_link()

    def _check_health(self, link: DraftLink, now_s: float, open_sequences: Callable[[], Seq[int]]) -> None:
        if link.welcome is None:
            return
        was_paused = self._health.state is HealthState.PAUSED
        change = self._health.update(now_s, link.last_heard_s)
        if change is None:
            return
        self._count(change.value, self._health.evidence)
        if self._health.state is HealthState.PAUSED and not was_paused:
            self._bad_until_s[link.candidate.incarnation] = self._health.resumes_s
            if sequences := tuple(open_sequences()):
                link.send(Close(sequences=sequences), now_s)
            link.rest()
            self._start_again()
        elif self._health.state is HealthState.PROBING:
            link.introduce(now_s)
            self._start_again()

    def _choose(self, now_s: float, open_sequences: Callable[[], Seq[int]]) -> None:
        """Look for a better drafter when the list changed, and now and then while there is none that works."""
        with self._lock:
            offered, self._offered = self._offered, None
        if offered is not None:
            self._candidates = offered
            known = {candidate.incarnation for candidate in offered}
            self._bad_until_s = {key: until_s for key, until_s in self._bad_until_s.items() if key in known}
            self._healths = {key: health for key, health in self._healths.items() if key in known}
        is_looking = self._is_without_drafter or self._better_since_s is not None
        if offered is None and not (is_looking and self._candidates and now_s - self._chosen_s >= CHOICE_INTERVAL_S):
            return
        self._chosen_s = now_s
        excluded = {key for key, until_s in self._bad_until_s.items() if until_s > now_s}
        current = self._link.candidate.incarnation if self._link is not None else None
        if current is not None and not any(candidate.incarnation == current for candidate in self._candidates):
            self._count("gone", "it is not among the drafters any more")
            self._drop_link()
            current = None
        chosen = choose(
            self._candidates,
            verifier=self._hello.name,
            node_id=self._node_id,
            current=current,
            excluded=excluded,
            num_own=len(open_sequences()),
        )
        if chosen is None or chosen.incarnation == current:
            self._better_since_s = None
        elif self._may_move(now_s):
            self._better_since_s = None
            self._drop_link()
            self._open_link(chosen, now_s)

    @property
    def _is_without_drafter(self) -> bool:
        return self._link is None or self._health.state is HealthState.PAUSED

    def _may_move(self, now_s: float) -> bool:
        """True unless the drafter in use works, and another one has not been better for long."""
        if self._better_since_s is None:
            self._better_since_s = now_s
        return self._is_without_drafter or now_s - self._better_since_s >= patience_s(self._hello.name)

    def _open_link(self, candidate: Candidate, now_s: float) -> None:
        try:
            channel = self._connect(candidate.address)
        except Exception as error:  # noqa: BLE001 -- an address may be anything; the others may still work
            self._bad_until_s[candidate.incarnation] = now_s + CONNECT_PAUSE_S
            self._count("unreachable", f"{candidate.replica}: {error}")
            return
        self._link = DraftLink(candidate, channel, self._hello, now_s)
        self._health = self._healths.setdefault(candidate.incarnation, Health(self._health_config))
        self._is_welcome, self._num_restarts = False, 0
        self._count("connected", f"{candidate.replica} on node {candidate.node_id}")
        self._link.introduce(now_s)

    def _drop_link(self) -> None:
        link = self._link
        if link is None:
            return
        link.close()
        with self._lock:  # A reader must not see the counters fall in between.
            self._link, self._carried = None, _sum(self._carried, link.traffic)
        self._is_welcome, self._health = False, Health(self._health_config)
        self._start_again()

    def _start_again(self) -> None:
        self.generation += 1

    def _count(self, reason: str, evidence: str) -> None:
        self.transitions[reason] += 1
        name = self._link.candidate.replica if self._link is not None else "none"
        level = logging.INFO if reason in ("connected", "welcomed", "recovered", "probing") else logging.WARNING
        logger.log(level, "drafter %s: %s: %s", name, reason, evidence)


def _sum(first: Traffic, second: Traffic) -> Traffic:
    return Traffic(**{each.name: getattr(first, each.name) + getattr(second, each.name) for each in fields(Traffic)})
