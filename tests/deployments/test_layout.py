"""The start-up choice from measured times, and how a node's cores are shared."""

from dataclasses import replace
from typing import Any

import pytest

from deployments.layout import Measurements, NodeShare, PassTimes, choose_layout, expected_tokens, plan_threads

TWO_CORES = Measurements(
    num_cores=2,
    shares_node=True,
    target=PassTimes(one_s=0.014, many_s=0.016, num_rows=5),
    target_beside_actor=PassTimes(one_s=0.025, many_s=0.028, num_rows=5),
    draft_local=PassTimes(one_s=0.0012, many_s=0.002, num_rows=20),
    draft_actor=PassTimes(one_s=0.002, many_s=0.004, num_rows=20),
    num_speculative_tokens=4,
    acceptance_rate=0.6,
    hit_rate=0.7,
)
MANY_CORES = replace(
    TWO_CORES, num_cores=64, target_beside_actor=PassTimes(one_s=0.0142, many_s=0.0162, num_rows=5), hit_rate=0.9
)


def test_on_two_cores_the_verifier_drafts_by_itself() -> None:
    assert choose_layout(TWO_CORES).kind == "local"


def test_where_an_actor_takes_hardly_any_threads_from_the_target_it_wins() -> None:
    slow_draft = replace(MANY_CORES, draft_local=PassTimes(one_s=0.003, many_s=0.004, num_rows=20))
    slow_draft = replace(slow_draft, draft_actor=PassTimes(one_s=0.002, many_s=0.003, num_rows=20))
    assert choose_layout(slow_draft).kind == "actor"


def test_an_actor_whose_tables_cannot_be_in_time_does_not_count_on_hits() -> None:
    late = replace(MANY_CORES, draft_actor=PassTimes(one_s=0.05, many_s=0.09, num_rows=20))
    rates = dict(choose_layout(late).tokens_per_s)
    assert rates["actor"] == pytest.approx(1 / 0.0142)


def test_a_draft_model_that_is_never_right_is_not_used() -> None:
    assert choose_layout(replace(TWO_CORES, acceptance_rate=0.0)).kind == "ngram"


def test_a_gain_within_the_error_of_measurement_is_no_gain() -> None:
    # One draft token of chance 0.3 for a draft pass that costs 0.29 of a round: 1 % more tokens.
    even = replace(
        TWO_CORES,
        num_speculative_tokens=1,
        acceptance_rate=0.30,
        hit_rate=0.0,
        target=PassTimes(one_s=0.010, many_s=0.010, num_rows=2),
        draft_local=PassTimes(one_s=0.00287, many_s=0.003, num_rows=20),
    )
    rates = dict(choose_layout(even).tokens_per_s)
    assert 1.0 < rates["local"] / rates["ngram"] < 1.03
    assert choose_layout(even).kind == "ngram"


def test_the_reason_holds_every_number_of_the_choice() -> None:
    layout = choose_layout(TWO_CORES)
    for text in ("14.0/16.0 ms", "25.0/28.0 ms", "1.2/2.0 ms", "2.0/4.0 ms", "0.60", "0.70", "2 cores", "same node"):
        assert text in layout.reason
    for kind, rate in layout.tokens_per_s:
        assert f"{kind} {rate:.1f}" in layout.reason


def test_passes_between_the_measured_ones_lie_on_their_line() -> None:
    times = PassTimes(one_s=1.0, many_s=5.0, num_rows=5)
    assert [times.at(rows) for rows in (1, 2, 5, 9)] == [1.0, 2.0, 5.0, 9.0]


def test_expected_tokens_is_the_geometric_sum() -> None:
    assert expected_tokens(0.5, 3) == 1 + 0.5 + 0.25 + 0.125
    assert expected_tokens(0.9, 0) == 1


@pytest.mark.parametrize(
    ("values", "verifier", "total", "warns"),
    [
        ({"num_cores": 2, "num_drafters": 0}, 2, 2, False),
        ({"num_cores": 2}, 1, 2, False),
        ({"num_cores": 16, "drafter_threads": 2}, 14, 16, False),
        ({"num_cores": 16, "num_verifiers": 2, "num_drafters": 2}, 7, 16, False),
        ({"num_cores": 1}, 1, 2, True),
        ({"num_cores": 2, "engine_threads": 2}, 2, 3, True),
        ({"num_cores": 4, "num_verifiers": 3, "engine_threads": 1}, 1, 4, False),
    ],
)
def test_the_threads_of_a_node_are_shared_and_too_many_are_told(
    values: dict[str, Any], verifier: int, total: int, warns: bool
) -> None:
    node = NodeShare(
        node_id="n", num_verifiers=values.get("num_verifiers", 1), num_drafters=values.get("num_drafters", 1)
    )
    plan = plan_threads(
        num_cores=values["num_cores"],
        engine_threads=values.get("engine_threads", 0),
        node=node,
        drafter_threads=values.get("drafter_threads", 1),
    )
    assert (plan.verifier, plan.total, plan.warning is not None) == (verifier, total, warns)
    if plan.warning:
        assert f"{total} threads on {values['num_cores']} cores" in plan.warning
