"""The controller without Ray: reports in, roles and replica counts out, and a memory of what was decided."""

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec

from autoscaling.pool_config import PoolConfig
from autoscaling.pool_controller import (
    heard_all,
    initial_state,
    overview,
    pin,
    reply_for,
    step,
    unpin,
)
from autoscaling.types import Decision, HeardReplica, Move, Pin, ReplicaReport, Snapshot
from cluster.clock import Clock, MonotonicClock
from cluster.errors import ConfigError, check_range
from cluster.telemetry import names
from cluster.telemetry.prometheus import MetricSet
from deployments.controller_metrics import ControllerRecorder
from deployments.heartbeat import decode_report, encode

logger = logging.getLogger(__name__)

MAX_DECISIONS = 256
"""Decisions that are remembered."""

STEPS_PER_HEARTBEAT = 4
"""Most steps in a heartbeat's period, however many replicas report."""

SHIFT_S = 30.0
"""How long a shifted split is held before the load decides again."""

MAX_PIN_S = 7 * 86_400


class ControllerCore:
    """Holds what was heard and decided. All of it is soft: a new one knows as much after one heartbeat of each replica.

    Args:
        config: of the pools.
        replica: label of this replica in metrics.
        running: replicas that take work, as Serve says; empty while that is not known.
        clock: for the age of reports.
    """

    def __init__(
        self,
        config: PoolConfig,
        *,
        replica: str = "0",
        running: Callable[[], frozenset[str]] = frozenset,
        clock: Clock | None = None,
    ) -> None:
        self._config, self._running, self._clock = config, running, clock or MonotonicClock()
        self._snapshot, self._state = Snapshot(), initial_state()
        self._reports: dict[str, ReplicaReport] = {}
        self._seen_running: frozenset[str] = frozenset()
        self._decisions: deque[Decision] = deque(maxlen=MAX_DECISIONS)
        self._recorder = ControllerRecorder(config, replica)
        self.tick()

    def configure(self, config: PoolConfig) -> None:
        """Decide by other settings from the next step on; what was heard and decided stays."""
        self._config = config
        self._recorder.configure(config)

    def heartbeat(self, data: bytes) -> bytes:
        """The encoded reply to an encoded report.

        Raises:
            msgspec.DecodeError: the report is of another version; its sender keeps its role.
        """
        try:
            report = decode_report(data)
        except msgspec.DecodeError:
            self._recorder.metrics.add(names.HEARTBEATS_HEARD, 1, "malformed")
            raise
        self._recorder.metrics.add(names.HEARTBEATS_HEARD, 1, "ok")
        self._reports[report.replica_id] = report
        if self._clock.now_s() - self._decision.at_s >= self._config.heartbeat_s / STEPS_PER_HEARTBEAT:
            self.tick()
        return encode(reply_for(self._decision, self._overview, report))

    def tick(self) -> None:
        """Decide anew on what was heard."""
        now_s = self._clock.now_s()
        reports, self._reports = self._reports, {}
        running = self._running()
        heard = heard_all(self._snapshot, reports.values(), now_s)
        self._seen_running = (self._seen_running & heard.replicas.keys()) | running
        gone = self._seen_running - running if running else frozenset[str]()
        self._snapshot = _with_leavers(heard, gone)
        self._state, self._decision = step(self._config, self._state, self._snapshot, now_s)
        self._overview = overview(self._config, self._snapshot, now_s)
        self._remember(self._decision)
        self._recorder.record(
            self._decision, self._snapshot, self._overview.pools, is_pinned=self._state.pin is not None
        )

    def pin(self, num_speculative: int, seconds: float) -> dict[str, Any]:
        """Fix the split for a time; returns the new status.

        Raises:
            ConfigError: an argument is out of range.
        """
        self._check_split(num_speculative)
        if not 0 < seconds <= MAX_PIN_S:
            raise ConfigError(field="seconds", value=seconds, allowed=f"more than 0, at most {MAX_PIN_S}")
        wish = Pin(num_speculative=num_speculative, until_s=self._clock.now_s() + seconds)
        self._state = pin(self._state, wish)
        logger.info("the split is pinned", extra={"fields": {"num_speculative": num_speculative, "seconds": seconds}})
        self.tick()
        return self.status()

    def unpin(self) -> dict[str, Any]:
        """Let the load decide again; returns the new status."""
        self._state = unpin(self._state)
        logger.info("the split is no longer pinned")
        self.tick()
        return self.status()

    def shift(self, num_speculative: int, *, dry_run: bool) -> dict[str, Any]:
        """Move to a split and hold it for `SHIFT_S`, or tell which replicas would move.

        Raises:
            ConfigError: the split is out of range.
        """
        self._check_split(num_speculative)
        moves = self._moves_to(num_speculative)
        if not dry_run:
            self.pin(num_speculative, SHIFT_S)
        return {
            "dry_run": dry_run,
            "num_speculative": num_speculative,
            "hold_s": SHIFT_S,
            "moves": [{"replica_id": move.replica_id, "role": move.role.value} for move in moves],
        }

    def status(self) -> dict[str, Any]:
        """Everything that is known, as plain values; ages and times are seconds before now."""
        now_s = self._clock.now_s()
        pinned = self._state.pin
        return {
            "config": msgspec.to_builtins(self._config),
            "decision": self._told(self._decision, now_s),
            "decisions": [self._told(each, now_s) for each in self._decisions],
            "pin": None
            if pinned is None
            else {"num_speculative": pinned.num_speculative, "seconds_left": max(0.0, pinned.until_s - now_s)},
            "pools": msgspec.to_builtins(self._overview.pools),
            "domains": msgspec.to_builtins(self._overview.domains),
            "replicas": [self._told_replica(each, now_s) for _, each in sorted(self._snapshot.replicas.items())],
        }

    def metrics(self) -> str:
        """The scrape."""
        return self._recorder.metrics.render()

    def metric_sets(self) -> tuple[MetricSet, ...]:
        """What the scrape is made of."""
        return (self._recorder.metrics,)

    def _check_split(self, num_speculative: int) -> None:
        check_range("num_speculative", num_speculative, 0, len(self._snapshot.replicas))

    def _moves_to(self, num_speculative: int) -> list[Move]:
        """The moves that the controller would make, each as soon as the one before it is done."""
        now_s = self._clock.now_s()
        config = replace(self._config, dry_run=False)
        state = pin(initial_state(), Pin(num_speculative=num_speculative, until_s=now_s + SHIFT_S))
        replicas, moves = dict(self._snapshot.replicas), list[Move]()
        while len(moves) < len(replicas):
            _, decision = step(config, state, Snapshot(replicas=replicas), now_s)
            if decision.move is None:
                break
            moves.append(decision.move)
            moved = replicas[decision.move.replica_id]
            replicas[decision.move.replica_id] = replace(moved, report=replace(moved.report, role=decision.move.role))
        return moves

    def _remember(self, decision: Decision) -> None:
        last = self._decisions[-1] if self._decisions else None
        self._decisions.append(decision)
        if decision.move is None and last is not None and last.reason is decision.reason:
            return
        move = decision.move
        fields = {
            "reason": decision.reason.value,
            "move": None if move is None else {"replica": move.replica_id, "role": move.role.value},
            "roles": {replica_id: role.value for replica_id, role in decision.roles.items()},
            "num_replicas": decision.num_replicas,
            "inputs": decision.inputs,
        }
        logger.info("pools: %s", decision.reason.value, extra={"fields": fields})

    def _told(self, decision: Decision, now_s: float) -> dict[str, Any]:
        told: dict[str, Any] = msgspec.to_builtins(decision)
        del told["at_s"]
        return told | {"age_s": now_s - decision.at_s}

    def _told_replica(self, heard: HeardReplica, now_s: float) -> dict[str, Any]:
        told: dict[str, Any] = msgspec.to_builtins(heard.report)
        del told["step_times"]
        wanted = self._decision.roles.get(heard.report.replica_id, heard.report.role)
        return told | {"age_s": now_s - heard.heard_s, "wanted_role": wanted.value}


def _with_leavers(snapshot: Snapshot, gone: frozenset[str]) -> Snapshot:
    """The snapshot, with the replicas that take no work any more marked as draining."""
    leaving = {
        replica_id: replace(heard, report=replace(heard.report, is_draining=True))
        for replica_id, heard in snapshot.replicas.items()
        if replica_id in gone and not heard.report.is_draining
    }
    return Snapshot(replicas={**snapshot.replicas, **leaving}) if leaving else snapshot
