"""The parts of `outrider calibrate` that need no model: grid, tallies, counted drafts, prompts, timed passes."""

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import replace

import pytest
import torch

from cluster.config import EngineConfig
from cluster.engine.drafters.base import Draft, Wanted
from cluster.engine.engine import Engine
from cluster.engine.model_input import ModelInput
from cluster.engine.plan import ScheduledSequence
from cluster.engine.sequence import Sequence
from cluster.errors import ConfigError
from cluster.types import Request, SamplingParams, StepStats
from deployments.app import AppArgs
from deployments.calibrate import make_grid
from deployments.calibrate_drafter import GaugedDrafter, Ledger
from deployments.calibrate_engine import SharedRunner
from deployments.calibrate_passes import num_passes, row_counts, time_passes
from deployments.calibrate_prompts import WORKLOADS, workload_prompt
from deployments.calibrate_tally import Cell, Grid, Tally, Turn, missing_cells
from tests.calibrations import make_point
from tests.cluster.engine.engine_harness import make_engine, random_prompt, request, tiny_runner, tokenizer


class ScriptedDrafter:
    """Drafts as long as it may."""

    name = "scripted"

    def __init__(self, confidence: float | None) -> None:
        self.confidence = confidence
        self.calls: list[str] = []

    def propose(self, wanted: Seq[Wanted]) -> Mapping[str, Draft]:
        self.calls.append("propose")
        return {want.sequence.request_id: self.draft(want.max_tokens) for want in wanted}

    def draft(self, num_tokens: int) -> Draft:
        confidences = () if self.confidence is None else (self.confidence,) * num_tokens
        return Draft(token_ids=tuple(range(num_tokens)), source=self.name, confidences=confidences)

    def begin_round(self, items: Seq[ScheduledSequence]) -> None:
        self.calls.append("begin_round")

    def observe(self, sequence: Sequence, draft: Draft, num_accepted: int) -> None:
        self.calls.append("observe")

    def forget(self, request_id: str) -> None:
        self.calls.append("forget")

    def close(self) -> None:
        self.calls.append("close")


def want(max_tokens: int, request_id: str = "r") -> Wanted:
    sampling = SamplingParams(max_tokens=64, seed=0)
    request = Request(request_id=request_id, prompt_token_ids=(1, 2, 3), sampling=sampling)
    return Wanted(sequence=Sequence.from_request(request), max_tokens=max_tokens)


def gauged(confidence: float | None = None) -> tuple[GaugedDrafter, Ledger, ScriptedDrafter]:
    inner, ledger = ScriptedDrafter(confidence), Ledger()
    gauge = GaugedDrafter(inner, ledger)
    gauge.workload = "copy"
    return gauge, ledger, inner


def test_drafts_are_as_long_as_the_gauge_says_and_never_longer_than_wanted() -> None:
    gauge, _, _ = gauged()
    gauge.num_speculative_tokens = 4
    assert len(gauge.propose([want(8)])["r"].token_ids) == 4
    assert len(gauge.propose([want(2)])["r"].token_ids) == 2


def test_at_k_0_the_drafter_is_not_even_asked() -> None:
    gauge, ledger, inner = gauged()
    assert gauge.propose([want(8)]) == {}
    assert inner.calls == []
    assert ledger.num_rounds == {}


def test_everything_else_reaches_the_drafter() -> None:
    gauge, _, inner = gauged()
    gauge.begin_round([])
    gauge.forget("r")
    gauge.close()
    assert (gauge.name, inner.calls) == ("scripted", ["begin_round", "forget", "close"])


def test_acceptance_is_counted_by_position_only_where_a_token_was_tried() -> None:
    gauge, ledger, inner = gauged()
    gauge.num_speculative_tokens = 3
    for num_accepted in (0, 1, 3):
        gauge.propose([want(3)])
        gauge.observe(want(3).sequence, inner.draft(3), num_accepted)
    gauge.propose([want(3)])  # this time nothing of it was verified
    (entry,) = ledger.acceptance()
    assert (entry.workload, entry.source, entry.num_rounds, entry.num_drafts) == ("copy", "scripted", 4, 3)
    assert (entry.num_tried, entry.num_accepted, entry.num_draft_tokens) == ((3, 2, 1), (2, 1, 1), 9)
    assert (entry.draft_ratio, entry.acceptance_rate) == pytest.approx((0.75, 4 / 9))


def test_estimates_are_compared_with_what_happened_before_they_learn_from_it() -> None:
    gauge, ledger, inner = gauged(confidence=0.7)
    gauge.observe(want(2).sequence, inner.draft(2), 1)
    (only,) = ledger.estimates()
    assert (only.num_tokens, only.observed) == (2, 0.5)
    assert only.predicted == pytest.approx(0.7, abs=0.01)


