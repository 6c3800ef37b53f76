"""The controller in a closed loop with replicas that obey: loads, pins, failures, restarts."""

from itertools import pairwise

import pytest

from autoscaling.pool_config import PoolConfig
from autoscaling.pool_controller import initial_state, pin, step, unpin
from autoscaling.types import DecisionReason, Pin, Snapshot
from cluster.engine.step_time import StepTimes
from cluster.types import Role
from tests.autoscaling.pool_cluster import FakeCluster, FakeReplica, Work, cluster

SATURATING = StepTimes(knots=((1, 0.030), (16, 0.034), (32, 0.042), (64, 0.075), (128, 0.15)), context_s=1e-7)


def began(found: FakeCluster, since_s: float) -> list[tuple[float, Role]]:
    return [(round(move.began_s - since_s, 3), move.role) for move in found.moves if move.began_s > since_s]


@pytest.mark.parametrize("num_high", [96, 150])
def test_a_load_step_moves_a_replica_within_three_seconds_and_back_when_it_is_over(num_high: int) -> None:
    found = cluster("sss", work=Work(auto=4))
    found.run(20)
    assert found.moves == []
    up_s, found.work = found.now_s, Work(auto=num_high)
    found.run(20)
    first_s, role = began(found, up_s)[0]
    assert first_s <= 3.0
    assert role is Role.BATCH
    down_s, found.work = found.now_s, Work(auto=4)
    found.run(20)
    first_s, role = began(found, down_s)[0]
    assert first_s <= 3.0
    assert role is Role.SPECULATIVE
    assert found.num_speculative == 3


def test_a_burst_shorter_than_the_hold_time_moves_nothing() -> None:
    found = cluster("sss", PoolConfig(hold_s=2.0), work=Work(auto=4))
    found.run(10)
    for _ in range(5):
        found.work = Work(auto=150)
        found.run(1.5)
        found.work = Work(auto=4)
        found.run(1.5)
    assert found.moves == []


def test_after_a_move_none_goes_back_before_the_cooldown_is_over() -> None:
    found = cluster("s", PoolConfig(cooldown_s=8.0), work=Work(auto=60))
    found.run(4)
    assert found.num_speculative == 0
    found.work = Work(auto=4)
    found.run(6)
    assert found.decisions[-1].reason is DecisionReason.COOLDOWN
    found.run(3)
    assert found.num_speculative == 1


def test_moves_taken_back_under_the_same_load_wait_longer_each_time() -> None:
    found = cluster("sss", work=Work(interactive=30, bulk=100), noise_ratio=0.1)
    found.run(200)
    gaps = [after.began_s - before.began_s for before, after in pairwise(found.moves)]
    assert len(gaps) >= 3
    assert all(after >= 2 * before for before, after in pairwise(gaps[-3:]))


def test_a_load_that_really_swings_is_followed_each_time() -> None:
    found = cluster("s", work=Work(auto=4))
    for _ in range(6):
        found.work = Work(auto=60)
        found.run(10)
        assert found.num_speculative == 0
        found.work = Work(auto=4)
        found.run(10)
        assert found.num_speculative == 1


def test_a_single_replica_follows_the_load() -> None:
    found = cluster("s", work=Work(auto=4))
    found.run(10)
    assert found.decisions[-1].reason is DecisionReason.SINGLE_REPLICA
    found.work = Work(auto=60)
    found.run(5)
    assert found.num_speculative == 0
    found.work = Work(auto=4)
    found.run(10)
    assert found.num_speculative == 1


def test_a_load_that_swings_around_the_seats_moves_nothing_to_and_fro() -> None:
    found = cluster("s", work=Work(auto=15))
    for beat in range(240):
        found.work = Work(auto=15 + 3 * (beat % 2))
        found.beat()
    assert len(found.moves) <= 1


@pytest.mark.parametrize("roles", ["sss", "sbb", "bbb"])
def test_a_new_controller_takes_the_roles_as_they_are(roles: str) -> None:
    found = cluster(roles, PoolConfig(min_speculative=0), work=Work(auto=60))
    found.run(60)
    split = found.num_speculative
    before = {name: each.role for name, each in found.replicas.items()}
    found.state, found.snapshot = initial_state(), Snapshot()
    assert found.run(5) == []
    assert {name: each.role for name, each in found.replicas.items()} == before
    assert found.num_speculative == split


def test_nobody_there_is_said_and_costs_nothing() -> None:
    state, decision = step(PoolConfig(min_replicas=2, max_replicas=4), initial_state(), Snapshot(), 1.0)
    assert (decision.reason, decision.num_replicas, decision.roles) == (DecisionReason.NO_REPLICAS, 2, {})
    assert state.started_s is None


def test_without_step_times_nothing_is_decided() -> None:
    found = cluster("sss", work=Work(auto=150))
    found.run(2)
    snapshot = Snapshot(
        replicas={
            name: type(each)(report=type(each.report)(replica_id=name, role=each.report.role), heard_s=each.heard_s)
            for name, each in found.snapshot.replicas.items()
        }
    )
    assert step(found.config, found.state, snapshot, found.now_s)[1].reason is DecisionReason.STALE


def test_the_least_loaded_replica_of_the_giving_pool_moves() -> None:
    found = cluster("sss", PoolConfig(hold_s=0.0), work=Work(auto=151))
    found.run(2.5)
    assert found.moves[0].replica_id in {"r1", "r2"}  # r0 has the odd sequence
    assert found.moves[0].replica_id == "r1"


def test_a_replica_that_does_not_obey_is_given_up_and_left_alone() -> None:
    found = cluster("sss", work=Work(auto=150))
    found.replicas["r0"].obeys = False
    found.run(2.5)
    assert [move.replica_id for move in found.moves] == ["r0"]
    assert found.run(4.5) == []
    assert found.decisions[-1].reason is DecisionReason.MOVING
    assert [move.replica_id for move in found.run(20)] == ["r1", "r2"]


