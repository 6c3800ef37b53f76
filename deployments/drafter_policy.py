"""How many drafters: from the share of tables that came too late. Pure.

Serve pickles this module by value into its controller: it imports nothing of ours, and never raises there, because an
error would cost every application its turn.
"""

from typing import Any

LATE_RATIO = "late_ratio"
"""Share of a replica's tables that came too late, 0..1, in `record_autoscaling_stats`."""

BUSY_RATIO = "busy_ratio"
"""Share of time in which a replica drafted, 0..1."""


def desired_drafters(
    num_drafters: int, late: list[float], busy: list[float], *, add_above: float = 0.2, remove_below: float = 0.3
) -> int:
    """The number of drafters to aim for.

    Args:
        num_drafters: how many there are.
        late: `LATE_RATIO` of each that reports.
        busy: `BUSY_RATIO` of each that reports.
        add_above: one more when this share of tables comes late.
        remove_below: one fewer when the others would be busy for less than this share of time.
    """
    if not late or not busy:
        return num_drafters
    if sum(late) / len(late) > add_above:
        return num_drafters + 1
    if num_drafters > 1 and sum(busy) / (num_drafters - 1) < remove_below:
        return num_drafters - 1
    return num_drafters


class LateTablePolicy:
    """`desired_drafters` as a Serve autoscaling policy; Serve applies bounds and delays.

    Args:
        add_above: see `desired_drafters`.
        remove_below: see `desired_drafters`.
    """

    def __init__(self, add_above: float = 0.2, remove_below: float = 0.3) -> None:
        self._add_above, self._remove_below = add_above, remove_below

    def __call__(self, context: Any) -> tuple[int, dict[str, Any]]:
        """The wanted number of replicas, and Serve's state, unused."""
        metrics = context.aggregated_metrics or {}
        late, busy = (list((metrics.get(name) or {}).values()) for name in (LATE_RATIO, BUSY_RATIO))
        wanted = desired_drafters(
            context.target_num_replicas, late, busy, add_above=self._add_above, remove_below=self._remove_below
        )
        return wanted, {}
