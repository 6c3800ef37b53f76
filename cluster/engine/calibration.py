"""What `outrider calibrate` measured on a machine with a pair of models: the JSON file that an engine starts from."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from cluster.engine.calibration_checks import problems
from cluster.engine.step_time import StepTimes
from cluster.errors import ConfigError, LoadError

VERSION = 1
"""Raised when a field changes its meaning; files of another version are refused."""

MAX_FILE_BYTES = 16 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Where it was measured.

    Attributes:
        num_cores: that the process could use.
        num_threads: of the target's forward pass.
        cpu: its name.
        gpu: its name; None without one.
    """

    num_cores: int
    num_threads: int
    cpu: str
    gpu: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """What became of one source's drafts on one class of text. The rates follow from the counts.

    Attributes:
        workload: class of text.
        source: who drafted.
        num_rounds: rounds of sequences that were measured, with a draft of this source or without.
        num_drafts: drafts verified.
        num_tried: for each position in a draft, how often a token there was verified with all before it accepted.
        num_accepted: of those, how many were accepted.
        num_draft_tokens: tokens verified, those behind a refused one included.
    """

    workload: str
    source: str
    num_rounds: int
    num_drafts: int
    num_tried: tuple[int, ...]
    num_accepted: tuple[int, ...]
    num_draft_tokens: int

    @property
    def per_position(self) -> tuple[float, ...]:
        """Chance that draft token i is accepted, given that all before it were."""
        return tuple(hits / tries for hits, tries in zip(self.num_accepted, self.num_tried, strict=True) if tries)

    @property
    def conditional_rate(self) -> float:
        """Chance that a draft token is accepted after those before it, over all positions; K hardly matters to it.

        This is what `budget.expected_tokens` takes.
        """
        tries = sum(self.num_tried)
        return sum(self.num_accepted) / tries if tries else 0.0

    @property
    def acceptance_rate(self) -> float:
        """Accepted / drafted. Tokens behind a refused one count as drafted, so it falls with K."""
        return sum(self.num_accepted) / self.num_draft_tokens if self.num_draft_tokens else 0.0

    @property
    def draft_ratio(self) -> float:
        """Share of the rounds of sequences in which this source had a draft, 0..1."""
        return self.num_drafts / self.num_rounds if self.num_rounds else 0.0

    @property
    def mean_acceptance_length(self) -> float:
        """1 + accepted / drafts."""
        return 1.0 + (sum(self.num_accepted) / self.num_drafts if self.num_drafts else 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateBin:
    """Estimates of the chance that a draft token survives, against what happened.

    Attributes:
        predicted: mean of the estimates.
        observed: share of these tokens that survived.
        num_tokens: how many.
    """

    predicted: float
    observed: float
    num_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundTimes:
    """A mean decoding round of a cell; what is left of `total_s` beside its parts is bookkeeping.

    Attributes:
        total_s: the whole round.
        forward_s: the target's forward pass.
        draft_s: making or waiting for drafts.
        sampling_s: drawing the target's tokens; 0 where it was not timed.
        num_rows: rows of the pass.
        num_context_tokens: KV entries that the sequences held, summed over them.
    """

    total_s: float
    forward_s: float
    draft_s: float
    sampling_s: float
    num_rows: float
    num_context_tokens: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One measured cell of the sweep: only rounds in which all its sequences decode.

    Attributes:
        workload: class of text.
        concurrency: sequences that decode at once.
        num_speculative_tokens: K, the same in each round; None where the engine chooses.
        tokens_per_s: output of all sequences, median over repeats.
        tpot_s: time per output token of a sequence, median over repeats.
        num_repeats: how often it was measured.
        num_rounds: rounds measured.
        round: mean round.
        mean_acceptance_length: 1 + accepted / rounds of its sequences, those without a draft included.
        acceptance_rate: accepted / drafted; None where nothing was drafted.
    """

    workload: str
    concurrency: int
    num_speculative_tokens: int | None
    tokens_per_s: float
    tpot_s: float
    num_repeats: int
    num_rounds: int
    round: RoundTimes
    mean_acceptance_length: float = 1.0
    acceptance_rate: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """A whole file.

    Attributes:
        version: of the format.
        model_id: the target.
        dtype: of its weights.
        drafter: who drafted: actor, local or ngram.
        machine: where.
        made_at: when it ended, ISO 8601 with time zone.
        is_complete: every cell of the sweep was measured.
        step_times: seconds of a decoding round, drafting left out.
        acceptance: by class of text and source of drafts, from the cells with a fixed K.
        crossover: by class of text, the concurrency from which on no fixed K beats plain decoding; None where one still
            does at the highest concurrency measured.
        points: the measured cells.
        estimates: how well the chances that the engine reckons with were met, by rising estimate.
    """

    version: int
    model_id: str
    dtype: str
    drafter: str
    machine: Machine
    made_at: str
    is_complete: bool
    step_times: StepTimes
    acceptance: tuple[Acceptance, ...] = ()
    crossover: Mapping[str, float | None] = field(default_factory=dict)
    points: tuple[Point, ...] = ()
    estimates: tuple[EstimateBin, ...] = ()

    @property
    def workloads(self) -> tuple[str, ...]:
        """Classes of text, in the order in which they were measured."""
        return tuple(dict.fromkeys(point.workload for point in self.points))


def load_calibration(path: str | Path, *, model_id: str | None = None) -> Calibration:
    """Read a file and check everything in it.

    Args:
        path: of the JSON file.
        model_id: the target that it must be about; None takes any.

    Raises:
        ConfigError: the file cannot be read.
        LoadError: it is no calibration, of another version or model, or a value in it is impossible.
    """
    value = _decode(_read(Path(path)), Path(path))
    if problem := next(problems(value), None):
        raise LoadError(f"calibration {path}: {problem}")
    if model_id is not None and value.model_id != model_id:
        raise LoadError(
            f"calibration {path}: model_id: it was measured with {value.model_id!r}, but the model is {model_id!r}; "
            f"run `outrider calibrate` for it"
        )
    return value


def save_calibration(value: Calibration, path: str | Path) -> None:
    """Write a file; one that is there already is replaced at once, never left half written.

    Rates stand beside the counts that they follow from, for readers; loading looks at the counts alone.

    Raises:
        ConfigError: it cannot be written.
    """
    tree = msgspec.to_builtins(value)
    for entry, shown in zip(value.acceptance, tree["acceptance"], strict=True):
        shown |= {
            "per_position": list(entry.per_position),
            "conditional_rate": entry.conditional_rate,
            "acceptance_rate": entry.acceptance_rate,
            "draft_ratio": entry.draft_ratio,
            "mean_acceptance_length": entry.mean_acceptance_length,
        }
    target = Path(path)
    partial = target.with_name(f".{target.name}.partial")
    try:
        partial.write_bytes(msgspec.json.format(msgspec.json.encode(tree), indent=1) + b"\n")
        partial.replace(target)
    except OSError as error:
        raise ConfigError(
            field="calibration", value=str(path), allowed=f"a file that can be written ({error})"
        ) from None


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(field="calibration", value=str(path), allowed=f"a readable file ({error})") from None
    if len(content) > MAX_FILE_BYTES:
        raise LoadError(f"calibration {path}: more than {MAX_FILE_BYTES >> 20} MiB, so it is none")
    return content


def _decode(content: bytes, path: Path) -> Calibration:
    """Types are checked here, and the version before them: a file of another one may have other fields."""
    try:
        head: Any = json.loads(content)  # unlike msgspec it takes NaN, so that what is said names the field
        version = head.get("version") if isinstance(head, dict) else None
        if version != VERSION or isinstance(version, bool):
            raise LoadError(f"calibration {path}: version: {version!r}, but this Outrider reads version {VERSION}")
        return msgspec.convert(head, Calibration)
    except (ValueError, RecursionError) as error:
        raise LoadError(f"calibration {path}: {error}") from None
