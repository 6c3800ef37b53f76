"""What the controller never does, whatever happens to the cluster."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from autoscaling.pool_config import PoolConfig
from autoscaling.pool_controller import heard_all, overview, pin, reply_for, step
from autoscaling.pool_objective import bounds
from autoscaling.types import Decision, DecisionReason, Pin
from cluster.types import Role
from tests.autoscaling.pool_cluster import FakeCluster, FakeReplica, Work, cluster

COUNTS = st.integers(0, 120)
WORK = st.builds(Work, auto=COUNTS, interactive=st.integers(0, 40), bulk=COUNTS)
NAMES = st.sampled_from(["r0", "r1", "r2", "r3", "r4"])
EVENTS = st.one_of(
    st.tuples(st.just("work"), WORK),
    st.tuples(st.sampled_from(["silent", "speaks", "drains", "disobeys", "obeys", "new", "flips"]), NAMES),
    st.tuples(st.just("pin"), st.integers(0, 5)),
    st.tuples(st.just("wait"), st.integers(1, 16)),
)
CONFIGS = st.builds(
    PoolConfig,
    min_speculative=st.integers(0, 2),
    max_speculative=st.sampled_from([None, 2, 3]),
    min_batch=st.integers(0, 2),
    hold_s=st.sampled_from([0.0, 1.0]),
    cooldown_s=st.sampled_from([0.0, 5.0]),
    move_timeout_s=st.sampled_from([1.0, 5.0]),
)
QUICK = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def happen(found: FakeCluster, event: str, what: object) -> None:
    if event == "work":
        assert isinstance(what, Work)
        found.work = what
    elif event == "pin":
        assert isinstance(what, int)
        found.state = pin(found.state, Pin(num_speculative=what, until_s=found.now_s + 4))
    elif event == "new":
        found.replicas[f"new{len(found.replicas)}"] = FakeReplica(role=Role.SPECULATIVE)
    elif isinstance(what, str) and what in found.replicas:
        each = found.replicas[what]
        if event == "flips":
            each.role = Role.BATCH if each.role is Role.SPECULATIVE else Role.SPECULATIVE
        each.is_silent = event == "silent" or (each.is_silent and event != "speaks")
        each.is_draining = each.is_draining or event == "drains"
        each.obeys = event == "obeys" or (each.obeys and event != "disobeys")


def check(found: FakeCluster, decision: Decision) -> None:
    """What holds for every decision."""
    live = {
        name: heard.report
        for name, heard in found.snapshot.replicas.items()
        if found.now_s - heard.heard_s <= found.config.stale_after_s and not heard.report.is_draining
    }
    pending = {name for name, report in live.items() if decision.roles[name] is not report.role}
    assigned = set(found.state.moves.assigned)
    assert len(pending - assigned) <= 1
    assert set(decision.roles) == set(found.snapshot.replicas)
    for name, heard in found.snapshot.replicas.items():
        if name not in live:
            assert decision.roles[name] is heard.report.role
    if decision.move is None:
        return
    assert decision.move.replica_id in live
    assert live[decision.move.replica_id].role is not decision.move.role
    low, high = bounds(found.config, len(live))
    after = sum(role is Role.SPECULATIVE for name, role in decision.roles.items() if name in live)
    before = after - (1 if decision.move.role is Role.SPECULATIVE else -1)
    assert low <= after <= high or (after < before > high) or (after > before < low)


@settings(QUICK, max_examples=60)
@given(
    roles=st.text("sb", min_size=1, max_size=5),
    config=CONFIGS,
    events=st.lists(EVENTS, max_size=12),
    seed=st.integers(0, 99),
)
def test_bounds_hold_and_only_live_replicas_move_one_at_a_time(
    roles: str, config: PoolConfig, events: list[tuple[str, object]], seed: int
) -> None:
    found = cluster(roles, config, noise_ratio=0.1, seed=seed)
    in_flight = None
    for event, what in [("wait", 4), *events, ("wait", 8)]:
        happen(found, event, what)
        for _ in range(what if event == "wait" and isinstance(what, int) else 1):
            decision = found.beat()
            check(found, decision)
            if decision.move is not None:
                assert in_flight is None or in_flight is not found.state.moves.move
            if decision.reason is DecisionReason.MOVING:
                assert decision.move is None
                assert found.state.moves.move is in_flight
            in_flight = found.state.moves.move


@QUICK
@given(roles=st.text("sb", min_size=1, max_size=4), work=WORK, seed=st.integers(0, 99))
def test_the_same_arguments_give_the_same_decision_and_a_second_step_no_second_move(
    roles: str, work: Work, seed: int
) -> None:
    found = cluster(roles, PoolConfig(min_replicas=1, max_replicas=8), work=work, noise_ratio=0.1, seed=seed)
    for _ in range(12):
        state = found.state
        decision = found.beat()
        assert step(found.config, state, found.snapshot, found.now_s) == (found.state, decision)
        again, second = step(found.config, found.state, found.snapshot, found.now_s)
        assert second.move is None or decision.move is None
        assert second.roles == decision.roles | ({second.move.replica_id: second.move.role} if second.move else {})
        assert again.moves.move in (found.state.moves.move, second.move)


@QUICK
@given(roles=st.text("sb", min_size=1, max_size=4), work=WORK, order=st.randoms(use_true_random=False))
def test_duplicate_heartbeats_and_their_order_change_nothing(roles: str, work: Work, order: object) -> None:
    once, thrice = cluster(roles, work=work), cluster(roles, work=work, repeats=3)
    for _ in range(30):
        once.beat()
        thrice.beat()
        items = list(thrice.snapshot.replicas.items())
        order.shuffle(items)  # type: ignore[attr-defined]
        thrice.snapshot = replace(thrice.snapshot, replicas=dict(items))
    assert [(move.replica_id, move.role, move.began_s) for move in once.moves] == [
        (move.replica_id, move.role, move.began_s) for move in thrice.moves
    ]


@QUICK
@given(roles=st.text("sb", min_size=2, max_size=4), work=WORK, wanted=st.integers(0, 5))
def test_a_pin_is_obeyed_within_bounds_and_ends(roles: str, work: Work, wanted: int) -> None:
    found = cluster(roles, work=work)
    found.run(3)
    found.state = pin(found.state, Pin(num_speculative=wanted, until_s=found.now_s + 12))
    found.run(6)
    low, high = bounds(found.config, len(roles))
    for _ in range(10):
        assert found.num_speculative == min(max(wanted, low), high)
        assert found.beat().reason is DecisionReason.PINNED
    found.run(1.5)
    assert found.decisions[-1].reason is not DecisionReason.PINNED
    assert found.state.pin is None


def moves_after_settling(roles: str, work: Work, seed: int) -> int:
    """Moves in ten minutes of a constant load with noisy reports, after it had time to settle."""
    found = cluster(roles, PoolConfig(heartbeat_s=1.0), work=work, noise_ratio=0.1, seed=seed)
    found.run(180)
    return len(found.run(600))


@pytest.mark.parametrize(
    ("roles", "work"),
    [("sss", Work(auto=60)), ("sbb", Work(interactive=30, bulk=100)), ("s", Work(auto=24))],
    ids=["auto", "mixed", "single"],
)
def test_a_constant_load_settles(roles: str, work: Work) -> None:
    assert moves_after_settling(roles, work, seed=1) <= 1


@pytest.mark.slow
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(roles=st.text("sb", min_size=1, max_size=5), work=WORK, seed=st.integers(0, 99))
@example(roles="bbb", work=Work(interactive=30, bulk=82), seed=0)
@example(roles="bss", work=Work(auto=5, interactive=17, bulk=63), seed=0)
def test_any_constant_load_settles(roles: str, work: Work, seed: int) -> None:
    # Noise may make a split that is about as good look better: it is tried once, and taken back.
    assert moves_after_settling(roles, work, seed) <= 2


@QUICK
@given(roles=st.text("sb", min_size=1, max_size=5), work=WORK)
def test_replies_give_every_replica_its_role_and_the_plan(roles: str, work: Work) -> None:
    found = cluster(roles, PoolConfig(min_replicas=1, max_replicas=4), work=work)
    found.run(4)
    seen = overview(found.config, found.snapshot, found.now_s)
    for name in found.replicas:
        report = found.report(name)
        reply = reply_for(found.decisions[-1], seen, report)
        assert reply.role is found.decisions[-1].roles[name]
        assert 1 <= reply.num_replicas <= 4
    stranger = replace(found.report("r0"), replica_id="stranger", role=Role.BATCH)
    assert reply_for(found.decisions[-1], seen, stranger).role is Role.BATCH


def test_old_reports_are_forgotten() -> None:
    found = cluster("ss")
    found.beat()
    later = heard_all(found.snapshot, [found.report("r0")], found.now_s + 61)
    assert set(later.replicas) == {"r0"}
