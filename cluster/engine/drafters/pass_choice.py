"""Which jobs share the next forward pass of a drafter: by time to verdict; nobody waits for ever. Pure; no torch."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cluster.engine.drafters.step_cost import PassCost

MAX_SKIPS = 6
"""Passes that prompts and late jobs are left out of before one goes in whatever it costs the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A job that could run in the next pass.

    Attributes:
        peer: whose.
        num_rows: rows that it would take.
        num_steps_left: passes until it is done.
        left_s: seconds until the verdict; negative when overdue, infinite without one.
        is_catching_up: computes a long stretch of known tokens: takes many rows, and no table hangs on this pass.
        num_skipped: passes that it was left out of in a row.
    """

    peer: bytes
    num_rows: int
    num_steps_left: int
    left_s: float
    is_catching_up: bool = False
    num_skipped: int = 0

    @property
    def is_on_time(self) -> bool:
        """A table hangs on this pass and can still be in time."""
        return self.left_s > 0 and not self.is_catching_up and math.isfinite(self.left_s)


def choose(candidates: Sequence[Candidate], *, cost: PassCost, max_rows: int, longest_s: float = math.inf) -> list[int]:
    """Pick the jobs of the next pass.

    Jobs join by time to verdict while the pass stays short enough for every verifier that is in time. Fan-outs were
    planned by fair shares, so all fit as a rule; what is left out is somebody's prompt, or drafts that have time.

    Args:
        candidates: all jobs that are not done.
        cost: of a pass.
        max_rows: most rows of a pass.
        longest_s: how long a pass may be for the sake of verifiers whose next round comes any time; not heeded when no
            pass is so short.

    Returns:
        Their indices, most urgent first; at least one when there is any.
    """
    max_rows = cost.rows_within(longest_s, max_rows) or max_rows
    capacity = _capacity([item for item in candidates if item.is_on_time], cost, max_rows)
    chosen: list[int] = []
    num_rows = 0
    for index in sorted(range(len(candidates)), key=lambda i: _urgency(candidates[i])):
        item = candidates[index]
        if not chosen or num_rows + item.num_rows <= capacity:
            chosen.append(index)
            num_rows += item.num_rows
    return chosen


def _urgency(item: Candidate) -> tuple[int, float]:
    """What waited too long, then by time to verdict, then what is too late, then prompts."""
    if item.num_skipped >= MAX_SKIPS and not item.is_on_time:
        return 0, -item.num_skipped
    if item.is_catching_up:
        return 3, item.left_s
    return (1, item.left_s) if item.left_s > 0 else (2, item.left_s)


def _capacity(on_time: Iterable[Candidate], cost: PassCost, max_rows: int) -> int:
    """Rows of a pass with which each verifier's tables are in time, those set aside that no pass can save."""
    by_peer: dict[bytes, tuple[int, float]] = {}
    for item in on_time:
        num_rows, pass_s = by_peer.get(item.peer, (0, math.inf))
        by_peer[item.peer] = num_rows + item.num_rows, min(pass_s, item.left_s / max(1, item.num_steps_left))
    capacity = max_rows
    for num_rows, pass_s in by_peer.values():
        allowed = cost.rows_within(pass_s, max_rows)
        if allowed >= num_rows:
            capacity = min(capacity, allowed)
    return capacity
