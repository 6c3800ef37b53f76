"""The verifier's end of a drafter actor, as a drafter of the engine. It never waits for the other side.

Before each forward pass the drafter is told what was committed and which draft is being verified. While the pass runs
it drafts for the possible outcomes and pushes a table; the next `propose` looks up what really happened. Which drafter
is used, and whether it is worth it, is decided on the way (`draft_peers`).
"""

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from itertools import count

from cluster.clock import Clock
from cluster.engine.budget import DraftCost
from cluster.engine.drafters.base import Draft, Wanted
from cluster.engine.drafters.table import Arrival, DraftTables, LookupResult
from cluster.engine.drafters.wanted import max_draft_tokens
from cluster.engine.plan import ScheduledSequence
from cluster.engine.sequence import Sequence
from cluster.engine.sequence_budget import LearnedPriors
from cluster.errors import ConfigError
from cluster.messages import Close, Hello, Lost, Round, SequenceTable
from cluster.transport.address import Address
from cluster.transport.channel import Channel
from cluster.types import DrafterStats
from deployments.draft_follow import MAX_WAITS_IN_VAIN, PRIORS, Counts, Followed, Missing
from deployments.draft_health import HealthConfig
from deployments.draft_peers import DraftPeers
from deployments.pairing import Candidate

GRACE_S = 2.0
"""A drafter may take this long to read a sequence before its silence about it counts against it."""

MAX_PENDING_CLOSES = 4096
"""Ended sequences that a full queue could not tell about; beyond it the drafter finds out by itself."""

_VERIFY_WEIGHT = 0.2
_LOST = {"capacity": Missing.CAPACITY, "length": Missing.LENGTH}


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftClientConfig:
    """Settings of a draft client.

    Attributes:
        num_speculative_tokens: longest draft that is asked for.
        draft_wait_s: how long a round may wait for tables, in seconds.
        health: when a drafter is left alone.
    """

    num_speculative_tokens: int = 4
    draft_wait_s: float = 0.0
    health: HealthConfig = field(default_factory=HealthConfig)

    def __post_init__(self) -> None:
        """Refuse values out of range."""
        if self.num_speculative_tokens < 1:
            raise ConfigError(
                field="num_speculative_tokens", value=self.num_speculative_tokens, allowed="an integer from 1"
            )
        if not 0.0 <= self.draft_wait_s <= 1.0:
            raise ConfigError(field="draft_wait_s", value=self.draft_wait_s, allowed="seconds from 0 to 1")


