"""Whether a drafter is worth talking to: what makes a verifier leave one alone, and how it comes back.

A drafter is left alone when it is silent, sends nonsense, comes too late, or guesses nothing right. After 1 s, then 2,
then every 3 s it is tried again with a few sequences; once their tables are good, it serves all of them. A drafter that
is right again is thus used again within 5 s, however long it was wrong. No clock, no log.
"""

import math
from dataclasses import dataclass
from enum import StrEnum

from cluster.engine.drafters.table import LookupResult
from cluster.errors import ConfigError


class HealthState(StrEnum):
    """How a drafter is used.

    - good: for every sequence.
    - paused: not at all.
    - probing: for a few sequences, to see whether it is good again.
    """

    GOOD = "good"
    PAUSED = "paused"
    PROBING = "probing"


class Change(StrEnum):
    """Why the state changed: four reasons to pause, a failed probe, and the way back."""

    SILENT = "silent"
    MALFORMED = "malformed"
    LATE = "late"
    WRONG = "wrong"
    PROBE_FAILED = "probe_failed"
    PROBING = "probing"
    RECOVERED = "recovered"


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthConfig:
    """When a drafter is left alone.

    Attributes:
        silent_s: nothing was heard for this long, pings included.
        window: lookups, and draft tokens, that are judged together.
        max_late_ratio: share of lookups without a table in time.
        min_acceptance_ratio: accepted share of draft tokens, and share of tables in time that held the outcome.
        max_malformed: messages in a window that were none.
        first_pause_s: pause after the first trouble; doubled each time until a whole window was good.
        longest_pause_s: longest pause.
        num_probe_sequences: sequences that try a drafter again.
        num_probe_lookups: lookups after which a probe may succeed; after four times as many it has failed.
    """

    silent_s: float = 1.5
    window: int = 64
    max_late_ratio: float = 0.9
    min_acceptance_ratio: float = 0.01
    max_malformed: int = 4
    first_pause_s: float = 1.0
    longest_pause_s: float = 3.0
    num_probe_sequences: int = 2
    num_probe_lookups: int = 8

    def __post_init__(self) -> None:
        """Refuse values that make no sense."""
        for name in ("window", "max_malformed", "num_probe_sequences", "num_probe_lookups"):
            if getattr(self, name) < 1:
                raise ConfigError(field=name, value=getattr(self, name), allowed="at least 1")
        if not 0 < self.first_pause_s <= self.longest_pause_s:
            raise ConfigError(field="first_pause_s", value=self.first_pause_s, allowed="above 0, up to longest_pause_s")


@dataclass(slots=True)
class _Window:
    """What is judged together."""

    num_lookups: int = 0
    num_in_time: int = 0
    num_hits: int = 0
    num_drafted: int = 0
    num_accepted: int = 0
    num_malformed: int = 0

    def __str__(self) -> str:
        return (
            f"{self.num_in_time} of {self.num_lookups} tables in time, {self.num_hits} of them hits, "
            f"{self.num_accepted} of {self.num_drafted} draft tokens accepted, {self.num_malformed} malformed messages"
        )


