"""Changes of role between rounds: no speculation in role batch, the same texts, and nothing left behind."""

import random
from collections import Counter
from collections.abc import Mapping
from collections.abc import Sequence as Seq
from functools import cache
from typing import Any

import pytest

from cluster.engine.drafters.base import Draft, Wanted
from cluster.engine.drafters.draft_model import DraftModelDrafter
from cluster.engine.engine import Engine
from cluster.engine.plan import ScheduledSequence
from cluster.engine.sequence import Sequence
from cluster.errors import ConfigError, InvalidRequestError
from cluster.types import Request, Role, SpeculationParams, StepStats
from tests.cluster.engine.drafters.test_draft_model import make_drafter, make_model
from tests.cluster.engine.engine_harness import (
    KnowingDrafter,
    Result,
    ScriptedRunner,
    drain,
    make_engine,
    random_prompt,
    request,
    run,
    run_alone,
    sometimes_wrong,
)

SEATS = {Role.SPECULATIVE: 4, Role.BATCH: 16}


class CountingDrafter(KnowingDrafter):
    """Counts the calls that reach it."""

    def __init__(self, texts: Mapping[str, Seq[int]], **others: Any) -> None:
        super().__init__(texts, **others)
        self.calls: Counter[str] = Counter()
        self.is_closed = False

    def propose(self, wanted: Seq[Wanted]) -> Mapping[str, Draft]:
        self.calls["propose"] += 1
        return super().propose(wanted)

    def begin_round(self, items: Seq[ScheduledSequence]) -> None:
        self.calls["begin_round"] += 1
        super().begin_round(items)

    def observe(self, sequence: Sequence, draft: Draft, num_accepted: int) -> None:
        self.calls["observe"] += 1
        super().observe(sequence, draft, num_accepted)

    def forget(self, request_id: str) -> None:
        self.calls["forget"] += 1
        super().forget(request_id)

    def close(self) -> None:
        super().close()
        self.is_closed = True


def requests_of(count: int, *, temperature: float = 0.0, max_tokens: int = 60) -> list[Request]:
    """Prompts of 5 to 300 tokens: some take several rounds of prefill."""
    return [
        request(
            f"r{i}",
            random_prompt(i, 5 + (i * 59) % 296),
            max_tokens=max_tokens - (i * 7) % 20,
            seed=i,
            temperature=temperature,
            ignore_eos=True,
        )
        for i in range(count)
    ]


@cache
def alone(temperature: float) -> dict[str, Result]:
    return {item.request_id: run_alone(item) for item in requests_of(24, temperature=temperature)}


def texts(temperature: float = 0.0) -> dict[str, list[int]]:
    return {name: result.token_ids for name, result in alone(temperature).items()}


def flip(engine: Engine, role: Role) -> None:
    engine.set_role(role, max_num_seqs=SEATS[role])
    assert engine.role is role
    engine.check_integrity()


def step(engine: Engine, results: dict[str, Result], num_rounds: int = 1) -> list[StepStats]:
    steps = []
    for _ in range(num_rounds):
        for output in engine.step():
            results.setdefault(output.request_id, Result()).take(output)
        steps.append(engine.last_step)
        assert engine.role is Role.SPECULATIVE or engine.last_step.num_draft_tokens == 0
    return steps


def role_engine(drafter: Any, **settings: Any) -> Engine:
    return make_engine(
        drafter=drafter,
        **{
            "max_num_seqs": SEATS[Role.SPECULATIVE],
            "num_speculative_tokens": 4,
            "prefill_chunk_tokens": 64,
            **settings,
        },
    )


def test_in_role_batch_no_call_reaches_the_drafter_and_it_comes_back_with_the_role() -> None:
    drafter = CountingDrafter(texts())
    engine = role_engine(drafter)
    results: dict[str, Result] = {}
    assert engine.role is Role.SPECULATIVE
    for item in requests_of(6):
        engine.add(item)
    assert sum(stats.num_drafts for stats in step(engine, results, 12)) > 0
    assert drafter.known

    flip(engine, Role.BATCH)
    assert not drafter.known, "it was told to forget every sequence"
    calls = Counter(drafter.calls)
    for item in requests_of(8)[6:]:
        engine.add(item)
    steps = step(engine, results, 8)
    engine.abort("r7")
    steps += step(engine, results, 2)
    assert drafter.calls == calls
    assert sum(stats.num_output_tokens for stats in steps) > 30
    assert all(stats.num_drafts == stats.num_draft_tokens == stats.draft_wait_s == 0 for stats in steps)

    flip(engine, Role.SPECULATIVE)
    assert step(engine, results)[0].num_drafts > 0
    assert drafter.calls["propose"] == calls["propose"] + 1
    drain(engine, results)
    assert all(results[f"r{i}"].same_as(alone(0.0)[f"r{i}"]) for i in range(7))
    engine.close()
    assert drafter.is_closed