class DraftClient:
    """Drafts from a drafter actor. One thread calls it, but for `set_peers` and `stats`.

    Args:
        hello: how the verifier introduces itself to drafters.
        node_id: the verifier's node.
        connect: opens a channel without waiting for the other side.
        vocab_size: ids of the target are below this.
        clock: source of time.
        config: settings.
        cost: what drafts cost in the verifier.
    """

    name = "drafter"

    def __init__(
        self,
        *,
        hello: Hello,
        node_id: str,
        connect: Callable[[Address], Channel],
        vocab_size: int,
        clock: Clock,
        config: DraftClientConfig | None = None,
        cost: DraftCost | None = None,
    ) -> None:
        self._clock, self._config, self._cost = clock, config or DraftClientConfig(), cost or DraftCost()
        self._peers = DraftPeers(hello=hello, node_id=node_id, connect=connect, health=self._config.health)
        self._tables = DraftTables(vocab_size)
        self._priors = LearnedPriors(PRIORS)
        self._followed: dict[str, Followed] = {}
        self._by_number: dict[int, Followed] = {}
        self._numbers = count()
        self._rounds = count()
        self._closes: list[int] = []
        self._counts = Counts()
        self._round_began_s: float | None = None
        self._verify_s = 0.0
        # Clock time of the first question that no table has followed.
        self._unanswered_since_s: float | None = None
        self._generation = 0

    @property
    def num_sequences(self) -> int:
        """Sequences that something is kept for."""
        return len(self._followed)

    def set_peers(self, candidates: Seq[Candidate]) -> None:
        """The drafters that run now; used from the next round on. May be called from any thread."""
        self._peers.offer(candidates)

    def stats(self) -> DrafterStats:
        """What happened so far. May be called from any thread."""
        return self._peers.stats(lookups=dict(self._counts.lookups), fallbacks=dict(self._counts.fallbacks))

    def propose(self, wanted: Seq[Wanted]) -> Mapping[str, Draft]:
        """What the tables hold for what was committed."""
        now_s = self._clock.now_s()
        self._note_pass(now_s)
        self._turn(now_s)
        if self._config.draft_wait_s > 0:
            self._wait(wanted, now_s)
        drafts = {}
        for want in wanted:
            request_id = want.sequence.request_id
            if token_ids := self._look_up(want, now_s):
                followed = self._followed[request_id]
                followed.cut.is_offered = True
                confidences = followed.budget.confidences(0, len(token_ids))
                drafts[request_id] = Draft(token_ids=token_ids, source=self.name, confidences=confidences)
        return drafts

    def begin_round(self, items: Seq[ScheduledSequence]) -> None:
        """Tell the drafter what was committed and what is being verified."""
        now_s = self._round_began_s = self._clock.now_s()
        self._turn(now_s)
        if (welcome := self._peers.welcome) is None:
            return
        longest = min(self._config.num_speculative_tokens, welcome.num_speculative_tokens)
        cost = self._cost.at(max(1, sum(item.samples for item in items)))
        rows = []
        for item in items:
            followed = self._follow(item, longest, now_s)
            if followed is not None:
                followed.cut.note_round(is_verified=bool(item.draft_token_ids))
            if followed is not None and item.samples and followed.ask(longest, cost) > 0:
                rows.append(followed.row(item))
        if rows and self._peers.send(
            Round(number=next(self._rounds), verify_s=self._verify_s, rows=tuple(rows)), now_s
        ):
            if self._unanswered_since_s is None:
                self._unanswered_since_s = now_s
            for row in rows:
                followed = self._by_number[row.sequence]
                followed.num_told, followed.is_asked = row.base_length, True
                self._tables.begin_round(row.sequence, row.base_length, row.draft_token_ids)

    def observe(self, sequence: Sequence, draft: Draft, num_accepted: int) -> None:
        """Learn what became of a draft of the drafter's."""
        followed = self._followed.get(sequence.request_id)
        if draft.source == self.name and followed is not None and draft.token_ids:
            followed.budget.observe(0, len(draft.token_ids), num_accepted)
            self._peers.record_verdict(len(draft.token_ids), num_accepted)

    def forget(self, request_id: str) -> None:
        """Drop a finished sequence, and tell the drafter at once."""
        followed = self._followed.pop(request_id, None)
        if followed is None:
            return
        del self._by_number[followed.number]
        if not self._followed:
            self._round_began_s = None  # The next call may come after a spell without drafts, which is no pass.
        self._tables.close(followed.number)
        # A drafter remembers which sequences outgrew it.
        is_known = followed.is_open or followed.missing is Missing.LENGTH
        if is_known and len(self._closes) < MAX_PENDING_CLOSES:
            self._closes.append(followed.number)
        self._send_closes(self._clock.now_s())

    def close(self) -> None:
        """Say goodbye and close the connection."""
        self._peers.close()
        self._followed.clear()
        self._by_number.clear()
        self._tables.clear()

    def _turn(self, now_s: float) -> None:
        """Take in what came and what has changed about the drafters."""
        for message in self._peers.receive(now_s):
            self._take(message, now_s)
        self._peers.update(now_s, self._open_numbers)
        if self._peers.generation != self._generation:
            self._generation = self._peers.generation
            self._start_again()
        self._send_closes(now_s)

    def _open_numbers(self) -> list[int]:
        return [followed.number for followed in self._by_number.values() if followed.is_open]

    def _start_again(self) -> None:
        """Nothing that was told before is known on the other side now."""
        missing = Missing.QUARANTINED if self._peers.is_quarantined else Missing.DISCONNECTED
        self._tables.clear()
        self._closes.clear()
        self._unanswered_since_s = None
        for followed in self._by_number.values():
            followed.closed(missing)
            followed.forgive()

    def _take(self, message: SequenceTable | Lost, now_s: float) -> None:
        if isinstance(message, SequenceTable):
            self._unanswered_since_s = None
            if self._tables.put(message) is Arrival.INVALID:
                self._peers.record_malformed(1)
            return
        for number in message.sequences:
            followed = self._by_number.get(number)
            if followed is not None and followed.is_open:
                followed.lost(_LOST.get(message.reason, Missing.LOST), now_s)
                self._tables.close(number)

    def _wait(self, wanted: Seq[Wanted], now_s: float) -> None:
        """Wait for the tables of the round just verified, as long as is allowed and there is hope."""
        deadline_s = now_s + self._config.draft_wait_s
        while (left_s := deadline_s - now_s) > 0 and any(self._is_due(want) for want in wanted):
            messages = self._peers.receive(now_s, timeout_s=left_s)
            for message in messages:
                self._take(message, now_s)
            if not messages:
                return
            now_s = self._clock.now_s()

    def _is_due(self, want: Wanted) -> bool:
        followed = self._followed.get(want.sequence.request_id)
        if followed is None or not followed.is_asked or followed.num_waits_in_vain >= MAX_WAITS_IN_VAIN:
            return False
        return not self._tables.is_answered(followed.number)

    def _look_up(self, want: Wanted, now_s: float) -> tuple[int, ...]:
        followed = self._followed.get(want.sequence.request_id)
        if followed is None or not followed.is_asked:
            missing = followed.missing if followed is not None else self._peers.why_not
            self._counts.fallbacks[missing.value] += 1
            return ()
        found = self._tables.lookup(followed.number, want.sequence.token_ids)
        self._counts.lookups[found.result.value] += 1
        if found.result is not LookupResult.NONE or not self._is_reading(followed, now_s):
            self._peers.record_lookup(found.result)
        followed.looked_up(found.result)
        return found.token_ids[: min(want.max_tokens, followed.num_tokens)]

    def _is_reading(self, followed: Followed, now_s: float) -> bool:
        """True while it may be that the drafter is at work and has not read the sequence's prompt yet."""
        since_s = followed.opened_s
        if self._unanswered_since_s is not None:
            since_s = min(since_s, self._unanswered_since_s)
        return not followed.has_table and now_s - since_s < GRACE_S

    def _follow(self, item: ScheduledSequence, longest: int, now_s: float) -> Followed | None:
        """The sequence of an item, opened; None when it is not, or wants no drafts from here."""
        sequence = item.sequence
        if sequence.request.speculation.drafter not in (None, self.name) or max_draft_tokens(sequence, longest) <= 0:
            return None
        followed = self._followed.get(sequence.request_id)
        if followed is not None and followed.sequence is not sequence:  # The id was given to another request.
            self.forget(sequence.request_id)
            followed = None
        if followed is None:
            followed = Followed.of(next(self._numbers), sequence, self._priors)
            self._followed[sequence.request_id] = self._by_number[followed.number] = followed
        if followed.is_open and followed.epoch == sequence.epoch:
            return followed
        return followed if self._open(followed, now_s) else None

    def _open(self, followed: Followed, now_s: float) -> bool:
        sequence, welcome = followed.sequence, self._peers.welcome
        followed.is_asked = False
        if welcome is None or now_s < followed.retry_s:
            return False
        if sequence.num_tokens >= welcome.max_model_len:
            followed.lost(Missing.LENGTH, now_s)
            return False
        most = self._peers.max_sequences
        if not followed.is_open and most is not None and len(self._open_numbers()) >= most:
            followed.missing = Missing.QUARANTINED
            return False
        if not self._peers.send(followed.open_message(), now_s):
            followed.missing = Missing.OPENING
            return False
        followed.opened(now_s)
        self._tables.open(followed.number, sequence.epoch)
        return True

    def _note_pass(self, now_s: float) -> None:
        """Learn how long a pass takes, from its beginning to the next round's drafts."""
        if self._round_began_s is not None:
            taken_s = now_s - self._round_began_s
            weight = _VERIFY_WEIGHT if self._verify_s > 0 else 1.0
            self._verify_s += weight * (taken_s - self._verify_s)
            self._round_began_s = None

    def _send_closes(self, now_s: float) -> None:
        if self._closes and self._peers.send(Close(sequences=tuple(self._closes)), now_s):
            self._closes.clear()
