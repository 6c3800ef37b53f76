"""The drafter around a head, in whole engines: right hidden states, right noise, the same tokens, bounded memory."""

from typing import Any

import pytest
import torch

from cluster.engine.budget import DraftCost
from cluster.engine.drafters.base import Wanted
from cluster.engine.drafters.best_draft import BestDraft
from cluster.engine.drafters.head_drafter import HeadDrafter
from cluster.engine.drafters.head_features import FeatureStore
from cluster.engine.drafters.ngram import NgramDrafter
from cluster.engine.engine import Engine
from cluster.engine.sequence import Sequence
from cluster.types import Request, Role, SpeculationParams, StepStats
from tests.cluster.engine.drafters.head_harness import FIRST_TOKEN, KnowingHead
from tests.cluster.engine.engine_harness import (
    OFF,
    Result,
    drain,
    make_engine,
    random_prompt,
    request,
    run,
    run_alone,
)

FREE = DraftCost.free()
SAMPLING: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "temperature": {"temperature": 1.0},
    "everything": {
        "temperature": 0.9,
        "top_k": 40,
        "top_p": 0.95,
        "repetition_penalty": 1.2,
        "frequency_penalty": 0.3,
        "min_tokens": 6,
        "logit_bias": ((7, 2.0), (2, 4.0)),
    },
}


def fixed_engine(**settings: Any) -> Engine:
    """An engine that verifies whole drafts: a random target is sure of nothing, so its head never promises much."""
    return make_engine(draft_budget="fixed", **settings)


def make_drafter(head: KnowingHead | None = None, **settings: Any) -> HeadDrafter:
    return HeadDrafter(
        head or KnowingHead(),
        **{"max_draft_tokens": 4, "cost": FREE, "eos_token_ids": frozenset({2}), **settings},
    )


def prompt(seed: int, length: int) -> tuple[int, ...]:
    return (FIRST_TOKEN, *random_prompt(seed, length - 1))


def requests_of(name: str, count: int = 4, **sampling: Any) -> list[Request]:
    return [
        request(f"r{i}", prompt(i, 5 + 20 * i), seed=i, **{"max_tokens": 24, **SAMPLING[name], **sampling})
        for i in range(count)
    ]


def all_the_same(results: dict[str, Result], requests: list[Request]) -> bool:
    return all(results[item.request_id].same_as(run_alone(item)) for item in requests)


def counts(steps: list[StepStats]) -> tuple[int, int]:
    """Tokens drafted and accepted."""
    return sum(step.num_draft_tokens for step in steps), sum(sum(step.accepted_per_position) for step in steps)


@pytest.mark.parametrize("name", SAMPLING)
def test_a_head_that_knows_the_target_is_always_accepted(name: str) -> None:
    """It also checks that the hidden state of every row is the one of that row."""
    head = KnowingHead()
    steps: list[StepStats] = []
    drafter, requests = make_drafter(head), requests_of(name, ignore_eos=True)
    results = run(fixed_engine(drafter=drafter, num_speculative_tokens=4, prefill_chunk_tokens=32), requests, steps)
    drafted, accepted = counts(steps)
    assert drafted > 50
    assert accepted == drafted
    assert all_the_same(results, requests)
    assert (drafter.num_sequences, drafter.num_feature_bytes, head.open_states) == (0, 0, [])


@pytest.mark.parametrize("name", SAMPLING)
def test_a_head_that_errs_costs_no_token(name: str) -> None:
    steps: list[StepStats] = []
    drafter, requests = make_drafter(KnowingHead(wrong_every=3)), requests_of(name)
    results = run(fixed_engine(drafter=drafter, num_speculative_tokens=4), requests, steps)
    drafted, accepted = counts(steps)
    assert 0 < accepted < drafted
    assert all_the_same(results, requests)
    assert (drafter.num_sequences, drafter.num_feature_bytes) == (0, 0)


def test_preempted_sequences_are_drafted_for_again_and_read_no_row_twice() -> None:
    steps: list[StepStats] = []
    drafter, requests = (
        make_drafter(KnowingHead(wrong_every=5)),
        [request(f"r{i}", prompt(i, 40), max_tokens=60, seed=i, ignore_eos=True) for i in range(4)],
    )
    engine = fixed_engine(drafter=drafter, num_speculative_tokens=4, num_blocks=8, enable_prefix_cache=False)
    results = run(engine, requests, steps)
    assert sum(step.num_preempted for step in steps) > 0
    assert counts(steps)[1] > 50
    assert all_the_same(results, requests)