def test_with_nobody_left_to_ask_the_controller_waits() -> None:
    found = cluster("s", work=Work(auto=100))
    found.replicas["r0"].obeys = False
    found.run(15)
    assert len(found.moves) == 1
    assert found.decisions[-1].reason is DecisionReason.WAITING


def test_a_move_ends_with_its_replica() -> None:
    found = cluster("sss", work=Work(auto=150))
    found.replicas["r0"].obeys = False
    found.run(2.5)
    assert found.decisions[-1].move is not None
    found.replicas["r0"].is_draining = True
    found.beat()
    assert found.decisions[-1].reason is not DecisionReason.MOVING


def test_a_pin_moves_without_delay_one_by_one_and_holds_until_it_ends() -> None:
    found = cluster("ssss", work=Work(auto=4))
    found.run(5)
    found.state = pin(found.state, Pin(num_speculative=1, until_s=found.now_s + 30))
    found.run(3)
    assert found.num_speculative == 1
    found.run(26)
    assert found.num_speculative == 1
    assert found.decisions[-1].reason is DecisionReason.PINNED
    found.run(15)
    assert found.num_speculative == 4


def test_a_pin_is_kept_within_bounds_and_can_be_taken_back() -> None:
    found = cluster("sss", work=Work(auto=4))
    found.run(5)
    found.state = pin(found.state, Pin(num_speculative=0, until_s=float("inf")))
    found.run(10)
    assert found.num_speculative == 1
    found.state = unpin(found.state)
    found.run(15)
    assert found.num_speculative == 3


def test_dry_run_decides_and_moves_nothing() -> None:
    found = cluster("sss", PoolConfig(dry_run=True), work=Work(auto=150))
    found.run(10)
    assert found.moves == []
    assert found.num_speculative == 3
    assert found.decisions[-1].reason is DecisionReason.DRY_RUN
    assert found.decisions[-1].inputs["target_speculative"] < 3


@pytest.mark.parametrize(("mode", "role"), [("speculative", Role.SPECULATIVE), ("batch", Role.BATCH)])
def test_a_fixed_mode_gives_all_replicas_its_role(mode: str, role: Role) -> None:
    found = cluster("sbs", PoolConfig(mode=mode), work=Work(auto=150))  # type: ignore[arg-type]
    found.run(3)
    assert {each.role for each in found.replicas.values()} == {role}
    assert found.moves == []


def test_a_pool_below_its_bounds_is_filled_at_once() -> None:
    found = cluster("sbb", PoolConfig(min_batch=1), work=Work(bulk=100))
    found.run(5)
    found.replicas["r0"].is_silent = True
    found.run(found.config.stale_after_s + 1)
    assert found.num_speculative == 1
    assert DecisionReason.BOUNDS in {decision.reason for decision in found.decisions if decision.move is not None}


@pytest.mark.parametrize(("work", "role"), [(Work(auto=4), Role.SPECULATIVE), (Work(auto=300), Role.BATCH)])
def test_a_new_replica_gets_the_role_that_fits_without_a_move(work: Work, role: Role) -> None:
    found = cluster("ssbb" if role is Role.BATCH else "ssss", work=work, config=PoolConfig(min_speculative=2))
    found.run(20)
    num_moves = len(found.moves)
    other = Role.BATCH if role is Role.SPECULATIVE else Role.SPECULATIVE
    found.replicas["new"] = FakeReplica(role=other)
    found.beat()
    assert found.replicas["new"].role is role
    assert len(found.moves) == num_moves


def test_a_silent_replica_that_comes_back_with_work_keeps_its_role() -> None:
    found = cluster("sss", work=Work(auto=4, bulk=6))
    found.run(10)
    found.replicas["r2"].is_silent = True
    found.run(70)
    found.replicas["r2"].is_silent, found.replicas["r2"].role = False, Role.BATCH
    found.beat()
    assert found.replicas["r2"].load == 6
    assert found.decisions[-1].roles["r2"] is Role.BATCH


def test_bulk_work_is_recognised_once_and_then_remembered() -> None:
    found = cluster("sss", work=Work(bulk=90), noise_ratio=0.1)
    found.run(60)
    assert len(found.moves) == 2
    assert found.num_speculative == 3
    assert found.state.learned.bulk_ratio == 1
    assert found.run(200) == []


@pytest.mark.parametrize(
    "work",
    [
        Work(auto=24),
        Work(auto=120),
        Work(interactive=12, bulk=60),
        Work(interactive=30, bulk=30),
        Work(auto=60, bulk=60),
        Work(interactive=45, bulk=4),
    ],
    ids=str,
)
def test_the_settled_split_has_nearly_the_tokens_of_the_best_fixed_one(work: Work) -> None:
    config = PoolConfig(ttft_slo_s=60.0)
    found = cluster("sss", config, work=work, times=SATURATING)
    found.run(60)
    fixed = []
    for roles in ("sss", "ssb", "sbb"):
        other = cluster(roles, PoolConfig(dry_run=True), work=work, times=SATURATING)
        other.run(1)
        fixed.append(other.tokens_per_s)
    assert found.tokens_per_s >= 0.93 * max(fixed)


def test_every_decision_tells_its_figures() -> None:
    found = cluster("ssb", work=Work(auto=40))
    found.run(2)
    inputs = found.decisions[-1].inputs
    assert inputs["num_speculative"] == 2
    assert inputs["sequences_speculative"] + inputs["sequences_batch"] == 40
    assert {"tokens_per_s_now", "tokens_per_s_target", "missing_now", "acceptance_rate"} <= inputs.keys()
