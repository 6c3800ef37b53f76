"""The local draft model beside a whole engine: same text, right drafts, bounded state."""

from typing import Any

import pytest
import torch

from cluster.engine.budget import DraftCost
from cluster.engine.drafters.base import Draft, Wanted
from cluster.engine.drafters.draft_ahead import DraftModel
from cluster.engine.drafters.draft_model import DraftModelDrafter
from cluster.engine.plan import ScheduledSequence
from cluster.engine.sequence import Sequence
from cluster.engine.sequence_budget import Adaptation
from cluster.types import SpeculationParams
from tests.cluster.engine.engine_harness import (
    BLOCK_SIZE,
    MAX_MODEL_LEN,
    make_engine,
    random_prompt,
    request,
    run,
    run_alone,
    tiny_llama,
)
from tests.tiny import bf16_weights, native_runner

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
        "min_tokens": 12,
        "logit_bias": ((7, 2.0), (2, 4.0)),
    },
}


def make_model(*, spoilt: bool = False, max_len: int = MAX_MODEL_LEN, num_blocks: int = 64) -> DraftModel:
    """The target itself as the draft model, or a spoilt one that is right now and then."""
    target = tiny_llama()
    weights = bf16_weights(target)
    if spoilt:
        down = weights["model.layers.1.mlp.down_proj.weight"]
        weights["model.layers.1.mlp.down_proj.weight"] = torch.zeros_like(down)
    runner = native_runner(target.config, weights, num_blocks=num_blocks, block_size=BLOCK_SIZE, max_model_len=max_len)
    return DraftModel(runner, eos_token_ids=frozenset({2}))


def make_drafter(model: DraftModel | None = None, **settings: Any) -> DraftModelDrafter:
    return DraftModelDrafter(model or make_model(), **{"max_draft_tokens": 4, "cost": FREE, **settings})


@pytest.mark.parametrize("name", SAMPLING)
def test_a_draft_model_that_equals_its_target_is_always_accepted(name: str) -> None:
    """Case B6, in the engine, with every sampling setting."""
    drafter = make_drafter()
    requests = [
        request(f"r{i}", random_prompt(i, 5 + 30 * i), max_tokens=40, seed=i, ignore_eos=True, **SAMPLING[name])
        for i in range(4)
    ]
    steps: list[Any] = []
    results = run(make_engine(drafter=drafter, num_speculative_tokens=4), requests, steps)
    drafted = sum(step.num_draft_tokens for step in steps)
    accepted = sum(sum(step.accepted_per_position) for step in steps)
    assert drafted > 60
    assert accepted == drafted
    assert all(results[item.request_id].same_as(run_alone(item)) for item in requests)
    assert drafter.num_sequences == 0
    drafter.check_integrity()


@pytest.mark.parametrize("name", SAMPLING)
def test_a_draft_model_that_errs_costs_no_token(name: str) -> None:
    drafter = make_drafter(make_model(spoilt=True))
    requests = [request(f"r{i}", random_prompt(i, 20), max_tokens=40, seed=i, **SAMPLING[name]) for i in range(5)]
    steps: list[Any] = []
    results = run(make_engine(drafter=drafter, num_speculative_tokens=4), requests, steps)
    drafted = sum(step.num_draft_tokens for step in steps)
    accepted = sum(sum(step.accepted_per_position) for step in steps)
    assert 0 < accepted < drafted
    assert all(results[item.request_id].same_as(run_alone(item)) for item in requests)
    drafter.check_integrity()


def test_only_the_sequence_beyond_the_limit_stops_drafting() -> None:
    """Case D1: draft limit 128, a request of 200 tokens among short ones."""
    drafter = make_drafter(make_model(max_len=128))
    long = request("long", random_prompt(1, 110), max_tokens=90, ignore_eos=True)
    prompt_too_long = request("longer", random_prompt(2, 150), max_tokens=20, ignore_eos=True)
    short = request("short", random_prompt(3, 10), max_tokens=60, ignore_eos=True)
    results = run(make_engine(drafter=drafter, num_speculative_tokens=4), [long, prompt_too_long, short])
    assert all(results[item.request_id].same_as(run_alone(item)) for item in (long, prompt_too_long, short))
    drafted = {name: result.speculation.num_draft_tokens for name, result in results.items() if result.speculation}
    assert drafted["longer"] == 0
    assert 0 < drafted["long"] <= 18
    assert drafted["short"] >= 40
    assert drafter.num_sequences == 0
    drafter.check_integrity()


