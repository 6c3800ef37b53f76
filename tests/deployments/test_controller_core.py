import itertools
import json
import logging
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from autoscaling.pool_config import PoolConfig
from autoscaling.types import LatencyWindow, ReplicaReport
from cluster.clock import ManualClock
from cluster.engine.step_time import StepTimes
from cluster.errors import ConfigError
from cluster.types import Role
from deployments.controller_core import MAX_DECISIONS, SHIFT_S, ControllerCore
from deployments.heartbeat import decode_reply, encode

TIMES = StepTimes(knots=((1, 0.02), (16, 0.022), (32, 0.03), (256, 0.24)))


class Cluster:
    """Replicas that beat, and do what they are told at once."""

    def __init__(self, num_replicas: int = 3, **config: Any) -> None:
        self.clock = ManualClock(1000.0)
        self.running: frozenset[str] = frozenset()
        self.config = PoolConfig(**config)
        self.core = self.start()
        self.reports = {
            f"r{index}": ReplicaReport(replica_id=f"r{index}", role=Role.SPECULATIVE, step_times=TIMES)
            for index in range(num_replicas)
        }

    def start(self) -> ControllerCore:
        self.core = ControllerCore(self.config, replica="c1", running=lambda: self.running, clock=self.clock)
        return self.core

    def beat(self, seconds: float = 0.5) -> None:
        """All report, and time passes."""
        for name, report in list(self.reports.items()):
            reply = decode_reply(self.core.heartbeat(encode(report)))
            self.reports[name] = replace(report, role=reply.role)
        self.clock.advance(seconds)

    def beat_for(self, seconds: float) -> None:
        for _ in range(round(seconds / 0.5)):
            self.beat()

    @property
    def num_batch(self) -> int:
        return sum(report.role is Role.BATCH for report in self.reports.values())

    def replicas(self) -> dict[str, dict[str, Any]]:
        return {each["replica_id"]: each for each in self.core.status()["replicas"]}


def test_a_pin_moves_replicas_one_by_one_and_ends_by_itself() -> None:
    cluster = Cluster()
    cluster.beat_for(2)
    status = cluster.core.pin(1, 60)
    assert status["pin"]["seconds_left"] == pytest.approx(60)
    seen = []
    for _ in range(20):
        cluster.beat()
        seen.append(cluster.num_batch)
    assert seen[-1] == 2
    assert all(after - before <= 1 for before, after in itertools.pairwise(seen))
    cluster.beat_for(61)
    assert cluster.core.status()["pin"] is None


def test_unpin_ends_a_pin() -> None:
    cluster = Cluster()
    cluster.beat_for(2)
    cluster.core.pin(1, 60)
    assert cluster.core.unpin()["pin"] is None


@pytest.mark.parametrize(
    ("split", "seconds", "field"),
    [(-1, 10, "num_speculative"), (4, 10, "num_speculative"), (1, 0, "seconds"), (1, float("nan"), "seconds")],
)
def test_pins_out_of_range_are_refused_by_name(split: int, seconds: float, field: str) -> None:
    cluster = Cluster()
    cluster.beat()
    cluster.beat()
    with pytest.raises(ConfigError) as caught:
        cluster.core.pin(split, seconds)
    assert caught.value.field == field


def test_a_dry_run_of_a_shift_tells_the_moves_and_makes_none() -> None:
    cluster = Cluster()
    cluster.beat_for(2)
    told = cluster.core.shift(1, dry_run=True)
    assert [move["role"] for move in told["moves"]] == ["batch", "batch"]
    assert len({move["replica_id"] for move in told["moves"]}) == 2
    cluster.beat_for(5)
    assert (cluster.num_batch, cluster.core.status()["pin"]) == (0, None)
    told = cluster.core.shift(1, dry_run=False)
    cluster.beat_for(5)
    assert {name for name, report in cluster.reports.items() if report.role is Role.BATCH} == {
        move["replica_id"] for move in told["moves"]
    }
    cluster.beat_for(SHIFT_S)
    assert cluster.core.status()["pin"] is None


def test_a_new_controller_takes_the_roles_as_they_are() -> None:
    cluster = Cluster()
    cluster.beat_for(2)
    cluster.core.pin(1, 3600)
    cluster.beat_for(10)
    before = {name: report.role for name, report in cluster.reports.items()}
    assert cluster.num_batch == 2
    cluster.start()
    cluster.beat()
    assert {name: report.role for name, report in cluster.reports.items()} == before


