"""What Ray gave to the replica in this process, and the energy counters of its GPUs."""

from dataclasses import dataclass, field
from typing import Any

from cluster.telemetry.cost import Resources
from cluster.telemetry.energy import GpuEnergy, find_gpus


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """What a replica holds.

    Attributes:
        resources: to be paid for.
        energy: of its GPUs; None where it has none, or nothing says.
    """

    resources: Resources = field(default_factory=Resources)
    energy: GpuEnergy | None = None


def holding_of(num_cpus: float, num_gpus: float, gpu_ids: list[str]) -> Holding:
    """A replica with these resources.

    Args:
        num_cpus: that are reserved.
        num_gpus: the same; below 1 for a share of one.
        gpu_ids: of the GPUs that it sees.
    """
    share = min(1.0, num_gpus / len(gpu_ids)) if gpu_ids else 0.0
    energy = find_gpus(gpu_ids, share=share)
    names = () if energy is None else energy.names
    return Holding(resources=Resources(num_gpus=num_gpus, num_cpus=num_cpus, gpu_names=names), energy=energy)


def own_holding() -> Holding:
    """What Ray reserved for the actor in this process."""
    import ray

    context: Any = ray.get_runtime_context()  # its methods are not typed
    assigned: dict[str, float] = context.get_assigned_resources()
    gpu_ids: list[str] = context.get_accelerator_ids().get("GPU", [])
    return holding_of(assigned.get("CPU", 0.0), assigned.get("GPU", 0.0), gpu_ids)
