"""What a drafter that runs ahead keeps: verifiers, their sequences, work in progress, limits and counters."""

import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, fields

from cluster.engine.drafters.draft_job import DraftJob, DraftSequence
from cluster.errors import ConfigError
from cluster.messages import Entry

_ACCEPTANCE_PRIOR, _PRIOR_WEIGHT, _DECAY = 0.7, 4.0, 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAheadLimits:
    """Limits of a drafter.

    Attributes:
        max_sequences: sequences followed at once, all verifiers together.
        max_sequences_per_peer: sequences followed at once for one verifier.
        num_speculative_tokens: longest draft, K.
        max_fan_out: most guesses of the next token for each number of accepted tokens.
        max_in_flight_tokens: longest draft under verification that is understood; other drafters may make longer ones.
        max_rows: most rows of one forward pass; not more than the draft model takes.
        idle_s: a sequence without news for this long is evicted.
        evictable_s: a sequence without news for this long is evicted when another needs its place.
        time_ratio: share of the verify time that is planned with.
        catch_up_tokens: committed tokens without KV from which on they are computed without waiting for a round.
    """

    max_sequences: int = 256
    max_sequences_per_peer: int = 256
    num_speculative_tokens: int = 4
    max_fan_out: int = 4
    max_in_flight_tokens: int = 64
    max_rows: int = 256
    idle_s: float = 60.0
    evictable_s: float = 2.0
    time_ratio: float = 0.9
    catch_up_tokens: int = 32

    def __post_init__(self) -> None:
        for name in (
            "max_sequences",
            "max_sequences_per_peer",
            "num_speculative_tokens",
            "max_fan_out",
            "max_in_flight_tokens",
            "max_rows",
            "catch_up_tokens",
        ):
            value = getattr(self, name)
            if value < 1:
                raise ConfigError(field=name, value=value, allowed="at least 1")
        if not 0 < self.time_ratio <= 1:
            raise ConfigError(field="time_ratio", value=self.time_ratio, allowed="above 0, at most 1")
        if not 0 < self.evictable_s <= self.idle_s:
            raise ConfigError(field="evictable_s", value=self.evictable_s, allowed="above 0, at most idle_s")


@dataclass(slots=True, kw_only=True)
class Counters:
    """What happened so far, for one verifier or for all.

    Attributes:
        num_opened: sequences opened.
        num_rounds: rounds that verifiers announced.
        num_tables: sequence tables sent.
        num_late_tables: those of them that were sent after the verify time of their round.
        num_short_tables: those of them that were sent before the job was done, because time was up.
        num_cancelled_jobs: jobs that a newer round of their sequence, or its end, made stale.
        num_evicted: sequences dropped for being idle.
        num_lost_unknown: sequences reported lost because they were not known or out of step.
        num_lost_capacity: sequences reported lost for lack of room.
        num_lost_length: sequences reported lost because they outgrew the drafter.
        num_branches: outcomes that tables held.
        num_draft_tokens: draft tokens that tables held.
    """

    num_opened: int = 0
    num_rounds: int = 0
    num_tables: int = 0
    num_late_tables: int = 0
    num_short_tables: int = 0
    num_cancelled_jobs: int = 0
    num_evicted: int = 0
    num_lost_unknown: int = 0
    num_lost_capacity: int = 0
    num_lost_length: int = 0
    num_branches: int = 0
    num_draft_tokens: int = 0

    def count_table(self, entries: Sequence[Entry], *, is_short: bool, is_late: bool) -> None:
        """Count a sequence table."""
        self.num_tables += 1
        self.num_late_tables += is_late
        self.num_short_tables += is_short
        self.num_branches += len(entries)
        self.num_draft_tokens += sum(len(entry.token_ids) - 1 for entry in entries)

    def __add__(self, other: "Counters") -> "Counters":
        sums = {item.name: getattr(self, item.name) + getattr(other, item.name) for item in fields(Counters)}
        return Counters(**sums)


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerSnapshot:
    """One verifier.

    Attributes:
        name: as it said in its `Hello`; empty if it said none.
        num_sequences: sequences followed for it.
        counters: since it was first heard.
    """

    name: str
    num_sequences: int
    counters: Counters


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAheadSnapshot:
    """A drafter at one moment.

    Attributes:
        num_sequences: sequences followed.
        num_jobs: jobs in progress.
        num_steps: forward passes so far.
        forward_s: seconds spent in them.
        kv_cache_usage_ratio: used share of the KV blocks, 0..1.
        pass_s: estimated seconds of a pass of one row.
        counters: totals, verifiers that are gone included.
        peers: the verifiers that are here.
    """

    num_sequences: int
    num_jobs: int
    num_steps: int
    forward_s: float
    kv_cache_usage_ratio: float
    pass_s: float
    counters: Counters
    peers: tuple[PeerSnapshot, ...]