def test_drafts_without_confidences_count_for_acceptance_alone() -> None:
    gauge, ledger, inner = gauged()
    gauge.observe(want(2).sequence, inner.draft(2), 2)
    assert ledger.estimates() == ()
    assert len(ledger.acceptance()) == 1


def test_what_was_counted_earlier_is_added_to() -> None:
    gauge, ledger, inner = gauged(confidence=0.7)
    gauge.num_speculative_tokens = 2
    gauge.propose([want(2)])
    gauge.observe(want(2).sequence, inner.draft(2), 1)
    again = Ledger()
    again.add(ledger.acceptance(), ledger.estimates())
    assert again.acceptance() == ledger.acceptance()
    assert again.estimates() == ledger.estimates()
    again.count_draft("copy", "scripted", 2, 2)
    assert again.acceptance()[0].num_accepted == (2, 1)


def grid(**changes: object) -> Grid:
    values: dict[str, object] = {
        "workloads": ("copy", "chat"), "concurrency": (1, 8), "lookaheads": (0, 4, None), "num_turns": 2, "turn_s": 0.1,
        "max_rows": 64,
    }  # fmt: skip
    return Grid(**{**values, **changes})  # type: ignore[arg-type]


def test_a_group_holds_every_k_of_one_class_and_concurrency() -> None:
    groups = grid().groups
    assert [(group[0].workload, group[0].concurrency) for group in groups] == [
        ("copy", 1), ("copy", 8), ("chat", 1), ("chat", 8),
    ]  # fmt: skip
    assert [[cell.num_speculative_tokens for cell in group] for group in groups] == [[0, 4, None]] * 4
    assert (grid().longest_draft, grid().largest_round) == (4, 40)


def test_cells_with_more_rows_than_a_round_takes_are_left_out() -> None:
    assert [cell.num_speculative_tokens for cell in grid(max_rows=39).groups[1]] == [0, None]
    assert grid(max_rows=39).largest_round == 8


def test_cells_that_were_measured_often_enough_are_not_measured_again() -> None:
    done = [make_point("copy", 1, k, num_repeats=2) for k in (0, 4, None)]
    left = missing_cells(grid(), done)
    assert [group[0].concurrency for group in left] == [8, 1, 8]
    assert len(missing_cells(grid(), [replace(done[0], num_repeats=1), *done[1:]])) == 4
    assert len(missing_cells(grid(), ())) == 4


def test_a_point_is_the_median_of_its_turns_and_the_mean_of_its_rounds() -> None:
    tally = Tally(turns=[Turn(num_tokens={"a": n, "b": n}, duration_s=1.0) for n in (10, 20, 60)])
    for draft_tokens, accepted in ((4, (1, 1)), (0, ())):
        stats = StepStats(
            duration_s=0.2, forward_s=0.1, num_rows=2 + draft_tokens, num_draft_tokens=draft_tokens,
            accepted_per_position=accepted, draft_wait_s=0.02, num_context_tokens=100,
        )  # fmt: skip
        tally.add_round(stats, num_sequences=2)
    point = tally.point(Cell(workload="copy", concurrency=2, num_speculative_tokens=2))
    assert point is not None
    assert (point.tokens_per_s, point.tpot_s) == pytest.approx((40.0, 0.05))
    assert (point.num_repeats, point.num_rounds) == (3, 2)
    assert (point.round.total_s, point.round.num_rows, point.round.num_context_tokens) == (0.2, 4.0, 100.0)
    assert (point.mean_acceptance_length, point.acceptance_rate) == (1.5, 0.5)


def test_a_cell_that_was_interrupted_before_its_first_round_gives_no_point() -> None:
    cell = Cell(workload="copy", concurrency=2, num_speculative_tokens=2)
    assert Tally().point(cell) is None
    assert Tally(turns=[Turn()]).point(cell) is None


@pytest.mark.parametrize("workload", WORKLOADS)
def test_prompts_of_a_class_differ_and_are_the_same_in_each_run(workload: str) -> None:
    prompts = [workload_prompt(workload, index, tokenizer()) for index in range(64)]
    assert len(set(prompts)) == 64
    assert prompts[5] == workload_prompt(workload, 5, tokenizer())
    assert max(map(len, prompts)) < 512


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"concurrency": (128,)}, "--concurrency"),
        ({"lookaheads": (2, 4)}, "--lookahead"),
        ({"lookaheads": (0, None)}, "--lookahead"),
    ],
)
def test_a_grid_with_nothing_to_compare_is_refused(changes: dict[str, tuple[int, ...]], field: str) -> None:
    values: dict[str, tuple[int | None, ...]] = {"concurrency": (1,), "lookaheads": (0, 4), **changes}
    with pytest.raises(ConfigError, match=field):
        make_grid(AppArgs(), workloads=("copy",), num_turns=1, turn_s=0.1, **values)  # type: ignore[arg-type]


