"""What the check found so far: counts by scenario and setting, and the differences themselves."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

MAX_DIFFERENCES = 20
"""Differences that are kept; all are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A case whose tokens are not those of the reference.

    Attributes:
        prompt: name of the prompt.
        scenario: how it was served.
        setting: sampling settings, by name.
        sampling: all of them.
        num_speculative_tokens: K.
        position: first output index that differs.
        expected: token ids of the reference.
        actual: token ids that came instead.
    """

    prompt: str
    scenario: str
    setting: str
    sampling: Mapping[str, Any]
    num_speculative_tokens: int
    position: int
    expected: tuple[int, ...]
    actual: tuple[int, ...]


@dataclass(slots=True)
class Count:
    """Compared requests of one setting.

    Attributes:
        num_compared: requests.
        num_identical: those with the reference's token ids and finish reason.
        num_tokens: their output tokens.
    """

    num_compared: int = 0
    num_identical: int = 0
    num_tokens: int = 0


@dataclass(slots=True)
class ScenarioResult:
    """One scenario, with proof that it did what its name says.

    Attributes:
        must_draft: without an accepted draft it proves nothing.
        must_break: without a lost source of drafts it proves nothing.
        counts: by setting.
        num_draft_tokens: verified.
        num_accepted_tokens: of those.
        num_preempted: times that a sequence lost its blocks.
        num_cached_tokens: prompt tokens from the prefix cache.
        num_resumed: greedy requests that went on from a text that another one had written.
        num_outages: times that the source of drafts was lost and came back, with drafts before and after.
    """

    must_draft: bool = False
    must_break: bool = False
    counts: dict[str, Count] = field(default_factory=dict)
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    num_preempted: int = 0
    num_cached_tokens: int = 0
    num_resumed: int = 0
    num_outages: int = 0

    @property
    def weakness(self) -> str:
        """Why equal tokens prove little here; empty where they prove what the name says, or nothing was compared."""
        if self.total.num_compared == 0:
            return ""
        if self.must_draft and self.num_draft_tokens == 0:
            return "nothing was drafted"
        if self.must_draft and self.num_accepted_tokens == 0:
            return "no draft was accepted"
        if self.must_break and self.num_outages == 0:
            return "no drafts came both before and after an outage"
        return ""

    @property
    def total(self) -> Count:
        """Over all settings."""
        counts = self.counts.values()
        return Count(
            num_compared=sum(count.num_compared for count in counts),
            num_identical=sum(count.num_identical for count in counts),
            num_tokens=sum(count.num_tokens for count in counts),
        )


@dataclass(slots=True)
class Report:
    """Everything found so far.

    Attributes:
        model: name of the model.
        dtype: of the engine.
        numerics: of the engine.
        max_tokens: output tokens asked for.
        num_prompts: prompts to be compared.
        num_prompts_done: prompts that are through all scenarios.
        scenarios: by name.
        differences: the first ones.
        duration_s: time taken.
        is_complete: False when it was interrupted.
    """

    model: str
    dtype: str
    numerics: str
    max_tokens: int
    num_prompts: int
    num_prompts_done: int = 0
    scenarios: dict[str, ScenarioResult] = field(default_factory=dict)
    differences: list[Difference] = field(default_factory=list)
    duration_s: float = 0.0
    is_complete: bool = False

    @property
    def num_compared(self) -> int:
        """Requests compared with the reference."""
        return sum(result.total.num_compared for result in self.scenarios.values())

    @property
    def num_identical(self) -> int:
        """Those without any difference."""
        return sum(result.total.num_identical for result in self.scenarios.values())

    @property
    def weaknesses(self) -> dict[str, str]:
        """Scenarios that prove little, and why."""
        return {name: result.weakness for name, result in self.scenarios.items() if result.weakness}

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            **asdict(self),
            "num_compared": self.num_compared,
            "num_identical": self.num_identical,
            "is_lossless": self.num_compared > 0 and self.num_identical == self.num_compared,
            "weaknesses": self.weaknesses,
        }