class AcceptanceEstimate:
    """Chance that a draft token is accepted after those before it, of one sequence; newer verdicts weigh more."""

    __slots__ = ("_accepted", "_tried")

    def __init__(self) -> None:
        self._accepted = self._tried = 0.0

    @property
    def value(self) -> float:
        """0..1."""
        return (self._accepted + _ACCEPTANCE_PRIOR * _PRIOR_WEIGHT) / (self._tried + _PRIOR_WEIGHT)

    def observe(self, draft_token_ids: tuple[int, ...], committed: tuple[int, ...]) -> None:
        """Learn from a verdict.

        Args:
            draft_token_ids: what was verified.
            committed: what the target then wrote, perhaps cut by a stop; empty when there is no verdict yet.
        """
        for drafted, written in zip(draft_token_ids, committed, strict=False):
            self._accepted = self._accepted * _DECAY + (drafted == written)
            self._tried = self._tried * _DECAY + 1.0
            if drafted != written:
                break


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """The round that waits for a table.

    Attributes:
        number: of the round.
        verdict_s: clock time at which its verdict is expected.
    """

    number: int
    verdict_s: float


@dataclass(slots=True, eq=False, kw_only=True)
class Task:
    """Work on one sequence.

    Attributes:
        job: the work.
        due: the round that waits for it; None for catching up in the background.
        draft_hash: of the draft in flight.
        num_skipped: passes that it was left out of in a row.
    """

    job: DraftJob
    due: Due | None = None
    draft_hash: int = 0
    num_skipped: int = 0

    @property
    def verdict_s(self) -> float:
        """Clock time at which a verdict is expected; infinite without a round."""
        return math.inf if self.due is None else self.due.verdict_s

    @property
    def has_drafts(self) -> bool:
        """True once there is something to send."""
        return any(len(branch.token_ids) > 1 for branch in self.job.branches or ())

    @property
    def entries(self) -> tuple[Entry, ...]:
        """What was drafted so far; outcomes behind which nothing is drafted are of no use to a verifier."""
        return tuple(entry for entry in self.job.entries if len(entry.token_ids) > 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A task that a pass ended.

    Attributes:
        key: verifier and sequence.
        task: the task.
        is_short: it was cut because time was up.
        is_late: it ended after the verdict was expected.
    """

    key: tuple[bytes, int]
    task: Task
    is_short: bool
    is_late: bool


@dataclass(slots=True, eq=False, kw_only=True)
class Followed:
    """One sequence of a verifier.

    Attributes:
        epoch: restarts of it.
        sequence: its state in the draft model; None once it is longer than the model's limit.
        last_used_s: clock time of the last news.
        in_flight: the draft of the last row.
        acceptance: of its drafts.
    """

    epoch: int
    sequence: DraftSequence | None
    last_used_s: float
    in_flight: tuple[int, ...] = ()
    acceptance: AcceptanceEstimate = field(default_factory=AcceptanceEstimate)

    @property
    def num_missing(self) -> int:
        """Committed tokens without KV."""
        return len(self.sequence.token_ids) - self.sequence.num_computed if self.sequence is not None else 0


@dataclass(slots=True, eq=False, kw_only=True)
class Peer:
    """One verifier.

    Attributes:
        name: for metrics.
        incarnation: of its process; None before its `Hello`.
        sequences: by id, the one without news for longest first.
        num_rows: rows that its last round takes up in a pass.
        verify_s: verify time of its last round.
        busy_until_s: clock time until which its claim stands: another round is likely before.
        counters: since it was first heard.
    """

    name: str = ""
    incarnation: int | None = None
    sequences: OrderedDict[int, Followed] = field(default_factory=OrderedDict)
    num_rows: int = 0
    verify_s: float = 0.0
    busy_until_s: float = 0.0
    counters: Counters = field(default_factory=Counters)

    def touch(self, sequence_id: int, now_s: float) -> None:
        """Note that there was news of a sequence."""
        self.sequences.move_to_end(sequence_id)
        self.sequences[sequence_id].last_used_s = now_s