def sequence_of(request_id: str, prompt: tuple[int, ...], **sampling: Any) -> Sequence:
    return Sequence.from_request(request(request_id, prompt, **{"max_tokens": 1000, **sampling}))


def propose(drafter: DraftModelDrafter, *sequences: Sequence, max_tokens: int = 4) -> dict[str, tuple[int, ...]]:
    drafts = drafter.propose([Wanted(sequence=sequence, max_tokens=max_tokens) for sequence in sequences])
    drafter.check_integrity()
    return {request_id: draft.token_ids for request_id, draft in drafts.items()}


def test_all_sequences_are_drafted_together_as_each_alone() -> None:
    sequences = [sequence_of(f"r{i}", random_prompt(i, 3 + 10 * i), temperature=0.5 * i) for i in range(4)]
    together = propose(make_drafter(), *sequences)
    assert set(together) == {"r0", "r1", "r2", "r3"}
    for sequence in sequences:
        assert propose(make_drafter(), sequence)[sequence.request_id] == together[sequence.request_id]


def test_a_long_prompt_is_caught_up_over_rounds_and_delays_only_its_own_draft() -> None:
    model = make_model()
    drafter = make_drafter(model)
    long, short = sequence_of("long", random_prompt(0, 480)), sequence_of("short", random_prompt(1, 5))
    rounds = [propose(drafter, long, short, max_tokens=2) for _ in range(3)]
    assert all("short" in drafts for drafts in rounds)
    assert ["long" in drafts for drafts in rounds] == [False, True, True]
    assert rounds[1]["long"] == propose(make_drafter(), long, max_tokens=4)["long"][:2]


def test_drafts_after_a_spell_without_any_are_as_from_a_new_drafter() -> None:
    """Case A10."""
    drafter, sequence = make_drafter(), sequence_of("r", random_prompt(0, 40), temperature=1.0)
    before = propose(drafter, sequence)["r"]
    sequence.token_ids += [*before[:3], 9, *random_prompt(5, 50)]
    assert propose(drafter, sequence) == propose(make_drafter(), sequence)


def test_a_draft_that_does_not_pay_is_probed_and_comes_back() -> None:
    """Case A11: 200 bad rounds, then good ones."""
    drafter, sequence = make_drafter(cost=DraftCost(token_s=0.2)), sequence_of("r", random_prompt(0, 10))
    lengths = []
    for _ in range(200):
        draft = propose(drafter, sequence).get("r", ())
        lengths.append(len(draft))
        if draft:
            drafter.observe(sequence, Draft(token_ids=draft, source="draft_model"), 0)
    assert lengths[0] > 0
    assert 0 < sum(map(bool, lengths[50:])) < 15
    for _ in range(400):
        draft = propose(drafter, sequence).get("r", ())
        if draft:
            drafter.observe(sequence, Draft(token_ids=draft, source="draft_model"), len(draft))
    assert propose(drafter, sequence)["r"]


class FixedCost:
    """Passes that take the same for each row, whatever is observed."""

    def __init__(self, row_s: float) -> None:
        self._row_s = row_s

    def seconds(self, num_rows: int) -> float:
        return self._row_s * num_rows

    def rows_within(self, seconds: float, max_rows: int) -> int:
        return min(max_rows, int(seconds / self._row_s))

    def observe(self, num_rows: int, seconds: float) -> None: ...


TARGET = DraftCost.of((1, 0.010), (2, 0.0101))


def test_a_long_prompt_is_not_read_for_the_few_tokens_that_are_left() -> None:
    sequence = sequence_of("r", random_prompt(0, 300), max_tokens=20)
    drafter = make_drafter(cost=TARGET, pass_cost=FixedCost(0.0005))
    assert not propose(drafter, sequence)
    assert propose(make_drafter(cost=TARGET, pass_cost=FixedCost(0.0005)), sequence_of("r", random_prompt(0, 300)))


def test_the_more_sequences_draft_the_dearer_is_a_pass_of_the_draft_model() -> None:
    def num_drafted(num_sequences: int) -> int:
        drafter = make_drafter(cost=TARGET, pass_cost=FixedCost(0.003))
        return len(propose(drafter, *[sequence_of(f"r{i}", random_prompt(i, 5)) for i in range(num_sequences)]))

    assert num_drafted(1) == 1
    assert num_drafted(12) == 0


def test_drafts_that_do_not_pay_are_tried_for_a_small_share_of_the_time() -> None:
    drafter = make_drafter(cost=TARGET, pass_cost=FixedCost(0.01))
    sequence = sequence_of("r", random_prompt(0, 10))
    tried = sum(bool(propose(drafter, sequence)) for _ in range(4000))
    # Half a percent of 40 s; the first try reads the prompt, 0.11 s, and each later one takes 0.02 s.
    assert 1 <= tried <= 1 + (0.2 - 0.11) / 0.02


