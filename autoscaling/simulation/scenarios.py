"""The scenarios that come with Outrider, by name."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from autoscaling.pool_config import PoolConfig
from autoscaling.simulation.arrivals import Bursts, Diurnal, Poisson
from autoscaling.simulation.calibrated import check_sweep, classes_of, cost_of
from autoscaling.simulation.claims import claims_of
from autoscaling.simulation.cost import from_roofline
from autoscaling.simulation.curves import curves
from autoscaling.simulation.hardware import H100
from autoscaling.simulation.models import LLAMA_1B, LLAMA_70B
from autoscaling.simulation.roofline import Roofline
from autoscaling.simulation.scenario import Scenario
from autoscaling.simulation.scenario_file import load_scenario
from autoscaling.simulation.workload import SEED_MIX, OpenLoop
from cluster.engine.calibration import load_calibration
from cluster.errors import ConfigError

_LONG_MIX = tuple(
    replace(each, mean_output_tokens=24 * each.mean_output_tokens if each.has_slo else 12_000, spread=0.4)
    for each in SEED_MIX
)
"""The same classes with the long answers of reasoning models: nine thousand tokens on average."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A scenario that can be asked for by name.

    Attributes:
        text: what it shows, in a sentence.
        make: builds it from the path of a calibration, which only some need.
    """

    text: str
    make: Callable[[str, Path | None], Scenario]


def find_scenario(name: str, calibration: Path | None = None) -> Scenario:
    """A scenario by its name, or by the path of its file.

    Args:
        name: one of `SCENARIOS`, or a YAML or JSON file.
        calibration: of the machine, for the scenario that needs one.

    Raises:
        ConfigError: there is none, or something in its file is wrong.
        LoadError: the calibration is refused.
    """
    known = SCENARIOS.get(name)
    if known is not None:
        return known.make(known.text, calibration)
    if Path(name).suffix in (".yaml", ".yml", ".json"):
        return load_scenario(Path(name))
    raise ConfigError(
        field="SCENARIO", value=name, allowed="a .yaml, .yml or .json file, or one of " + ", ".join(SCENARIOS)
    )


def _h100_llama70b(text: str, _: Path | None) -> Scenario:
    target = Roofline(model=LLAMA_70B, gpu=H100, num_gpus=8)
    draft = Roofline(model=LLAMA_1B, gpu=H100, num_gpus=1)
    cost = from_roofline(target, draft, draft_kv_sequences=16)
    return Scenario(
        name="h100-llama70b",
        text=text,
        cost=cost,
        source=OpenLoop(arrivals=Poisson(rate_per_s=40.0), classes=SEED_MIX),
        classes=SEED_MIX,
        num_replicas=8,
        duration_s=300.0,
        pools=PoolConfig(ttft_slo_s=1.0, tpot_slo_s=0.015, num_speculative_tokens=5),
        num_speculative_tokens=5,
        claims=claims_of(target, cost, num_tokens=5, draft=draft),
        curves=curves(cost, 5),
    )


def _cluster_1000(text: str, _: Path | None) -> Scenario:
    target = Roofline(model=LLAMA_70B, gpu=H100, num_gpus=4, dtype="fp8")
    return Scenario(
        name="cluster-1000",
        text=text,
        cost=from_roofline(target, Roofline(model=LLAMA_1B, gpu=H100), is_draft_ahead=True),
        source=OpenLoop(
            arrivals=Bursts(rate_per_s=70.0, burst_rate_per_s=350.0, mean_calm_s=600.0, mean_burst_s=150.0),
            classes=_LONG_MIX,
        ),
        classes=_LONG_MIX,
        num_replicas=1000,
        duration_s=3600.0,
        pools=PoolConfig(
            ttft_slo_s=2.0, tpot_slo_s=0.03, heartbeat_s=5.0, stale_after_s=15.0, move_timeout_s=15.0, cooldown_s=5.0,
            num_speculative_tokens=5,
        ),
        modes=("dynamic",),
        num_candidates=4,
    )  # fmt: skip


def _small(name: str, text: str, source: OpenLoop, duration_s: float) -> Scenario:
    """Four replicas of a quantised 70B on four H100s, drafted for by a device of its own."""
    target = Roofline(model=LLAMA_70B, gpu=H100, num_gpus=4, dtype="fp8")
    return Scenario(
        name=name,
        text=text,
        cost=from_roofline(target, Roofline(model=LLAMA_1B, gpu=H100), is_draft_ahead=True),
        source=source,
        classes=SEED_MIX,
        num_replicas=4,
        duration_s=duration_s,
        pools=PoolConfig(ttft_slo_s=1.0, tpot_slo_s=0.02, num_speculative_tokens=5),
    )


def _diurnal(text: str, _: Path | None) -> Scenario:
    arrivals = Diurnal(rate_per_s=16.0, swing_ratio=0.9, period_s=1200.0)
    return _small("diurnal", text, OpenLoop(arrivals=arrivals, classes=SEED_MIX), 1200.0)


def _bursty(text: str, _: Path | None) -> Scenario:
    arrivals = Bursts(rate_per_s=6.0, burst_rate_per_s=40.0, mean_calm_s=60.0, mean_burst_s=30.0)
    return _small("bursty", text, OpenLoop(arrivals=arrivals, classes=SEED_MIX), 600.0)


def _measured_here(text: str, path: Path | None) -> Scenario:
    if path is None:
        raise ConfigError(
            field="--calibration", value=None, allowed="the file that `outrider calibrate` wrote on this machine"
        )
    calibration = load_calibration(path)
    cost, classes = cost_of(calibration), classes_of(calibration)
    # Seven tenths of what three replicas can do with eight sequences each, the reading of prompts included.
    request_s = sum(
        each.mean_prompt_tokens * cost.times.forward_s(256) / 256 + each.mean_output_tokens * cost.times.seconds(8) / 8
        for each in classes
    ) / len(classes)
    pools = PoolConfig(tpot_slo_s=5 * cost.times.seconds(1), ttft_slo_s=5.0, num_speculative_tokens=8)
    return Scenario(
        name="measured-here",
        text=text,
        cost=cost,
        source=OpenLoop(arrivals=Poisson(rate_per_s=0.7 * 3 / request_s), classes=classes),
        classes=classes,
        num_replicas=3,
        duration_s=600.0,
        pools=pools,
        num_speculative_tokens=8,
        prompt_rows=256,
        checks=check_sweep(calibration),
    )


SCENARIOS: Mapping[str, Known] = MappingProxyType(
    {
        "h100-llama70b": Known(
            text="Llama-3.3-70B in bf16 on eight nodes of 8 x H100, and published figures beside those that follow",
            make=_h100_llama70b,
        ),
        "cluster-1000": Known(
            text="a thousand replicas for an hour, with bursts; long answers", make=_cluster_1000
        ),
        "diurnal": Known(text="four replicas through a day that is 20 minutes long", make=_diurnal),
        "bursty": Known(text="four replicas with calm and bursts of seven times the traffic", make=_bursty),
        "measured-here": Known(
            text="three replicas of a machine measured by `outrider calibrate`, and how well its sweep is predicted",
            make=_measured_here,
        ),
    }
)  # fmt: skip