@pytest.mark.parametrize("temperature", [0.0, 0.7])
@pytest.mark.parametrize("every", [1, 3, 10])
def test_flips_in_the_middle_of_many_requests_change_no_text(temperature: float, every: int) -> None:
    """Prefills, waiting and running sequences, with too few blocks for all of them."""
    drafter = CountingDrafter(texts(temperature), edit=sometimes_wrong)
    engine = role_engine(drafter, num_blocks=60, kv_tax_tokens=16 * 32)
    results: dict[str, Result] = {}
    waiting = requests_of(24, temperature=temperature)
    num_flips = num_mixed = 0
    while engine.has_work or waiting:
        for item in waiting[:2]:
            engine.add(item)
        del waiting[:2]
        step(engine, results, every)
        flip(engine, Role.BATCH if engine.role is Role.SPECULATIVE else Role.SPECULATIVE)
        num_flips += 1
        num_mixed += bool(engine.last_step.num_running and engine.last_step.num_waiting)
    assert num_flips >= 50 // every
    assert num_mixed > 2
    assert drafter.observed
    assert all(results[name].same_as(expected) for name, expected in alone(temperature).items())
    engine.check_integrity()


def test_fifty_flips_in_a_row_change_nothing_but_the_role() -> None:
    drafter = CountingDrafter(texts())
    engine = role_engine(drafter, kv_tax_tokens=100)
    results: dict[str, Result] = {}
    for item in requests_of(10):
        engine.add(item)
    step(engine, results, 10)
    free = engine._pool.num_free_blocks
    for _ in range(25):
        flip(engine, Role.BATCH)
        flip(engine, Role.SPECULATIVE)
    assert engine._pool.num_free_blocks == free
    drain(engine, results)
    assert all(results[f"r{i}"].same_as(alone(0.0)[f"r{i}"]) for i in range(10))


def test_a_flip_to_the_role_in_force_changes_the_seats_alone() -> None:
    drafter = CountingDrafter(texts())
    engine = role_engine(drafter, kv_tax_tokens=100)
    results: dict[str, Result] = {}
    for item in requests_of(6):
        engine.add(item)
    step(engine, results, 8)
    calls = Counter(drafter.calls)
    engine.set_role(Role.SPECULATIVE, max_num_seqs=6)
    assert drafter.calls == calls
    assert step(engine, results)[0].num_running == 6
    for _ in range(2):
        flip(engine, Role.BATCH)
    flip(engine, Role.SPECULATIVE)
    assert step(engine, results)[0].num_drafts > 0
    drain(engine, results)


def test_seats_follow_the_role_and_who_runs_keeps_running() -> None:
    engine = role_engine(CountingDrafter(texts()))
    results: dict[str, Result] = {}
    for item in requests_of(20):
        engine.add(item)
    assert step(engine, results, 3)[-1].num_running == 4
    flip(engine, Role.BATCH)
    assert max(stats.num_running for stats in step(engine, results, 8)) == 16
    flip(engine, Role.SPECULATIVE)
    steps: list[StepStats] = []
    drain(engine, results, steps)
    running = [stats.num_running for stats in steps]
    assert sum(stats.num_preempted for stats in steps) == 0
    assert running[0] > 4
    waiting = [stats.num_waiting for stats in steps]
    assert all(waiting[i] == waiting[0] for i in range(len(steps)) if running[i] > 4), "no newcomer above the seats"
    assert all(results[f"r{i}"].same_as(alone(0.0)[f"r{i}"]) for i in range(20))


def test_the_kv_tax_goes_back_to_the_target_in_role_batch() -> None:
    engine = make_engine(num_blocks=32, drafter=CountingDrafter({}), kv_tax_tokens=100)
    assert engine.kv_tax_tokens == 128, "whole blocks"
    flip(engine, Role.BATCH)
    assert engine.kv_tax_tokens == 0
    assert engine._pool.num_free_blocks == 32
    flip(engine, Role.SPECULATIVE)
    assert engine.kv_tax_tokens == 128
    assert make_engine(num_blocks=32).kv_tax_tokens == 0


@pytest.mark.parametrize("role", list(Role))
def test_what_a_role_accepts_the_other_one_can_serve(role: Role) -> None:
    engine = make_engine(num_blocks=8, drafter=CountingDrafter({}), kv_tax_tokens=96)
    flip(engine, role)
    with pytest.raises(InvalidRequestError, match="the KV cache holds 160"):
        engine.add(request("long", random_prompt(0, 100), max_tokens=61))
    fits = request("fits", random_prompt(0, 100), max_tokens=60, ignore_eos=True)
    engine.add(fits)
    flip(engine, Role.SPECULATIVE)
    assert drain(engine)["fits"].same_as(run_alone(fits))


