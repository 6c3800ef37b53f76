"""A drafter's process that also notes what it does and when: `python -m tests.benchmarks.traced_drafter`.

It is started by `deployments.drafter_process`. When it ends it prints what it noted as one line of JSON.
"""

import json
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from cluster.engine.drafters.run_ahead import Outgoing, RunAhead
from cluster.engine.drafters.run_ahead_state import Task
from cluster.messages import Message, Round, Table
from deployments.drafter_process import main
from tests.benchmarks.timeline_svg import Pass, PassKind


class TracedAhead:
    """Stands between the channel and the draft model.

    Args:
        ahead: the draft model's mind.

    Attributes:
        passes: those that ran.
        heard: (monotonic time, `base_length`) of each row of each round that was taken up.
    """

    def __init__(self, ahead: RunAhead) -> None:
        self._ahead = ahead
        self.passes: list[Pass] = []
        self.heard: list[tuple[float, int]] = []

    @property
    def has_work(self) -> bool:
        """As in `RunAhead`."""
        return self._ahead.has_work

    def handle(self, peer: bytes, message: Message) -> Outgoing:
        """As in `RunAhead`; rounds are noted."""
        if isinstance(message, Round):
            self.heard += [(time.monotonic(), row.base_length) for row in message.rows]
        return self._ahead.handle(peer, message)

    def step(self) -> Outgoing:
        """As in `RunAhead`; the pass is noted."""
        had_branches = {task: task.job.branches is not None for task in self._ahead._book.tasks.values()}
        began_s = time.monotonic()
        out = self._ahead.step()
        self.passes.append(
            Pass(
                began_s=began_s,
                ended_s=time.monotonic(),
                kind=_kind_of(had_branches),
                tables=tuple(
                    table.base_length
                    for _, message in out
                    for table in (message.sequences if isinstance(message, Table) else ())
                ),
            )
        )
        return out

    def drop_peer(self, peer: bytes) -> None:
        """As in `RunAhead`."""
        self._ahead.drop_peer(peer)

    def evict_idle(self) -> int:
        """As in `RunAhead`."""
        return self._ahead.evict_idle()

    def to_json(self) -> dict[str, Any]:
        """What was noted."""
        return {"passes": [asdict(item) for item in self.passes], "heard": self.heard}


def passes_from_json(data: Iterable[Mapping[str, Any]]) -> tuple[Pass, ...]:
    """The passes behind `TracedAhead.to_json`."""
    return tuple(Pass(**{**item, "kind": PassKind(item["kind"]), "tables": tuple(item["tables"])}) for item in data)


def _kind_of(had_branches: Mapping[Task, bool]) -> PassKind:
    """The kind of a pass that is over, by the tasks before it: the one that most hangs on, where they differ."""
    kinds = {
        PassKind.BRANCHES if had else PassKind.READING if _is_reading(task) else PassKind.TRUNK
        for task, had in had_branches.items()
        if task.num_skipped == 0  # It took part.
    }
    return next((kind for kind in (PassKind.TRUNK, PassKind.BRANCHES) if kind in kinds), PassKind.READING)


def _is_reading(task: Task) -> bool:
    """True when no round waits for it, or its trunk is not at its end yet."""
    return task.due is None or task.job.branches is None


if __name__ == "__main__":
    traced = main(TracedAhead)
    assert isinstance(traced, TracedAhead)
    sys.stdout.write(json.dumps(traced.to_json()) + "\n")
