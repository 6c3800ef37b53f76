from collections.abc import Callable
from dataclasses import replace

import pytest

from autoscaling.pool_config import PoolConfig
from autoscaling.simulation.arrivals import Poisson
from autoscaling.simulation.cost import CostModel, from_roofline
from autoscaling.simulation.hardware import H100
from autoscaling.simulation.models import LLAMA_1B, LLAMA_70B
from autoscaling.simulation.modes import make_mode
from autoscaling.simulation.outcome import Outcome
from autoscaling.simulation.roofline import Roofline
from autoscaling.simulation.simulator import Plant, simulate
from autoscaling.simulation.workload import SEED_MIX, OpenLoop

POOLS = PoolConfig(ttft_slo_s=1.0, tpot_slo_s=0.02, num_speculative_tokens=5)


@pytest.fixture(scope="session")
def cost() -> CostModel:
    target = Roofline(model=LLAMA_70B, gpu=H100, num_gpus=4, dtype="fp8")
    return from_roofline(target, Roofline(model=LLAMA_1B, gpu=H100), is_draft_ahead=True)


@pytest.fixture(scope="session")
def plant(cost: CostModel) -> Plant:
    """Four replicas for a minute."""
    source = OpenLoop(arrivals=Poisson(rate_per_s=8.0), classes=SEED_MIX)
    return Plant(
        cost=cost, source=source, classes=SEED_MIX, num_replicas=4, duration_s=60.0, num_gateways=4, sample_s=5.0
    )


@pytest.fixture(scope="session")
def run() -> Callable[..., Outcome]:
    """Runs a plant in a mode by name, with changes to the plant."""

    def run(plant: Plant, mode: str, pools: PoolConfig = POOLS, **changes: object) -> Outcome:
        changed = replace(plant, **changes)  # type: ignore[arg-type] # fields of Plant
        return simulate(changed, make_mode(mode, pools, num_speculative_tokens=5, num_replicas=changed.num_replicas))

    return run
