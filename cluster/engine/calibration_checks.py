"""What can be wrong in a calibration file beyond its types."""

import math
from collections.abc import Iterator
from dataclasses import fields
from typing import TYPE_CHECKING

from cluster.engine.step_time import StepTimes

if TYPE_CHECKING:
    from cluster.engine.calibration import Acceptance, Calibration, Point


def problems(value: "Calibration") -> Iterator[str]:
    """What is impossible in a calibration whose types are right: one line for each, beginning with the field."""
    if value.machine.num_cores < 1 or value.machine.num_threads < 1:
        yield f"machine: {value.machine.num_cores} cores and {value.machine.num_threads} threads; expected at least 1"
    yield from _step_time_problems("step_times", value.step_times)
    for index, entry in enumerate(value.acceptance):
        yield from _acceptance_problems(f"acceptance[{index}]", entry)
    for workload, concurrency in value.crossover.items():
        if concurrency is not None and not 1 <= concurrency < math.inf:
            yield f"crossover.{workload}: {concurrency}; expected at least 1"
    places: dict[tuple[str, int, int | None], int] = {}
    for index, point in enumerate(value.points):
        yield from _point_problems(f"points[{index}]", point)
        first = places.setdefault((point.workload, point.concurrency, point.num_speculative_tokens), index)
        if first != index:
            yield f"points[{index}]: the same cell as points[{first}]"
    for index, estimate in enumerate(value.estimates):
        yield from _range_problem(f"estimates[{index}].predicted", estimate.predicted, 0, 1)
        yield from _range_problem(f"estimates[{index}].observed", estimate.observed, 0, 1)
        yield from _range_problem(f"estimates[{index}].num_tokens", estimate.num_tokens, 1, math.inf)


def _step_time_problems(name: str, times: StepTimes) -> Iterator[str]:
    for part in ("context_s", "sequence_s", "draft_row_s"):
        yield from _range_problem(f"{name}.{part}", getattr(times, part), 0, math.inf)
    if not times.knots or times.knots[0][0] != 1:
        yield f"{name}.knots: expected pairs of rows and seconds, from 1 row on"
    last_rows, last_s = 0, 0.0
    for index, (num_rows, seconds) in enumerate(times.knots):
        if num_rows <= last_rows:
            yield f"{name}.knots[{index}]: {num_rows} rows after {last_rows}; expected rising numbers of rows"
        if not max(last_s, 1e-9) <= seconds < math.inf:
            yield f"{name}.knots[{index}]: {seconds} s after {last_s} s; expected seconds that never fall"
        last_rows, last_s = num_rows, seconds


def _acceptance_problems(name: str, entry: "Acceptance") -> Iterator[str]:
    if len(entry.num_tried) != len(entry.num_accepted):
        yield f"{name}: {len(entry.num_tried)} positions tried, but {len(entry.num_accepted)} accepted"
        return
    before = entry.num_drafts
    if not 0 <= before <= entry.num_rounds:
        yield f"{name}.num_drafts: {before} in {entry.num_rounds} rounds"
    for index, (tries, hits) in enumerate(zip(entry.num_tried, entry.num_accepted, strict=True)):
        if not 0 <= hits <= tries <= before:
            yield f"{name}.num_accepted[{index}]: {hits} of {tries} tried, of {before} that came so far"
        before = hits
    if entry.num_draft_tokens < sum(entry.num_tried):
        yield f"{name}.num_draft_tokens: {entry.num_draft_tokens}; expected at least {sum(entry.num_tried)}"


def _point_problems(name: str, point: "Point") -> Iterator[str]:
    for count in ("concurrency", "num_repeats", "num_rounds"):
        yield from _range_problem(f"{name}.{count}", getattr(point, count), 1, 1 << 40)
    if point.num_speculative_tokens is not None:
        yield from _range_problem(f"{name}.num_speculative_tokens", point.num_speculative_tokens, 0, 64)
    for rate in ("tokens_per_s", "tpot_s"):
        yield from _range_problem(f"{name}.{rate}", getattr(point, rate), 1e-9, math.inf)
    for time in fields(point.round):
        least = 1e-9 if time.name == "total_s" else 0
        yield from _range_problem(f"{name}.round.{time.name}", getattr(point.round, time.name), least, math.inf)
    yield from _range_problem(f"{name}.mean_acceptance_length", point.mean_acceptance_length, 1, 65)
    if point.acceptance_rate is not None:
        yield from _range_problem(f"{name}.acceptance_rate", point.acceptance_rate, 0, 1)


def _range_problem(name: str, value: float, low: float, high: float) -> Iterator[str]:
    """NaN is out of every range, and so is infinity."""
    if not low <= value <= high or math.isinf(value):
        yield f"{name}: {value}; expected {f'{low} to {high}' if high < math.inf else f'at least {low}'}"