def test_a_replica_that_serve_is_removing_counts_as_draining() -> None:
    cluster = Cluster()
    cluster.beat()
    cluster.running = frozenset({"r0", "r1", "r2"})
    cluster.beat()
    cluster.running = frozenset({"r0", "r1"})
    cluster.beat()
    cluster.beat()
    assert {name: each["is_draining"] for name, each in cluster.replicas().items()} == {
        "r0": False,
        "r1": False,
        "r2": True,
    }
    assert 'outrider_pool_leaving_replicas{controller="c1"} 1.0' in cluster.core.metrics()


def test_a_replica_that_reports_before_serve_tells_of_it_is_not_draining() -> None:
    cluster = Cluster()
    cluster.running = frozenset({"r0"})
    cluster.beat()
    cluster.beat()
    assert not any(each["is_draining"] for each in cluster.replicas().values())


def test_when_serve_tells_of_no_replica_at_all_none_is_draining() -> None:
    cluster = Cluster()
    cluster.running = frozenset({"r0", "r1", "r2"})
    cluster.beat()
    cluster.beat()
    cluster.running = frozenset()
    cluster.beat()
    cluster.beat()
    assert not any(each["is_draining"] for each in cluster.replicas().values())


def test_a_broken_report_is_counted_and_harms_no_other() -> None:
    cluster = Cluster(1)
    with pytest.raises(msgspec.DecodeError):
        cluster.core.heartbeat(b"nonsense")
    cluster.beat()
    text = cluster.core.metrics()
    assert 'outrider_controller_heartbeats_total{controller="c1",result="malformed"} 1.0' in text
    assert 'outrider_controller_heartbeats_total{controller="c1",result="ok"} 1.0' in text


def test_decisions_are_remembered_up_to_a_bound_and_logged_when_something_changes(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("deployments"), "propagate", True)
    cluster = Cluster()
    with caplog.at_level(logging.INFO, logger="deployments.controller_core"):
        cluster.beat_for(3)
        num_quiet = len(caplog.records)
        cluster.beat_for(200)
        assert len(caplog.records) == num_quiet
        cluster.core.pin(2, 60)
        cluster.beat_for(3)
    assert len(cluster.core.status()["decisions"]) == MAX_DECISIONS
    moves = [record.fields for record in caplog.records if getattr(record, "fields", {}).get("move")]  # type: ignore[attr-defined]
    assert [move["move"]["role"] for move in moves] == ["batch"]
    assert moves[0]["inputs"]


def test_however_many_replicas_report_there_are_few_decisions_in_a_heartbeat() -> None:
    cluster = Cluster(300)
    for _ in range(4):
        cluster.beat()
    assert len(cluster.core.status()["decisions"]) <= 4 * 4 + 1


def test_the_status_is_plain_values_and_the_scrape_shows_the_pools() -> None:
    cluster = Cluster()
    latency = LatencyWindow(ttft_p95_s=0.5, tpot_p95_s=0.03, num_requests=4)
    cluster.reports["r0"] = replace(cluster.reports["r0"], tokens_per_s=50.0, num_running=2, latency=latency)
    cluster.beat_for(2)
    cluster.core.pin(2, 60)
    cluster.beat_for(5)
    status = json.loads(json.dumps(cluster.core.status()))
    assert status["pools"]["speculative"]["num_replicas"] == 2
    assert {each["wanted_role"] for each in status["replicas"]} == {"speculative", "batch"}
    text = cluster.core.metrics()
    for line in (
        'outrider_pool_replicas{controller="c1",role="speculative"} 2.0',
        'outrider_pool_target_replicas{controller="c1",role="batch"} 1.0',
        'outrider_pool_moves_total{controller="c1",reason="pinned",role="batch"} 1.0',
        'outrider_pool_decision_input{controller="c1",decision="now",input="num_batch"} 1.0',
        'outrider_pool_decision_input{controller="c1",decision="move",input="num_batch"} 0.0',
        'outrider_pool_decision_input{controller="c1",decision="move",input="target_speculative"} 2.0',
        'outrider_pool_tokens_per_second{controller="c1",role="speculative"} 50.0',
        'outrider_pool_latency_p95_seconds{controller="c1",kind="ttft",role="speculative"} 0.5',
        'outrider_pool_objective_seconds{controller="c1",kind="ttft"} 2.0',
        'outrider_pool_pinned{controller="c1"} 1.0',
        'outrider_planned_replicas{controller="c1"} 3.0',
    ):
        assert line in text