def test_a_prompt_from_the_prefix_cache_is_drafted_for_from_the_rows_that_were_computed() -> None:
    engine = fixed_engine(drafter=ObliviousDrafter.make(), num_speculative_tokens=4)
    text = prompt(7, 100)
    first, second = (request(name, text, max_tokens=20, ignore_eos=True) for name in "ab")
    steps: list[StepStats] = []
    results = run(engine, [first]) | run(engine, [second], steps)
    assert results["b"].num_cached_tokens >= 64
    assert counts(steps)[0] > 0
    assert all_the_same(results, [first, second])


class ObliviousHead(KnowingHead):
    """As `KnowingHead`, for sequences whose first rows it never sees: drafts the same token over and over."""

    def _read(self, rows: Any) -> Any:
        self.num_rows += len(rows.token_ids)
        return self._logits(rows.state)

    def _logits(self, state: Any) -> Any:
        return -torch.arange(512).float()[None].numpy()


class ObliviousDrafter:
    @staticmethod
    def make() -> HeadDrafter:
        return make_drafter(ObliviousHead())


def test_in_role_batch_nothing_is_kept_and_drafts_come_back_after_it() -> None:
    drafter = make_drafter(ObliviousHead())
    engine = fixed_engine(drafter=drafter, num_speculative_tokens=4)
    requests = [request(f"r{i}", prompt(i, 30), max_tokens=40, ignore_eos=True) for i in range(3)]
    results: dict[str, Result] = {}
    for item in requests:
        engine.add(item)
    seen: dict[str, list[int]] = {"before": [], "during": [], "after": []}
    step_some(engine, results, seen["before"])
    engine.set_role(Role.BATCH, max_num_seqs=16)
    assert (drafter.num_sequences, drafter.num_feature_bytes) == (0, 0)
    assert engine._reader is None
    step_some(engine, results, seen["during"])
    assert drafter.num_feature_bytes == 0
    engine.set_role(Role.SPECULATIVE, max_num_seqs=16)
    step_some(engine, results, seen["after"])
    assert [sum(counts) > 0 for counts in seen.values()] == [True, False, True]
    assert all_the_same(drain(engine, results), requests)


def step_some(engine: Engine, results: dict[str, Result], drafted: list[int]) -> None:
    for _ in range(5):
        for output in engine.step():
            results.setdefault(output.request_id, Result()).take(output)
        drafted.append(engine.last_step.num_draft_tokens)


def test_an_aborted_request_leaves_nothing_behind() -> None:
    head = KnowingHead()
    drafter = make_drafter(head)
    engine = fixed_engine(drafter=drafter, num_speculative_tokens=4)
    for item in requests_of("greedy", 2, ignore_eos=True):
        engine.add(item)
    for _ in range(4):
        engine.step()
    assert len(head.open_states) == 2
    engine.abort("r0")
    engine.abort("r1")
    drain(engine)
    assert (drafter.num_sequences, drafter.num_feature_bytes, head.open_states) == (0, 0, [])


def test_sequences_that_want_no_draft_of_the_head_cost_no_memory() -> None:
    drafter = make_drafter()
    both = BestDraft((NgramDrafter(max_draft_tokens=4), None), (drafter, drafter.promise))
    engine = fixed_engine(drafter=both, num_speculative_tokens=4)
    off = request("off", prompt(0, 30), max_tokens=8, speculation=OFF)
    lookup = request("lookup", prompt(1, 30), max_tokens=8, speculation=SpeculationParams(drafter="ngram"))
    for item in (off, lookup):
        engine.add(item)
    for _ in range(3):
        engine.step()
        assert drafter.num_feature_bytes == 0
    drain(engine)


