"""Measures the cells of a calibration: sequences that decode together, while K changes from turn to turn."""

import time
from collections.abc import Callable
from collections.abc import Sequence as Seq

from cluster.engine.calibration import Point
from cluster.engine.engine import Engine
from cluster.errors import ConfigError
from cluster.types import Request, SamplingParams
from deployments.calibrate_engine import Engines
from deployments.calibrate_prompts import workload_prompt
from deployments.calibrate_tally import Cell, Tally, Turn

MAX_TOKENS = 192
"""Output of each sequence; the classes of text are not like themselves any more further on."""

SEQUENCE_TOKENS = 512
"""KV capacity that a sequence needs, with a tokenizer of a usual size."""

NUM_PROMPTS = 64
"""Different prompts of each class."""

_LEAST_TOKENS = 32
_LEAST_ROUNDS = 2
"""Of a turn, however long they take."""


class Batch:
    """Sequences of one engine that decode together, and start anew before one of them ends.

    Args:
        engine: without work.
        prompts: of one class of text; taken in turn.
        concurrency: sequences.
        max_tokens: output of each.
        margin_tokens: a batch starts anew when a sequence has fewer than these left.
    """

    def __init__(
        self,
        engine: Engine,
        prompts: Seq[tuple[int, ...]],
        concurrency: int,
        *,
        max_tokens: int,
        margin_tokens: int,
    ) -> None:
        self._engine, self._prompts, self._concurrency = engine, prompts, concurrency
        self._max_tokens, self._margin_tokens = max_tokens, margin_tokens
        self._num_outputs: dict[str, int] = {}
        self._num_started = 0

    @property
    def is_over(self) -> bool:
        """A sequence is about to end, or none was started."""
        return max(self._num_outputs.values(), default=self._max_tokens) > self._max_tokens - self._margin_tokens

    def start(self) -> None:
        """Give up the sequences, and let as many others read their prompts."""
        self.stop()
        for _ in range(self._concurrency):
            prompt = self._prompts[self._num_started % len(self._prompts)]
            request_id = f"calibrate-{self._num_started}"
            self._num_started += 1
            sampling = SamplingParams(
                max_tokens=self._max_tokens, seed=self._num_started, temperature=0.0, ignore_eos=True
            )
            self._engine.add(Request(request_id=request_id, prompt_token_ids=prompt, sampling=sampling))
            self._num_outputs[request_id] = 0
        while self._engine.has_work and not all(self._num_outputs.values()):
            self.step()

    def stop(self) -> None:
        """Give up the sequences."""
        for request_id in self._num_outputs:
            self._engine.abort(request_id)
        while self._engine.has_work:
            self._engine.step()
        self._num_outputs.clear()

    def step(self) -> dict[str, int]:
        """Run a round; returns new tokens by sequence."""
        counts = {output.request_id: len(output.token_ids) for output in self._engine.step()}
        for request_id, count in counts.items():
            self._num_outputs[request_id] += count
        return counts


class Sweep:
    """Measures groups of cells.

    Args:
        engines: without work.
        num_turns: how often each cell is measured.
        turn_s: how long each time.

    Attributes:
        tallies: what was measured in each cell.
    """

    def __init__(self, engines: Engines, *, num_turns: int, turn_s: float) -> None:
        self.tallies: dict[Cell, Tally] = {}
        self._engines, self._num_turns, self._turn_s = engines, num_turns, turn_s
        self._prompts: dict[str, list[tuple[int, ...]]] = {}

    def run(self, group: Seq[Cell], on_turn: Callable[[Cell], None]) -> None:
        """Measure the cells of one class of text and concurrency, one after the other and again.

        Args:
            group: the cells.
            on_turn: called before each turn.
        """
        first = group[0]
        batches = {
            is_chosen: self._batch(self._engines.chosen if is_chosen else self._engines.fixed, first)
            for is_chosen in dict.fromkeys(cell.num_speculative_tokens is None for cell in group)
        }
        self._engines.gauge.workload = first.workload
        for turn in range(self._num_turns):
            start = turn % len(group)
            for cell in (*group[start:], *group[:start]):
                on_turn(cell)
                self._take_turn(batches[cell.num_speculative_tokens is None], cell)
        for batch in batches.values():
            batch.stop()

    def points(self) -> list[Point]:
        """Of all cells that were measured at least once."""
        found = (tally.point(cell) for cell, tally in self.tallies.items())
        return [point for point in found if point is not None]

    def _batch(self, engine: Engine, cell: Cell) -> Batch:
        if cell.workload not in self._prompts:
            prompts = [workload_prompt(cell.workload, index, engine.tokenizer) for index in range(NUM_PROMPTS)]
            self._prompts[cell.workload] = prompts
        prompts = self._prompts[cell.workload]
        longest = max(map(len, prompts))
        max_tokens = min(MAX_TOKENS, engine.max_model_len - longest)
        margin = 2 * (1 + engine.config.num_speculative_tokens)
        if max_tokens < _LEAST_TOKENS + margin:
            allowed = f"at least {longest + _LEAST_TOKENS + margin}: prompts of class {cell.workload} are that long"
            raise ConfigError(field="engine.max_model_len", value=engine.max_model_len, allowed=allowed)
        needed, capacity = cell.concurrency * (longest + max_tokens + margin), self._engines.num_kv_tokens
        if needed > capacity:
            allowed = f"at least {2 * needed} for {cell.concurrency} sequences of class {cell.workload}"
            raise ConfigError(field="engine.kv_cache_tokens", value=2 * capacity, allowed=allowed)
        return Batch(engine, prompts, cell.concurrency, max_tokens=max_tokens, margin_tokens=margin)

    def _take_turn(self, batch: Batch, cell: Cell) -> None:
        """Measure a cell for a while. The first round only brings the drafter up to date."""
        self._engines.gauge.num_speculative_tokens = cell.num_speculative_tokens or 0
        engine = self._engines.chosen if cell.num_speculative_tokens is None else self._engines.fixed
        tally, turn = self.tallies.setdefault(cell, Tally()), Turn()
        tally.turns.append(turn)
        num_rounds, is_behind = 0, True
        while num_rounds < _LEAST_ROUNDS or turn.duration_s < self._turn_s:
            if batch.is_over:
                batch.start()
                is_behind = True
            if is_behind:
                batch.step()
                is_behind = False
            started_s = time.perf_counter()
            counts = batch.step()
            turn.duration_s += time.perf_counter() - started_s
            for request_id, count in counts.items():
                turn.num_tokens[request_id] = turn.num_tokens.get(request_id, 0) + count
            tally.add_round(engine.last_step, cell.concurrency)
            num_rounds += 1
