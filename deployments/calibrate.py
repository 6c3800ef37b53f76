"""A calibration from start to end: passes, then the sweep; whatever was measured so far can be had at any time."""

import datetime
import platform
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from autoscaling.calibration_analysis import crossovers
from autoscaling.calibration_fit import PassSample, fit_step_times
from cluster.engine.calibration import VERSION, Calibration, Machine, Point
from cluster.engine.startup import available_threads
from cluster.errors import ConfigError
from deployments.calibrate_drafter import Ledger
from deployments.calibrate_engine import Workbench
from deployments.calibrate_passes import num_passes, row_counts, time_passes
from deployments.calibrate_sweep import Sweep
from deployments.calibrate_tally import Cell, Grid, missing_cells

if TYPE_CHECKING:
    from deployments.app import AppArgs


class CalibrationRun:
    """Measures what a grid asks for on a workbench.

    Args:
        bench: a loaded target and its source of drafts.
        grid: what is swept.
        num_probes: passes of each kind for the step times.
        earlier: what an interrupted run had measured; None starts from nothing.

    Raises:
        ConfigError: the earlier run was about something else.
    """

    def __init__(self, bench: Workbench, grid: Grid, *, num_probes: int, earlier: Calibration | None = None) -> None:
        self._bench, self._grid, self._num_probes = bench, grid, num_probes
        self._machine = _machine(bench)
        self._ledger = Ledger()
        self._groups = missing_cells(grid, earlier.points if earlier else ())
        self._kept: list[Point] = []
        if earlier is not None:
            self._check(earlier)
            self._ledger.add(earlier.acceptance, earlier.estimates)
            again = {_key(cell) for group in self._groups for cell in group}
            self._kept = [point for point in earlier.points if _point_key(point) not in again]
        self._passes: list[PassSample] = []
        self._sweep: Sweep | None = None
        self._is_complete = False
        self._rows = row_counts(grid.largest_round)

    @property
    def num_passes(self) -> int:
        """Passes to be timed."""
        return num_passes(self._rows, self._num_probes)

    @property
    def num_turns(self) -> int:
        """Turns of cells that are to be measured."""
        return sum(map(len, self._groups)) * self._grid.num_turns

    def time_passes(self, on_pass: Callable[[], None]) -> None:
        """Time the target's passes; comes first."""
        self._passes = time_passes(
            self._bench.parts.runner,
            self._rows,
            max_sequences=max(self._grid.concurrency),
            num_probes=self._num_probes,
            on_pass=on_pass,
        )

    def sweep(self, on_turn: Callable[[Cell], None], on_group: Callable[[], None]) -> None:
        """Measure the cells.

        Args:
            on_turn: called before each turn.
            on_group: called when the cells of one class of text and concurrency are done.
        """
        engines = self._bench.engines(fit_step_times(self._passes), self._ledger)
        self._sweep = Sweep(engines, num_turns=self._grid.num_turns, turn_s=self._grid.turn_s)
        for group in self._groups:
            self._sweep.run(group, on_turn)
            on_group()
        self._is_complete = True

    def calibration(self) -> Calibration | None:
        """What was measured so far; None before the passes were timed."""
        if not self._passes:
            return None
        points = self._kept + (self._sweep.points() if self._sweep else [])
        order = {_key(cell): place for place, cell in enumerate(cell for group in self._grid.groups for cell in group)}
        points.sort(key=lambda point: order.get(_point_key(point), len(order)))
        return Calibration(
            version=VERSION,
            model_id=self._bench.parts.model_id,
            dtype=self._bench.parts.runner.dtype,
            drafter=self._bench.drafter,
            machine=self._machine,
            made_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            is_complete=self._is_complete,
            step_times=fit_step_times(self._passes, points),
            acceptance=self._ledger.acceptance(),
            crossover=crossovers(points),
            points=tuple(points),
            estimates=self._ledger.estimates(),
        )

    def _check(self, earlier: Calibration) -> None:
        """An earlier run of another pair, or on another machine, cannot be gone on with."""
        for name, was, now in (
            ("model_id", earlier.model_id, self._bench.parts.model_id),
            ("dtype", earlier.dtype, self._bench.parts.runner.dtype),
            ("drafter", earlier.drafter, self._bench.drafter),
            ("machine", earlier.machine, self._machine),
        ):
            if was != now:
                raise ConfigError(field="--resume", value=was, allowed=f"a calibration with {name} = {now!r}")


def make_grid(
    args: "AppArgs",
    *,
    workloads: tuple[str, ...],
    concurrency: tuple[int, ...],
    lookaheads: tuple[int | None, ...],
    num_turns: int,
    turn_s: float,
) -> Grid:
    """The grid as far as the engine's settings allow it.

    Raises:
        ConfigError: nothing is left of it, or plain decoding or a draft is missing to compare with.
    """
    within = tuple(sorted({count for count in concurrency if count <= args.engine.max_num_seqs}))
    if not within:
        raise ConfigError(
            field="--concurrency", value=concurrency, allowed=f"numbers up to max_num_seqs ({args.engine.max_num_seqs})"
        )
    if 0 not in lookaheads or not any(lookaheads):
        raise ConfigError(field="--lookahead", value=lookaheads, allowed="0 and at least one longer draft")
    fixed = sorted({num_tokens for num_tokens in lookaheads if num_tokens is not None})
    return Grid(
        workloads=workloads,
        concurrency=within,
        lookaheads=(*fixed, None) if None in lookaheads else tuple(fixed),
        num_turns=num_turns,
        turn_s=turn_s,
        max_rows=args.engine.max_num_batched_tokens,
    )


def _key(cell: Cell) -> tuple[str, int, int | None]:
    return cell.workload, cell.concurrency, cell.num_speculative_tokens


def _point_key(point: Point) -> tuple[str, int, int | None]:
    return point.workload, point.concurrency, point.num_speculative_tokens


def _machine(bench: Workbench) -> Machine:
    return Machine(num_cores=available_threads(), num_threads=bench.num_threads, cpu=_cpu_name(), gpu=_gpu_name())


def _cpu_name() -> str:
    path = Path("/proc/cpuinfo")
    if path.exists():
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()


def _gpu_name() -> str | None:
    """Name of the first GPU, where NVIDIA's library is installed and finds one."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        name = pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(0))
    except pynvml.NVMLError:
        return None
    return name.decode() if isinstance(name, bytes) else str(name)