def test_a_request_may_name_the_head_and_the_best_draft_wins_otherwise() -> None:
    drafter = make_drafter()
    both = BestDraft((NgramDrafter(max_draft_tokens=4), None), (drafter, drafter.promise))
    requests = [
        request("named", prompt(0, 30), max_tokens=20, speculation=SpeculationParams(drafter="knowing_head")),
        request("free", prompt(1, 30), max_tokens=20),
    ]
    steps: list[StepStats] = []
    results = run(fixed_engine(drafter=both, num_speculative_tokens=4), requests, steps)
    assert counts(steps)[1] > 20
    assert all_the_same(results, requests)


def test_beyond_the_length_limit_a_sequence_just_stops_drafting() -> None:
    drafter = make_drafter(KnowingHead(max_len=40))
    long, short = request("long", prompt(0, 30), max_tokens=40, ignore_eos=True), request("short", prompt(1, 5))
    results = run(fixed_engine(drafter=drafter, num_speculative_tokens=4), [long, short])
    assert all_the_same(results, [long, short])
    stats = results["long"].speculation
    assert stats is not None
    assert 0 < stats.num_draft_tokens <= 12


def test_without_room_sequences_take_turns_and_all_texts_stay_right() -> None:
    head = KnowingHead(max_open=2)
    requests = requests_of("greedy", 4, ignore_eos=True)
    steps: list[StepStats] = []
    results = run(fixed_engine(drafter=make_drafter(head), num_speculative_tokens=4), requests, steps)
    assert counts(steps)[1] > 20
    assert all_the_same(results, requests)


@pytest.mark.parametrize("method", ["begin", "step", "open"])
def test_a_head_that_raises_costs_drafts_and_nothing_else(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("the head is broken")

    head, requests = KnowingHead(), requests_of("temperature", 2, ignore_eos=True)
    monkeypatch.setattr(head, method, fail)
    drafter = make_drafter(head)
    results = run(fixed_engine(drafter=drafter, num_speculative_tokens=4), requests, drafter_works=False)
    assert all_the_same(results, requests)
    assert (drafter.num_sequences, drafter.num_feature_bytes, head.open_states) == (0, 0, [])


def sequence_of(request_id: str, text: tuple[int, ...]) -> Sequence:
    return Sequence.from_request(request(request_id, text, max_tokens=100))


def test_without_the_hidden_state_of_its_last_row_a_sequence_gets_no_draft() -> None:
    drafter, sequence = make_drafter(), sequence_of("a", prompt(0, 10))
    want = Wanted(sequence=sequence, max_tokens=4)
    assert drafter.promise(want) == 0.0
    assert drafter.propose([want]) == {}


def test_refused_rows_are_replaced_and_rows_behind_a_gap_begin_anew() -> None:
    store = FeatureStore(1 << 20)
    store.put("a", 0, rows(0, 10))
    store.put("a", 6, rows(6, 9))
    assert store.num_ready("a", 9) == 9
    assert store.num_ready("a", 10) == 0
    first, taken = store.take("a", 8)
    assert (first, taken[:, 0].tolist()) == (0, [0, 1, 2, 3, 4, 5, 6, 7])
    store.put("a", 8, rows(8, 9))
    store.put("a", 12, rows(12, 14))
    assert store.num_ready("a", 14) == 2
    store.drop("a")
    assert store.num_bytes == 0


def test_rows_that_come_one_by_one_are_read_together() -> None:
    store = FeatureStore(1 << 20)
    for position in range(5, 205):
        store.put("a", position, rows(position, position + 1))
    assert store.num_bytes == rows(0, 200).bfloat16().nbytes
    store.put("a", 190, rows(190, 195))
    first, taken = store.take("a", 193)
    assert (first, taken[:, 0].tolist()) == (5, list(range(5, 193)))
    assert store.num_bytes == 0


def test_hidden_states_stay_within_their_bound_and_the_oldest_go_first() -> None:
    store = FeatureStore(20 * rows(0, 1).bfloat16().nbytes)
    for start in range(0, 16, 4):
        store.put("old", start, rows(start, start + 4))
    store.put("new", 0, rows(0, 10))
    assert store.num_bytes <= 20 * rows(0, 1).bfloat16().nbytes
    assert (store.num_ready("old", 16), store.num_ready("new", 10)) == (8, 10)
    assert store.take("old", 16)[0] == 8


def rows(start: int, end: int) -> torch.Tensor:
    """Rows that hold their position."""
    return torch.arange(start, end).float()[:, None].repeat(1, 8)