def test_a_tax_that_leaves_nothing_is_refused_with_the_setting_to_change() -> None:
    with pytest.raises(ConfigError, match=r"kv_cache_tokens = 256 is not allowed: expected at least 288"):
        make_engine(num_blocks=8, kv_tax_tokens=7 * 32)


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_a_local_draft_model_gives_everything_up_and_drafts_as_well_when_it_is_back(temperature: float) -> None:
    """Case A10, with a change of role instead of a burst."""
    model = make_model(num_blocks=128)
    drafter: DraftModelDrafter = make_drafter(model)
    engine = role_engine(drafter, num_blocks=128)
    results: dict[str, Result] = {}
    requests = requests_of(8, temperature=temperature, max_tokens=80)
    for item in requests:
        engine.add(item)
    before = step(engine, results, 15)
    assert model.num_used_blocks > 0
    flip(engine, Role.BATCH)
    assert (drafter.num_sequences, model.num_sequences, model.num_used_blocks) == (0, 0, 0)
    assert sum(stats.num_drafts for stats in step(engine, results, 12)) == 0
    assert model.num_used_blocks == 0
    flip(engine, Role.SPECULATIVE)
    after: list[StepStats] = []
    drain(engine, results, after)
    for steps in (before, after):
        drafted = sum(stats.num_draft_tokens for stats in steps)
        assert drafted > 30
        assert sum(sum(stats.accepted_per_position) for stats in steps) == drafted, "it is the target's own model"
    assert all(results[item.request_id].same_as(run_alone(item)) for item in requests)
    assert (drafter.num_sequences, model.num_used_blocks) == (0, 0)
    drafter.check_integrity()


def test_a_request_may_name_the_drafter_whatever_the_role() -> None:
    engine = role_engine(CountingDrafter({}))
    flip(engine, Role.BATCH)
    named = SpeculationParams(drafter="knowing")
    engine.add(request("r", random_prompt(0, 5), speculation=named))
    with pytest.raises(InvalidRequestError, match="off, grammar, knowing"):
        engine.add(request("s", random_prompt(0, 5), speculation=SpeculationParams(drafter="other")))
    drain(engine)


def test_a_drafter_taken_in_role_batch_rests_until_the_role_changes() -> None:
    first, second = CountingDrafter(texts()), CountingDrafter(texts())
    engine = role_engine(first)
    flip(engine, Role.BATCH)
    engine.use_drafter(second)
    run(engine, requests_of(1))
    assert not second.calls
    flip(engine, Role.SPECULATIVE)
    run(engine, requests_of(1))
    assert second.calls["propose"] > 0
    assert not first.calls["propose"]


def test_a_drafter_that_rests_is_closed_with_the_engine() -> None:
    drafter = CountingDrafter({})
    engine = make_engine(num_blocks=16, runner=ScriptedRunner([5]), drafter=drafter)
    flip(engine, Role.BATCH)
    engine.close()
    assert drafter.is_closed


@pytest.mark.parametrize("max_num_seqs", [0, -1, 1025])
def test_a_flip_that_cannot_be_is_refused_and_changes_nothing(max_num_seqs: int) -> None:
    drafter = CountingDrafter(texts())
    engine = role_engine(drafter)
    with pytest.raises(ConfigError, match="max_num_seqs"):
        engine.set_role(Role.BATCH, max_num_seqs=max_num_seqs)
    assert engine.role is Role.SPECULATIVE
    run(engine, requests_of(1))
    assert drafter.observed


def test_a_drafter_that_fails_while_it_is_closed_costs_no_request() -> None:
    class Failing(CountingDrafter):
        def forget(self, request_id: str) -> None:
            super().forget(request_id)
            raise RuntimeError("no")

    engine = role_engine(Failing(texts()))
    results: dict[str, Result] = {}
    for item in requests_of(4):
        engine.add(item)
    step(engine, results, 6)
    flip(engine, Role.BATCH)
    drain(engine, results)
    assert all(results[f"r{i}"].same_as(alone(0.0)[f"r{i}"]) for i in range(4))


def test_at_random_moments_with_aborts_the_books_balance() -> None:
    generator = random.Random(3)
    drafter = CountingDrafter(texts(), edit=sometimes_wrong)
    engine = role_engine(drafter, num_blocks=40, kv_tax_tokens=10 * 32)
    results: dict[str, Result] = {}
    waiting = requests_of(24)
    while engine.has_work or waiting:
        if waiting and generator.random() < 0.4:
            engine.add(waiting.pop())
        if generator.random() < 0.1:
            engine.abort(f"r{generator.randrange(24)}")
        if generator.random() < 0.3:
            flip(engine, generator.choice(list(Role)))
        step(engine, results)
        engine.check_integrity()
    for name, result in results.items():
        expected = alone(0.0)[name].token_ids
        assert result.token_ids == expected[: len(result.token_ids)]
    flip(engine, Role.SPECULATIVE)
    assert engine._pool.num_used_blocks == 0
    assert engine.kv_tax_tokens == 10 * 32