def test_a_sequence_whose_draft_was_cut_drafts_again_only_now_and_then() -> None:
    drafter, sequence = make_drafter(cost=TARGET, pass_cost=FixedCost(0.0001)), sequence_of("r", random_prompt(0, 10))
    assert propose(drafter, sequence)
    drafter.begin_round([ScheduledSequence(sequence=sequence, start=9, num_tokens=1, epoch=0)])
    rounds = []
    for _ in range(64):
        rounds.append(bool(propose(drafter, sequence)))
        drafter.begin_round([ScheduledSequence(sequence=sequence, start=9, num_tokens=1, epoch=0)])
    assert 3 <= sum(rounds) <= 5
    kept = ScheduledSequence(sequence=sequence, start=9, num_tokens=1, draft_token_ids=(1,), epoch=0)
    while not propose(drafter, sequence):
        pass
    drafter.begin_round([kept])
    assert all(propose(drafter, sequence) for _ in range(3))


def test_drafts_of_others_teach_nothing_about_this_model() -> None:
    drafter, sequence = make_drafter(cost=DraftCost(token_s=0.2)), sequence_of("r", random_prompt(0, 10))
    expected = len(propose(drafter, sequence)["r"])
    for _ in range(50):
        drafter.observe(sequence, Draft(token_ids=(1, 2, 3), source="ngram"), 0)
    assert len(propose(drafter, sequence)["r"]) == expected


def test_who_wants_no_draft_makes_room_for_who_does() -> None:
    drafter = make_drafter(make_model(num_blocks=8))
    sequences = [sequence_of(f"r{i}", random_prompt(i, 60)) for i in range(6)]
    for sequence in sequences:
        assert sequence.request_id in propose(drafter, sequence)
    assert propose(drafter, sequences[0]) == propose(make_drafter(), sequences[0])


def test_too_many_at_once_leave_some_without_a_draft_and_none_with_a_wrong_one() -> None:
    drafter = make_drafter(make_model(num_blocks=8))
    sequences = [sequence_of(f"r{i}", random_prompt(i, 60)) for i in range(6)]
    for _ in range(3):
        drafts = propose(drafter, *sequences)
        assert 1 <= len(drafts) < 6
        for request_id, draft in drafts.items():
            assert draft == propose(make_drafter(), sequences[int(request_id[1:])])[request_id][: len(draft)]


def test_an_id_that_was_given_again_starts_afresh() -> None:
    drafter = make_drafter()
    propose(drafter, sequence_of("r", random_prompt(0, 20)))
    again = sequence_of("r", random_prompt(1, 40))
    assert propose(drafter, again) == propose(make_drafter(), again)
    assert drafter.num_sequences == 1


def test_forgotten_sequences_leave_nothing_behind() -> None:
    model = make_model()
    drafter = make_drafter(model)
    for i in range(50):
        propose(drafter, sequence_of(f"r{i}", random_prompt(i, 10)))
        drafter.forget(f"r{i}")
        drafter.forget("unknown")
    assert (drafter.num_sequences, model.num_sequences, model.num_used_blocks) == (0, 0, 0)
    drafter.close()


def test_hundreds_of_short_requests_leave_memory_and_acceptance_flat() -> None:
    model = make_model(num_blocks=24)
    drafter = make_drafter(model, adaptation=Adaptation())
    engine = make_engine(drafter=drafter, num_speculative_tokens=3, num_blocks=256)
    accepted = []
    for batch in range(6):
        steps: list[Any] = []
        requests = [
            request(f"{batch}-{i}", random_prompt(i, 4 + i % 7), max_tokens=6, seed=i, temperature=1.0, ignore_eos=True)
            for i in range(40)
        ]
        run(engine, requests, steps)
        accepted.append(sum(sum(step.accepted_per_position) for step in steps))
        assert model.num_used_blocks == 0
        assert drafter.num_sequences == 0
    assert len(set(accepted[1:])) == 1, "the first batch starts from what is assumed of any draft model"


def test_a_request_may_ask_for_shorter_drafts() -> None:
    drafter, one = make_drafter(), SpeculationParams(num_speculative_tokens=1)
    item = request("r", random_prompt(0, 10), max_tokens=30, ignore_eos=True, speculation=one)
    steps: list[Any] = []
    run(make_engine(drafter=drafter, num_speculative_tokens=4), [item], steps)
    assert {step.num_draft_tokens for step in steps} == {0, 1}