def test_concurrency_beyond_what_the_engine_takes_is_left_out() -> None:
    args = AppArgs(engine=EngineConfig(max_num_seqs=8))
    made = make_grid(
        args, workloads=("copy",), concurrency=(16, 8, 1, 8), lookaheads=(None, 4, 0), num_turns=1, turn_s=0.1
    )
    assert (made.concurrency, made.lookaheads) == ((1, 8), (0, 4, None))


class CheckingRunner:
    """Notes the passes it is asked for, and refuses rows that overlap or lie outside the KV cache."""

    vocab_size, num_kv_blocks, block_size, max_model_len = 8, 24, 32, 512
    dtype, numerics = "float32", "invariant"

    def __init__(self) -> None:
        self.passes: list[tuple[int, int]] = []

    def forward(self, batch: ModelInput) -> torch.Tensor:
        slots = batch.slot_mapping
        assert len(set(slots.tolist())) == len(slots)
        assert slots.max() < self.num_kv_blocks * self.block_size
        rows = zip(batch.row_sequences, batch.positions, slots, strict=True)
        for sequence, position, slot in rows:
            assert batch.block_tables[sequence, position // self.block_size] == slot // self.block_size
            assert slot % self.block_size == position % self.block_size
        for sequence in set(batch.row_sequences.tolist()):
            positions = batch.positions[batch.row_sequences == sequence].tolist()
            assert positions[0] in (32, 256)
            assert positions == list(range(positions[0], positions[0] + len(positions)))
        self.passes.append((len(slots), len(batch.block_tables)))
        return torch.zeros(len(slots), self.vocab_size)

    def close(self) -> None: ...


def test_passes_are_valid_rows_of_as_many_sequences_as_decode_at_once() -> None:
    runner, ticks = CheckingRunner(), [0]

    def tick() -> None:
        ticks[0] += 1

    samples = time_passes(runner, (1, 2, 5, 12), max_sequences=2, num_probes=3, on_pass=tick)
    assert set(runner.passes) == {(1, 1), (2, 2), (5, 2), (12, 2)}
    assert ticks[0] == len(runner.passes) == num_passes((1, 2, 5, 12), 3) == 24
    assert {(sample.num_rows, sample.num_context_tokens) for sample in samples} >= {(1, 32), (1, 256), (12, 64)}
    assert all(sample.seconds > 0 for sample in samples)


def test_passes_that_do_not_fit_into_the_kv_cache_are_left_out() -> None:
    samples = time_passes(CheckingRunner(), (1, 8), max_sequences=8, num_probes=1, on_pass=lambda: None)
    assert {(sample.num_rows, sample.num_context_tokens) for sample in samples} == {(1, 32), (1, 256), (8, 256)}


def test_two_engines_hold_sequences_on_one_runner_without_touching_each_others_kv() -> None:
    runner, prompts = tiny_runner(64), [random_prompt(seed, 70) for seed in (1, 2)]
    halves = [SharedRunner(runner, first_block=first, num_kv_blocks=32) for first in (0, 32)]
    alone = [outputs([make_engine(runner=runner)], [prompt]) for prompt in prompts]
    engines = [make_engine(runner=half, num_speculative_tokens=4) for half in halves]
    assert outputs(engines, prompts) == [text for (text,) in alone]


def outputs(engines: list[Engine], prompts: list[tuple[int, ...]]) -> list[list[int]]:
    """Greedy output of a prompt on each engine, rounds taking turns."""
    texts: list[list[int]] = [[] for _ in engines]
    for engine, prompt in zip(engines, prompts, strict=True):
        engine.add(request("r", prompt, max_tokens=24, ignore_eos=True))
    while any(engine.has_work for engine in engines):
        for engine, text in zip(engines, texts, strict=True):
            for output in engine.step():
                text.extend(output.token_ids)
    return texts


def test_row_counts_end_with_the_largest_round() -> None:
    assert row_counts(1) == (1,)
    assert row_counts(64) == (1, 2, 4, 8, 16, 32, 64)
    assert row_counts(40) == (1, 2, 4, 8, 16, 32, 40)
