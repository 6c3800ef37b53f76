"""Settings by which Serve scales drafters; the policy itself is `deployments.drafter_policy`."""

from dataclasses import dataclass
from typing import Any

from cluster.errors import check_range

MAX_REPLICAS = 1024
METRICS_INTERVAL_S = 2.0
LOOK_BACK_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DrafterScaling:
    """Bounds and thresholds.

    Attributes:
        min_replicas: fewest drafters.
        max_replicas: most drafters.
        add_above_late_ratio: one more when this share of tables comes too late.
        remove_below_busy_ratio: one fewer when the others would be busy for less than this share of time.
        upscale_delay_s: how long the first has to hold, in seconds.
        downscale_delay_s: how long the second has to hold, in seconds.
    """

    min_replicas: int = 1
    max_replicas: int = 4
    add_above_late_ratio: float = 0.2
    remove_below_busy_ratio: float = 0.3
    upscale_delay_s: float = 10.0
    downscale_delay_s: float = 120.0

    def __post_init__(self) -> None:
        """Refuse values out of range, naming field, value and range."""
        self._check("min_replicas", 1, MAX_REPLICAS, "an integer")
        self._check("max_replicas", self.min_replicas, MAX_REPLICAS, "an integer")
        self._check("add_above_late_ratio", 0, 1, "a share")
        self._check("remove_below_busy_ratio", 0, 1, "a share")
        self._check("upscale_delay_s", 0, 86_400, "seconds")
        self._check("downscale_delay_s", 0, 86_400, "seconds")

    def _check(self, name: str, low: int, high: int, kind: str) -> None:
        check_range(f"drafter_scaling.{name}", getattr(self, name), low, high, kind=kind)

    def serve_config(self) -> dict[str, Any]:
        """Serve's `autoscaling_config`."""
        return {
            "min_replicas": self.min_replicas,
            "max_replicas": self.max_replicas,
            "upscale_delay_s": self.upscale_delay_s,
            "downscale_delay_s": self.downscale_delay_s,
            "metrics_interval_s": METRICS_INTERVAL_S,
            "look_back_period_s": LOOK_BACK_S,
            "policy": {
                "policy_function": "deployments.drafter_policy:LateTablePolicy",
                "policy_kwargs": {
                    "add_above": self.add_above_late_ratio,
                    "remove_below": self.remove_below_busy_ratio,
                },
            },
        }
