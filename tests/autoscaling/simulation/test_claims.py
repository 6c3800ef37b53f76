import pytest

from autoscaling.simulation.claims import Claim, claims_of
from autoscaling.simulation.cost import CostModel, from_roofline
from autoscaling.simulation.curves import alpha_for, budget_choice, cost_within, curves, fixed_rate, inversion_point
from autoscaling.simulation.hardware import H100
from autoscaling.simulation.models import LLAMA_1B, LLAMA_70B
from autoscaling.simulation.roofline import Roofline
from cluster.engine.step_time import StepTimes

NODE = Roofline(model=LLAMA_70B, gpu=H100, num_gpus=8)
DRAFT = Roofline(model=LLAMA_1B, gpu=H100)
COST = from_roofline(NODE, DRAFT, draft_kv_sequences=16)
FREE = CostModel(name="free", times=NODE.step_times(), price_per_hour=24.0)


@pytest.fixture(scope="module")
def claims() -> dict[str, Claim]:
    return {each.topic: each for each in claims_of(NODE, COST, num_tokens=5, draft=DRAFT)}


def test_the_streaming_floor_follows(claims: dict[str, Claim]) -> None:
    claim = claims["streaming floor of one token"]
    assert claim.computed.startswith("42.1 ms") and claim.verdict == "follows"


def test_one_h100_and_sparse_flops_do_not(claims: dict[str, Claim]) -> None:
    assert claims["70B in FP16 on one H100"].verdict == "does not follow"
    assert claims["arithmetic of one token"].verdict == "does not follow"
    assert "989.5" in claims["arithmetic of one token"].computed


def test_every_claim_has_words_for_its_verdict(claims: dict[str, Claim]) -> None:
    assert len(claims) == 14
    for claim in claims.values():
        assert claim.published and claim.computed and claim.why


@pytest.mark.parametrize("alpha", [0.65, 0.78])
def test_a_fixed_length_pays_below_the_inversion_point_and_costs_from_it_on(alpha: float) -> None:
    point = inversion_point(COST, alpha, 5)
    assert point is not None
    assert fixed_rate(COST, alpha, 5, point - 1) >= fixed_rate(COST, 0.0, 0, point - 1)
    assert fixed_rate(COST, alpha, 5, point) < fixed_rate(COST, 0.0, 0, point)


def test_inversion_comes_later_with_better_drafts_and_with_cheaper_ones() -> None:
    local = [inversion_point(COST, alpha, 5) or 1 << 30 for alpha in (0.5, 0.65, 0.85)]
    free = [inversion_point(FREE, alpha, 5) or 1 << 30 for alpha in (0.5, 0.65, 0.85)]
    assert local == sorted(local) and free == sorted(free)
    assert all(one < other for one, other in zip(local, free, strict=True))


def test_drafts_that_are_always_right_on_a_flat_machine_never_invert() -> None:
    flat = CostModel(name="flat", times=StepTimes(knots=((1, 0.01),)))
    assert inversion_point(flat, 0.9, 5) is None


def test_three_times_faster_needs_the_acceptance_that_gives_three_tokens_a_round() -> None:
    flat = CostModel(name="flat", times=StepTimes(knots=((1, 0.01),)))
    alpha = alpha_for(flat, 5, 3.0)
    assert alpha is not None
    assert sum(alpha**place for place in range(6)) == pytest.approx(3.0)
    assert alpha_for(flat, 1, 3.0) is None


def test_the_budget_is_never_below_either_fixed_setting() -> None:
    for alpha in (0.4, 0.65, 0.85):
        for count in (1, 8, 32, 128, 512):
            rate = budget_choice(COST, alpha, 5, count)[1]
            assert rate >= max(fixed_rate(COST, alpha, 5, count), fixed_rate(COST, alpha, 0, count)) * 0.999


def test_dollars_are_counted_at_the_most_sequences_within_the_objective() -> None:
    found = cost_within(FREE, 0.012, lambda count: fixed_rate(FREE, 0.0, 0, count))
    assert found is not None
    dollars, count = found
    assert count / fixed_rate(FREE, 0.0, 0, count) <= 0.012
    assert (count + 1) / fixed_rate(FREE, 0.0, 0, count + 1) > 0.012
    assert dollars == pytest.approx(24 / 3600 / fixed_rate(FREE, 0.0, 0, count) * 1e6)
    assert cost_within(FREE, 0.001, lambda count: fixed_rate(FREE, 0.0, 0, count)) is None


def test_curves_show_speed_up_turning_into_loss() -> None:
    points = curves(COST, 5).speed_up["alpha 0.65"]
    assert points[0][1] > 1.2 and points[-1][1] < 0.7