class Health:
    """What a verifier thinks of one drafter.

    Args:
        config: limits.

    Attributes:
        state: how the drafter is used now.
        resumes_s: clock time at which a pause ends.
        evidence: what the last change stands on, for the log.
    """

    def __init__(self, config: HealthConfig) -> None:
        self._config = config
        self.state = HealthState.GOOD
        self.resumes_s = -math.inf
        self.evidence = ""
        self._pause_s = config.first_pause_s
        self._paused_for = Change.RECOVERED
        # Hits and verdicts are judged by windows of their own: a drafter in time may draft next to nothing.
        self._timing, self._hits, self._tokens = _Window(), _Window(), _Window()

    @property
    def max_sequences(self) -> int | None:
        """How many sequences may use the drafter; None for all."""
        if self.state is HealthState.GOOD:
            return None
        return self._config.num_probe_sequences if self.state is HealthState.PROBING else 0

    def record_lookup(self, result: LookupResult) -> None:
        """A sequence that had asked looked for its draft."""
        is_in_time = result in (LookupResult.HIT, LookupResult.MISS)
        for window in (self._timing, self._hits):
            window.num_lookups += 1
            window.num_in_time += is_in_time
            window.num_hits += result is LookupResult.HIT

    def record_verdict(self, num_drafted: int, num_accepted: int) -> None:
        """A draft of the drafter was verified."""
        self._tokens.num_drafted += num_drafted
        self._tokens.num_accepted += num_accepted

    def record_malformed(self, count: int) -> None:
        """Messages came that were none, or tables that no drafter of this target can send."""
        self._timing.num_malformed += count

    def update(self, now_s: float, last_heard_s: float) -> Change | None:
        """Move on to the state that follows from what was recorded; returns what changed, if anything.

        Args:
            now_s: clock time.
            last_heard_s: clock time of the drafter's last sign of life.
        """
        is_silent = now_s - last_heard_s > self._config.silent_s
        match self.state:
            case HealthState.GOOD:
                change = Change.SILENT if is_silent else self._judge()
            case HealthState.PROBING:
                change = Change.SILENT if is_silent else self._judge_probe()
            case HealthState.PAUSED if is_silent:
                # What was late first, and is now known to be silent, is dead or hung.
                change = Change.SILENT if self._paused_for is not Change.SILENT else None
            case HealthState.PAUSED:
                # A drafter that was silent and speaks again has come back, however long the pause should be.
                is_over = now_s >= self.resumes_s or self._paused_for is Change.SILENT
                change = Change.PROBING if is_over else None
        if change is not None:
            self._apply(change, now_s, last_heard_s)
        return change

    def _apply(self, change: Change, now_s: float, last_heard_s: float) -> None:
        if change is Change.SILENT:
            self.evidence = f"nothing heard for {now_s - last_heard_s:.1f} s"
        elif change is Change.PROBING:
            self.evidence = f"after a pause because of {self._paused_for}"
        else:
            parts = {"timing": self._timing, "hits": self._hits, "drafts": self._tokens}
            self.evidence = "; ".join(f"{name}: {window}" for name, window in parts.items())
        self._timing, self._hits, self._tokens = _Window(), _Window(), _Window()
        match change:
            case Change.RECOVERED:
                self.state = HealthState.GOOD
            case Change.PROBING:
                self.state = HealthState.PROBING
            case _:
                if self.state is not HealthState.PAUSED:
                    self.resumes_s = now_s + self._pause_s
                    self._pause_s = min(2 * self._pause_s, self._config.longest_pause_s)
                self.state, self._paused_for = HealthState.PAUSED, change

    def _judge(self) -> Change | None:
        """Judge each window that is full; one that was good makes the next pause short again."""
        config, timing, hits, tokens = self._config, self._timing, self._hits, self._tokens
        if timing.num_malformed >= config.max_malformed:
            return Change.MALFORMED
        if timing.num_lookups >= config.window:
            if timing.num_lookups - timing.num_in_time > config.max_late_ratio * timing.num_lookups:
                return Change.LATE
            self._timing = _Window()
            self._pause_s = config.first_pause_s
        if hits.num_in_time >= config.window:
            if hits.num_hits < config.min_acceptance_ratio * hits.num_in_time:
                return Change.WRONG
            self._hits = _Window()
        if tokens.num_drafted >= config.window:
            if tokens.num_accepted < config.min_acceptance_ratio * tokens.num_drafted:
                return Change.WRONG
            self._tokens = _Window()
        return None

    def _judge_probe(self) -> Change | None:
        config, timing, tokens = self._config, self._timing, self._tokens
        if timing.num_malformed:
            return Change.MALFORMED
        if timing.num_lookups < config.num_probe_lookups:
            return None
        is_late = timing.num_lookups - timing.num_in_time > config.max_late_ratio * timing.num_lookups
        is_right = not is_late and timing.num_hits > 0
        if is_right and tokens.num_accepted > 0:
            return Change.RECOVERED
        if timing.num_lookups < 4 * config.num_probe_lookups:
            return None
        # Where the budget lets no draft be verified, foretold outcomes are all that can be judged.
        return Change.RECOVERED if is_right and tokens.num_drafted == 0 else Change.PROBE_FAILED
