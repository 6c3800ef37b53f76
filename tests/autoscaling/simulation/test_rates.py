import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaling.simulation.cost import CostModel, from_roofline
from autoscaling.simulation.hardware import H100
from autoscaling.simulation.models import LLAMA_1B, LLAMA_70B
from autoscaling.simulation.rates import Drafting, RateBook
from autoscaling.simulation.roofline import Roofline
from autoscaling.simulation.workload import TrafficClass
from cluster.engine.budget import expected_tokens, uniform_length
from cluster.routing.types import Domain
from cluster.types import Role

NODE = Roofline(model=LLAMA_70B, gpu=H100, num_gpus=8)
FREE = CostModel(name="free drafts", times=NODE.step_times())
LOCAL = from_roofline(NODE, Roofline(model=LLAMA_1B, gpu=H100), draft_kv_sequences=16)


def book(*alphas: float, cost: CostModel = FREE, drafting: Drafting | None = None, ratio: float = 1.0) -> RateBook:
    classes = [
        TrafficClass(name=f"{alpha}", domain=Domain.GENERAL_CHAT, acceptance_rate=alpha, draft_ratio=ratio)
        for alpha in alphas
    ]
    return RateBook(cost, classes, drafting or Drafting())


@pytest.mark.parametrize("cost", [FREE, LOCAL])
@pytest.mark.parametrize("alpha", [0.2, 0.5, 0.8, 0.95])
def test_one_sequence_advances_as_the_budget_says(cost: CostModel, alpha: float) -> None:
    flow = book(alpha, cost=cost).flow(Role.SPECULATIVE, (1, 0), 1024, 0)
    length, rate = uniform_length(alpha, cost.times_at(1), num_sequences=1, max_tokens=5, num_context_tokens=1024)
    assert flow.drafted[0] == length
    assert flow.tokens[0] / flow.round_s == pytest.approx(rate)


@pytest.mark.parametrize("cost", [FREE, LOCAL])
@pytest.mark.parametrize("count", [2, 8, 32, 128, 256])
def test_equal_sequences_are_never_slower_than_the_best_uniform_length(cost: CostModel, count: int) -> None:
    flow = book(0.7, cost=cost).flow(Role.SPECULATIVE, (count, 0), 1024, 0)
    _, rate = uniform_length(0.7, cost.times_at(count), num_sequences=count, max_tokens=5, num_context_tokens=1024)
    assert rate * 0.999 <= count * flow.tokens[0] / flow.round_s <= rate * 1.1


def test_drafts_end_when_the_machine_is_full() -> None:
    rates = book(0.6)
    lengths = [rates.flow(Role.SPECULATIVE, (count, 0), 0, 0).drafted[0] for count in (1, 64, 128, 256, 512)]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] == 5 and lengths[-1] == 0


def test_guessable_text_drafts_more_than_unguessable_in_the_same_batch() -> None:
    flow = book(0.85, 0.2).flow(Role.SPECULATIVE, (64, 64, 0), 0, 0)
    assert flow.drafted[0] > flow.drafted[1]


def test_role_batch_and_mode_off_never_draft() -> None:
    plain = FREE.times.seconds(8, 80)
    for rates, role in ((book(0.9), Role.BATCH), (book(0.9, drafting=Drafting(mode="off")), Role.SPECULATIVE)):
        flow = rates.flow(role, (8, 0), 80, 0)
        assert (flow.tokens[0], flow.drafted[0]) == (1.0, 0.0)
        assert flow.round_s == pytest.approx(plain)


def test_sequences_that_must_not_draft_write_a_token_a_round() -> None:
    flow = book(0.9).flow(Role.SPECULATIVE, (4, 4), 0, 0)
    assert flow.tokens[1] == 1.0 and flow.drafted[1] == 0.0
    assert flow.tokens[0] > 3.0


def test_a_fixed_length_holds_below_its_guard_only() -> None:
    rates = book(0.6, drafting=Drafting(mode="fixed", num_speculative_tokens=5, guard=32))
    below, above = (rates.flow(Role.SPECULATIVE, (count, 0), 0, 0) for count in (31, 32))
    assert below.drafted[0] == 5.0
    assert below.tokens[0] == pytest.approx(expected_tokens(0.6, 5))
    assert above.drafted[0] == 0.0


def test_prompts_in_the_pass_make_drafts_dearer() -> None:
    rates = book(0.6)
    alone, beside = (rates.flow(Role.SPECULATIVE, (16, 0), 0, rows) for rows in (0, 2048))
    assert beside.drafted[0] < alone.drafted[0]
    assert beside.round_s > FREE.times.forward_s(2048 + 16)


def test_rounds_without_a_draft_count_as_plain_ones() -> None:
    drafting = Drafting(mode="fixed", num_speculative_tokens=4)
    flow = book(0.8, drafting=drafting, ratio=0.25).flow(Role.SPECULATIVE, (8, 0), 0, 0)
    assert flow.drafted[0] == pytest.approx(1.0)
    assert flow.tokens[0] == pytest.approx(1 + 0.25 * (expected_tokens(0.8, 4) - 1))


@settings(derandomize=True, deadline=None, max_examples=50)
@given(st.lists(st.integers(0, 40), min_size=3, max_size=3), st.integers(0, 200_000), st.integers(0, 4096))
def test_rounding_of_compositions_never_makes_drafting_a_loss_of_more_than_a_twentieth(
    counts: list[int], context: int, prompt_rows: int
) -> None:
    if not sum(counts):
        return
    flow = book(0.85, 0.5).flow(Role.SPECULATIVE, counts, context, prompt_rows)
    plain = book(0.85, 0.5).flow(Role.BATCH, counts, context, prompt_rows)
    tokens = sum(count * each for count, each in zip(counts, flow.tokens, strict=True))
    assert tokens / flow.round_s >= 0.95 * sum(counts) / plain.round_s
