"""How many replicas Serve should run: what the pool controller planned, as the verifiers tell it. Pure.

Serve pickles this module by value into its controller: it imports nothing of ours, and never raises there, because an
error would cost every application its turn. Serve applies delays and bounds around it.

- `ReplicaPlanPolicy` is for one deployment (`autoscaling_config.policy` of the verifiers). Others keep their own.
- `AppPlanPolicy` is for a whole application (`autoscaling_policy` in a Serve file). It takes the place of the policies
  of all its deployments that scale, so those without a plan keep their number unless they are to follow the verifiers.
"""

from collections.abc import Mapping
from math import ceil
from statistics import median_high
from typing import Any

PLANNED_REPLICAS = "planned_replicas"
"""The plan as a verifier heard it last, in `record_autoscaling_stats`."""


def planned(context: Any) -> int | None:
    """The plan, within the bounds that Serve gives; None when no replica tells one.

    Each replica tells what it heard last. The median is taken, so that one that hears nothing any more changes nothing.

    Args:
        context: Serve's `AutoscalingContext` of the deployment.
    """
    series = (context.raw_metrics or {}).get(PLANNED_REPLICAS) or {}
    # The newest point, not Serve's average over its window: half of an old plan is nobody's plan.
    said = [float(points[-1].value) for points in series.values() if points]
    if not said:
        averages = (context.aggregated_metrics or {}).get(PLANNED_REPLICAS) or {}
        said = [float(value) for value in averages.values()]
    said = [value for value in said if 0 <= value < float("inf")]
    if not said:
        return None
    low, high = context.capacity_adjusted_min_replicas, context.capacity_adjusted_max_replicas
    return int(min(max(round(median_high(said)), low), high))


class ReplicaPlanPolicy:
    """The plan as a Serve autoscaling policy of one deployment; without a plan the number stays."""

    def __call__(self, context: Any) -> tuple[int, dict[str, Any]]:
        """The wanted number of replicas, and Serve's state, unused."""
        wanted = _planned_or_none(context)
        # From 0 replicas nobody tells a plan: Serve itself starts the first one when a request waits.
        return (context.target_num_replicas if wanted is None else wanted), {}


def _planned_or_none(context: Any) -> int | None:
    try:
        return planned(context)
    except Exception:  # noqa: BLE001 -- raised in Serve's controller it would stop the scaling of everything
        return None


class AppPlanPolicy:
    """The plan as a Serve autoscaling policy of an application.

    Args:
        per_verifier: other deployments of it by name that follow the verifiers, with their replicas for each planned
            one; rounded up, at least 1. {"Drafter": 0.25} means one drafter for four verifiers.
    """

    def __init__(self, per_verifier: Mapping[str, float] | None = None) -> None:
        self._per_verifier = dict(per_verifier or {})

    def __call__(self, contexts: Mapping[Any, Any]) -> tuple[dict[Any, int], dict[Any, dict[str, Any]]]:
        """The wanted number by deployment, those that keep theirs left out; and Serve's state, unused."""
        plans = {deployment: _planned_or_none(context) for deployment, context in contexts.items()}
        wanted = {deployment: plan for deployment, plan in plans.items() if plan is not None}
        num_verifiers = max(wanted.values(), default=0)
        for deployment, context in contexts.items():
            ratio = self._per_verifier.get(context.deployment_name)
            if ratio is None or not num_verifiers:
                continue
            low, high = context.capacity_adjusted_min_replicas, context.capacity_adjusted_max_replicas
            following = max(1, ceil(ratio * num_verifiers))
            wanted[deployment] = min(max(following, low), high)
        return wanted, {}
