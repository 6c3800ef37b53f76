from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaling.simulation.cost import CostModel
from autoscaling.simulation.rates import Drafting, RateBook
from autoscaling.simulation.replica import SimReplica, Tally
from autoscaling.simulation.workload import SimRequest, TrafficClass
from cluster.engine.step_time import StepTimes
from cluster.routing.types import Domain
from cluster.types import Role

FLAT = StepTimes(knots=((1, 0.01),))
KIND = TrafficClass(name="a", domain=Domain.GENERAL_CHAT, acceptance_rate=0.8)


def replica(
    *, times: StepTimes = FLAT, role: Role = Role.BATCH, seats: int = 4, capacity: int = 10_000, prompt_rows: int = 100
) -> SimReplica:
    rates = RateBook(CostModel(name="flat", times=times), [KIND], Drafting(num_speculative_tokens=3))
    return SimReplica(
        "r",
        role,
        rates=rates,
        tally=Tally(rates.num_classes),
        seats={Role.SPECULATIVE: 2, Role.BATCH: seats},
        kv_capacity=dict.fromkeys(Role, capacity),
        prompt_rows=prompt_rows,
    )


def run_dry(subject: SimReplica, now_s: float = 0.0) -> list[tuple[float, SimRequest]]:
    """All that ends, with the time, until nothing is left to do."""
    ended: list[tuple[float, SimRequest]] = []
    for _ in count():
        next_s = subject.plan()
        if next_s == float("inf"):
            return ended
        now_s += next_s
        ended += [(now_s, request) for request in subject.settle(now_s)[1]]
    raise AssertionError


def test_a_request_takes_a_pass_for_each_chunk_of_its_prompt_and_for_each_further_token() -> None:
    subject = replica()
    subject.add(SimRequest(0.0, 250, 31, 0), 0.0)
    ((end_s, request),) = run_dry(subject)
    assert request.first_token_s == pytest.approx(2.5 * 0.01)
    assert end_s == pytest.approx(0.025 + 30 * 0.01)


def test_interruptions_do_not_change_when_a_request_ends() -> None:
    alone, disturbed = replica(), replica()
    for subject in (alone, disturbed):
        subject.add(SimRequest(0.0, 90, 50, 0), 0.0)
    disturbed.plan()
    for step in range(1, 20):
        disturbed.settle(step * 0.001)
        disturbed.plan()
    end_s = run_dry(disturbed, 0.019)[0][0]
    assert end_s == pytest.approx(run_dry(alone)[0][0])


def test_drafts_make_a_replica_of_role_speculative_faster() -> None:
    ends = {}
    for role in Role:
        subject = replica(role=role)
        subject.add(SimRequest(0.0, 100, 301, 0), 0.0)
        ends[role] = run_dry(subject)[0][0] - 0.01
    assert ends[Role.SPECULATIVE] == pytest.approx(3.0 / (1 + 0.8 + 0.64 + 0.512))
    assert ends[Role.BATCH] == pytest.approx(3.0)


def test_a_request_that_must_not_draft_is_not_drafted_for() -> None:
    subject = replica(role=Role.SPECULATIVE)
    request = SimRequest(0.0, 100, 301, 0)
    request.drafts = False
    subject.add(request, 0.0)
    assert run_dry(subject)[0][0] == pytest.approx(3.01)
    assert subject.num_drafted == 0


def test_requests_beyond_the_seats_wait_their_turn() -> None:
    subject = replica(seats=2)
    for _ in range(3):
        subject.add(SimRequest(0.0, 10, 100, 0), 0.0)
    assert (subject.num_running, len(subject.waiting), subject.num_ongoing) == (2, 1, 3)
    assert run_dry(subject)[2][0] > 1.9


def test_requests_wait_for_kv_entries_and_one_too_large_for_them_runs_alone() -> None:
    subject = replica(capacity=200)
    subject.add(SimRequest(0.0, 10, 100, 0), 0.0)
    subject.add(SimRequest(0.0, 10, 100, 0), 0.0)
    subject.add(SimRequest(0.0, 10, 1000, 0), 0.0)
    assert subject.num_running == 1 and subject.kv_usage_ratio == pytest.approx(0.55)
    assert len(run_dry(subject)) == 3
    assert subject.kv_tokens == 0


def test_a_change_of_role_keeps_those_that_run_and_admits_those_that_wait() -> None:
    subject = replica(role=Role.SPECULATIVE)
    for _ in range(4):
        subject.add(SimRequest(0.0, 10, 100, 0), 0.0)
    subject.plan()
    subject.set_role(Role.BATCH, 0.05)
    assert (subject.num_running, len(subject.waiting)) == (4, 0)
    subject.plan()
    subject.set_role(Role.SPECULATIVE, 0.1)
    assert subject.num_running == 4
    assert len(run_dry(subject, 0.1)) == 4


def test_outstanding_tokens_fall_to_zero() -> None:
    subject = replica()
    subject.add(SimRequest(0.0, 50, 100, 0), 0.0)
    assert subject.num_outstanding_tokens == 50 + 128
    run_dry(subject)
    assert subject.num_outstanding_tokens == 0
    subject.add(SimRequest(2.0, 50, 100, 0), 2.0)
    assert subject.num_outstanding_tokens == 50 + 128


@settings(derandomize=True, deadline=None, max_examples=50)
@given(
    st.lists(st.tuples(st.integers(1, 400), st.integers(1, 200), st.booleans()), min_size=1, max_size=30),
    st.sampled_from(Role),
)
def test_every_request_ends_and_every_token_is_counted(sizes: list[tuple[int, int, bool]], role: Role) -> None:
    subject = replica(role=role)
    for prompt, output, drafts in sizes:
        request = SimRequest(0.0, prompt, output, 0)
        request.drafts = drafts
        subject.add(request, 0.0)
    assert len(run_dry(subject)) == len(sizes)
    assert subject.output_tokens == pytest.approx(sum(output for _, output, _ in sizes))
    assert subject.context_tokens == pytest.approx(0.0)
    assert subject.num_ongoing == subject.kv_tokens == 0
    assert subject.num_accepted <= subject.num_drafted
