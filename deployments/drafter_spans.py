"""The drafter's spans: one for each traced sequence that it follows, from `Open` to whatever ends it."""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

from opentelemetry.trace import Span

from cluster.messages import Close, Lost, Message, Open, Round, Table
from cluster.telemetry import tracing_attributes as attr
from cluster.telemetry.tracing import Attributes, Tracing, unpack_context
from cluster.transport.channel import PeerId
from deployments.drafter_core import Ahead, Outgoing

MAX_SPANS = 4096
"""Spans open at once; beyond it the oldest ends."""


@dataclass(slots=True, kw_only=True)
class _Followed:
    """A traced sequence."""

    span: Span
    num_rounds: int = 0
    num_tables: int = 0
    num_outcomes: int = 0
    num_draft_tokens: int = 0


class TracedAhead:
    """A drafter's mind that is watched from outside; one thread calls it.

    Args:
        ahead: what is watched.
        tracing: the drafter's.
        model: name of the draft model.
    """

    def __init__(self, ahead: Ahead, tracing: Tracing, *, model: str) -> None:
        self._ahead, self._tracing, self._model = ahead, tracing, model
        self._open: OrderedDict[tuple[PeerId, int], _Followed] = OrderedDict()

    @property
    def num_open(self) -> int:
        """Spans that have not ended."""
        return len(self._open)

    @property
    def has_work(self) -> bool:
        """True while `step` would do something."""
        return self._ahead.has_work

    def handle(self, peer: PeerId, message: Message) -> Outgoing:
        """Take a message in; returns answers."""
        if isinstance(message, Open):
            self._begin(peer, message)
        elif isinstance(message, Round) and self._open:
            for row in message.rows:
                if (followed := self._open.get((peer, row.sequence))) is not None:
                    followed.num_rounds += 1
        elif isinstance(message, Close):
            self._end_all(((peer, sequence) for sequence in message.sequences), "closed")
        return self._watched(self._ahead.handle(peer, message))

    def step(self) -> Outgoing:
        """One forward pass; returns what is ready to be sent."""
        return self._watched(self._ahead.step())

    def drop_peer(self, peer: PeerId) -> None:
        """Free everything of a verifier."""
        self._ahead.drop_peer(peer)
        self._end_all([key for key in self._open if key[0] == peer], "verifier_gone")

    def evict_idle(self) -> int:
        """Drop what nobody speaks of any more."""
        return self._ahead.evict_idle()

    def stop(self) -> None:
        """End all spans."""
        self._end_all(list(self._open), "drafter_stopped")

    def _watched(self, outgoing: Outgoing) -> Outgoing:
        if not self._open:
            return outgoing
        messages = tuple(outgoing)
        for peer, message in messages:
            if isinstance(message, Table):
                self._count(peer, message)
            elif isinstance(message, Lost):
                self._end_all(((peer, sequence) for sequence in message.sequences), message.reason)
        return messages

    def _count(self, peer: PeerId, table: Table) -> None:
        for entry in table.sequences:
            followed = self._open.get((peer, entry.sequence))
            if followed is not None:
                followed.num_tables += 1
                followed.num_outcomes += len(entry.entries)
                # The first token of an entry is a guess at what the target draws.
                followed.num_draft_tokens += sum(len(outcome.token_ids) - 1 for outcome in entry.entries)

    def _begin(self, peer: PeerId, message: Open) -> None:
        key = (peer, message.sequence)
        self._end_all((key,), "opened_again")
        parent = unpack_context(message.trace)
        if parent is None:
            return
        if len(self._open) >= MAX_SPANS:
            self._end_all((next(iter(self._open)),), "too_many")
        attributes: Attributes = {
            attr.REQUEST_MODEL: self._model,
            attr.DRAFTER_EPOCH: message.epoch,
            attr.PROMPT_TOKENS: message.num_prompt_tokens,
            attr.OUTPUT_TOKENS: len(message.token_ids) - message.num_prompt_tokens,
        }
        span = self._tracing.start(attr.DRAFTER_SPAN, parent=parent, attributes=attributes)
        self._open[key] = _Followed(span=span)

    def _end_all(self, keys: Iterable[tuple[PeerId, int]], reason: str) -> None:
        for key in keys:
            followed = self._open.pop(key, None)
            if followed is None:
                continue
            followed.span.set_attributes(
                {
                    attr.DRAFTER_ROUNDS: followed.num_rounds,
                    attr.DRAFTER_TABLES: followed.num_tables,
                    attr.DRAFTER_OUTCOMES: followed.num_outcomes,
                    attr.DRAFTER_DRAFT_TOKENS: followed.num_draft_tokens,
                    attr.DRAFTER_END: reason,
                }
            )
            followed.span.end()
