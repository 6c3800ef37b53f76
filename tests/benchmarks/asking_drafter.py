"""A drafter actor without running ahead: asked once the verdict is known, and waited for. Baseline of `run_ahead`."""

import secrets
import time
from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass

from cluster.engine.budget import DraftCost
from cluster.engine.drafters.base import Draft, Wanted
from cluster.engine.drafters.vocab_check import vocabulary_hash
from cluster.engine.plan import ScheduledSequence
from cluster.engine.sequence import Sequence
from cluster.engine.sequence_budget import LearnedPriors, Prior, SequenceBudget
from cluster.engine.startup import EngineParts
from cluster.messages import PROTOCOL_VERSION, Close, Hello, Lost, Open, Round, Row, SequenceTable, Table, Welcome
from cluster.transport.address import Address
from cluster.transport.channel import Channel
from cluster.transport.zmq import connect
from deployments.discovery import DrafterRecord
from deployments.drafter_process import NODE_ID

_ANSWER_S = 10.0
_ALL_THE_TIME_S = 60.0
"""A verify time for which no draft is too long: the verifier waits for it."""

_LEAST_TOKENS = 2
"""A table tells what follows an outcome's token. Here that token is the draft's first one, so a second one must follow
it: for less the drafter sends no table, and there would be nothing to wait for."""

_PRIORS = (Prior(first=0.6, next=0.6),)


@dataclass(slots=True)
class _Followed:
    """What is kept for a sequence: its id on the wire, tokens that the drafter knows, and its draft lengths."""

    number: int
    num_told: int
    budget: SequenceBudget


class AskingDrafter:
    """Asks for the draft of exactly the outcome that came true, of all sequences at once, and waits for all of them.

    Requests must ignore the end of the text: a drafter has nothing to say about a sequence that may end with its next
    token.

    Args:
        channel: to a drafter with a fan-out of one.
        hello: how the verifier introduces itself.
        max_draft_tokens: most tokens of one draft.
        cost: what drafts cost.

    Raises:
        RuntimeError: the drafter does not answer.
    """

    name = "asked"

    def __init__(self, channel: Channel, hello: Hello, *, max_draft_tokens: int, cost: DraftCost) -> None:
        self._channel, self._max_draft_tokens, self._cost = channel, max_draft_tokens, cost
        self._priors = LearnedPriors(_PRIORS)
        self._followed: dict[str, _Followed] = {}
        self._num_sequences = self._num_rounds = 0
        channel.send(hello)
        if not any(isinstance(message, Welcome) for message in channel.receive(_ANSWER_S)):
            raise RuntimeError("the drafter did not answer")

    def propose(self, wanted: Seq[Wanted]) -> Mapping[str, Draft]:
        """Ask, and wait for the answer.

        Raises:
            RuntimeError: the drafter does not answer, or does not know a sequence.
        """
        cost = self._cost.at(max(1, len(wanted)))
        asked: dict[int, tuple[str, int]] = {}
        rows = []
        for want in wanted:
            followed = self._followed.get(want.sequence.request_id)
            longest = min(want.max_tokens, self._max_draft_tokens)
            if followed is None or longest < _LEAST_TOKENS:
                continue
            if num_tokens := followed.budget.num_draft_tokens(0, longest, cost):
                rows.append(_row(followed, want.sequence, max(num_tokens, _LEAST_TOKENS)))
                asked[followed.number] = want.sequence.request_id, num_tokens
        if not rows:
            return {}
        self._num_rounds += 1
        self._channel.send(Round(number=self._num_rounds, verify_s=_ALL_THE_TIME_S, rows=tuple(rows)))
        drafts = {}
        for table in self._answers(set(asked)):
            request_id, num_tokens = asked[table.sequence]
            drafts[request_id] = Draft(token_ids=table.entries[0].token_ids[:num_tokens], source=self.name)
        return drafts

    def begin_round(self, items: Seq[ScheduledSequence]) -> None:
        """Let the drafter read prompts while the target does."""
        for item in items:
            if item.sequence.request_id not in self._followed:
                self._open(item.sequence)

    def observe(self, sequence: Sequence, draft: Draft, num_accepted: int) -> None:
        """Fit the sequence's draft lengths to the verdict."""
        followed = self._followed.get(sequence.request_id)
        if followed is not None and draft.token_ids:
            followed.budget.observe(0, len(draft.token_ids), num_accepted)

    def forget(self, request_id: str) -> None:
        """Close the sequence."""
        if (followed := self._followed.pop(request_id, None)) is not None:
            self._channel.send(Close(sequences=(followed.number,)))

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def _open(self, sequence: Sequence) -> None:
        self._num_sequences += 1
        followed = _Followed(self._num_sequences, sequence.num_tokens, SequenceBudget(self._priors))
        self._followed[sequence.request_id] = followed
        self._channel.send(
            Open(
                sequence=followed.number,
                epoch=0,
                num_prompt_tokens=sequence.num_prompt_tokens,
                token_ids=tuple(sequence.token_ids),
                sampling=sequence.request.sampling,
            )
        )

    def _answers(self, missing: set[int]) -> list[SequenceTable]:
        """One table for each of these sequences."""
        tables: list[SequenceTable] = []
        deadline_s = time.monotonic() + _ANSWER_S
        while missing:
            messages = self._channel.receive(max(0.0, deadline_s - time.monotonic()))
            if not messages or any(isinstance(message, Lost) for message in messages):
                raise RuntimeError(f"the drafter did not answer for sequences {sorted(missing)}: {messages}")
            for message in messages:
                if isinstance(message, Table):
                    tables += message.sequences
            missing = missing - {table.sequence for table in tables}
        return tables


def _row(followed: _Followed, sequence: Sequence, num_tokens: int) -> Row:
    """News of a sequence, and the wish for so many tokens: the outcome's, and what follows it."""
    new_token_ids = tuple(sequence.token_ids[followed.num_told :])
    followed.num_told = sequence.num_tokens
    return Row(
        sequence=followed.number,
        epoch=0,
        base_length=sequence.num_tokens,
        new_token_ids=new_token_ids,
        draft_token_ids=(),
        num_tokens=num_tokens - 1,
    )


def asking_drafter(
    parts: EngineParts, record: DrafterRecord, *, max_draft_tokens: int, cost: DraftCost
) -> AskingDrafter:
    """One that is connected to a drafter's process."""
    hello = Hello(
        version=PROTOCOL_VERSION,
        incarnation=secrets.randbits(62),
        model_hash=parts.model_id,
        tokenizer_hash=vocabulary_hash(parts.tokenizer),
        name="asking",
    )
    channel = connect(Address.from_json(record.address), NODE_ID)
    return AskingDrafter(channel, hello, max_draft_tokens=max_draft_tokens, cost=cost)
