"""Scenarios from YAML or JSON files. Every mistake is named with its place and what would be right."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from math import inf
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml  # type: ignore[import-untyped]

from autoscaling.pool_config import PoolConfig
from autoscaling.simulation.arrivals import Arrivals, Bursts, Diurnal, Poisson, Steps
from autoscaling.simulation.calibrated import cost_of
from autoscaling.simulation.cost import CostModel, from_roofline
from autoscaling.simulation.curves import curves
from autoscaling.simulation.hardware import GPUS
from autoscaling.simulation.models import MODELS
from autoscaling.simulation.roofline import Efficiency, Roofline
from autoscaling.simulation.scenario import Scenario
from autoscaling.simulation.trace import read_trace
from autoscaling.simulation.workload import SEED_MIX, ClosedLoop, OpenLoop, Replay, Source, TrafficClass
from cluster.engine.calibration import load_calibration
from cluster.engine.shapes import DTYPE_BYTES
from cluster.errors import ConfigError, check_range

T = TypeVar("T")

_ARRIVALS: dict[str, type[Arrivals]] = {"poisson": Poisson, "bursts": Bursts, "diurnal": Diurnal, "steps": Steps}
_KINDS = (*_ARRIVALS, "closed", "trace")
_NUMBERS = ("num_replicas", "duration_s", "num_speculative_tokens", "seed", "prompt_rows")
_TOP = ("name", "text", "hardware", "traffic", "classes", "pools", "modes", *_NUMBERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """A replica, as a file describes it.

    Attributes:
        gpu: one of `GPUS`.
        num_gpus: over which the target is sharded.
        model: one of `MODELS`.
        dtype: bf16 or fp8.
        draft_model: one of `MODELS`; None for drafts that cost nothing.
        draft: "local" runs it between rounds, "ahead" on a GPU of its own.
        price_per_gpu_hour: in dollars; None takes the assumed one.
        efficiency: how near kernels come to the data sheet.
    """

    gpu: str = "h100"
    num_gpus: int = 8
    model: str = "llama-70b"
    dtype: str = "bf16"
    draft_model: str | None = None
    draft: str = "local"
    price_per_gpu_hour: float | None = None
    efficiency: Efficiency = field(default_factory=Efficiency)


def load_scenario(path: Path) -> Scenario:
    """Read a scenario; paths in it are relative to its folder.

    Raises:
        ConfigError: the file cannot be read, or something in it is wrong.
        LoadError: its calibration is refused.
    """
    tree = _read(path)
    _check_names("scenario", tree, _TOP)
    for name in ("hardware", "traffic"):
        if name not in tree:
            raise ConfigError(field=name, value=None, allowed="given in the scenario file")
    cost = _cost(tree["hardware"], path.parent)
    classes = _classes(tree.get("classes"))
    plain = {name: tree[name] for name in _NUMBERS if name in tree}
    scenario = Scenario(
        name=str(tree.get("name", path.stem)),
        text=str(tree.get("text", "")),
        cost=cost,
        source=_source(tree["traffic"], classes, path.parent),
        classes=classes,
        pools=_built(PoolConfig, tree.get("pools", {}), "pools"),
        **{name: _built_number(name, value) for name, value in plain.items()},
    )
    if "modes" in tree:
        scenario = replace(scenario, modes=tuple(_converted(tree["modes"], list[str], "modes")))
    scenario.make_modes()
    return replace(scenario, curves=curves(cost, scenario.num_speculative_tokens))


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
        tree = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(field="SCENARIO", value=str(path), allowed=f"a readable file ({error})") from None
    except (ValueError, yaml.YAMLError) as error:
        raise ConfigError(field="SCENARIO", value=str(path), allowed=f"valid YAML or JSON ({error})") from None
    if not isinstance(tree, dict):
        raise ConfigError(field="SCENARIO", value=str(path), allowed="a mapping of settings")
    return tree


def _cost(tree: Any, folder: Path) -> CostModel:
    if isinstance(tree, dict) and "calibration" in tree:
        _check_names("hardware", tree, ("calibration",))
        return cost_of(load_calibration(folder / str(tree["calibration"])))
    efficiency = tree.get("efficiency", {}) if isinstance(tree, dict) else {}
    spec = _built(Hardware, {**_mapping(tree, "hardware"), "efficiency": {}}, "hardware")
    spec = replace(spec, efficiency=_built(Efficiency, efficiency, "hardware.efficiency"))
    check_range("hardware.num_gpus", spec.num_gpus, 1, 1024)
    for name in ("bandwidth_ratio", "flops_ratio", "link_ratio"):
        _check_positive(f"hardware.efficiency.{name}", getattr(spec.efficiency, name), 1)
    gpu = _picked("hardware.gpu", spec.gpu, GPUS)
    _picked("hardware.dtype", spec.dtype, DTYPE_BYTES)
    _picked("hardware.draft", spec.draft, {"local": 0, "ahead": 1})
    if spec.price_per_gpu_hour is not None:
        check_range("hardware.price_per_gpu_hour", spec.price_per_gpu_hour, 0, 1_000_000, kind="dollars")
        gpu = replace(gpu, price_per_hour=spec.price_per_gpu_hour)
    model = _picked("hardware.model", spec.model, MODELS)
    target = Roofline(model=model, gpu=gpu, num_gpus=spec.num_gpus, dtype=spec.dtype, efficiency=spec.efficiency)
    if spec.draft_model is None:
        return from_roofline(target)
    draft = Roofline(model=_picked("hardware.draft_model", spec.draft_model, MODELS), gpu=gpu,
                     efficiency=spec.efficiency)  # fmt: skip
    return from_roofline(target, draft, draft_kv_sequences=16, is_draft_ahead=spec.draft == "ahead")


def _classes(tree: Any) -> tuple[TrafficClass, ...]:
    if tree is None:
        return SEED_MIX
    classes = []
    for index, each in enumerate(_converted(tree, list[Any], "classes")):
        place = f"classes[{index}]"
        built = _built(TrafficClass, each, place)
        _check_positive(f"{place}.share", built.share)
        for name in ("acceptance_rate", "draft_ratio"):
            check_range(f"{place}.{name}", getattr(built, name), 0, 1, kind="a share")
        for name in ("mean_prompt_tokens", "mean_output_tokens"):
            check_range(f"{place}.{name}", getattr(built, name), 1, 10_000_000, kind="a number")
        check_range(f"{place}.spread", built.spread, 0, 3, kind="a number")
        classes.append(built)
    return tuple(classes)


def _source(tree: Any, classes: tuple[TrafficClass, ...], folder: Path) -> Source:
    settings = dict(_mapping(tree, "traffic"))
    kind = _picked("traffic.kind", settings.pop("kind", None), {name: name for name in _KINDS})
    if kind == "closed":
        _check_names("traffic", settings, ("concurrency",))
        concurrency = _built_number("traffic.concurrency", settings.get("concurrency"))
        check_range("traffic.concurrency", concurrency, 1, 1_000_000)
        return ClosedLoop(concurrency=int(concurrency), classes=classes)
    if kind == "trace":
        _check_names("traffic", settings, ("path",))
        return Replay(entries=read_trace(folder / str(settings.get("path"))), classes=classes)
    arrivals = _built(_ARRIVALS[kind], settings, "traffic")
    for each in fields(arrivals):  # type: ignore[arg-type] # every process is a dataclass
        value = getattr(arrivals, each.name)
        if each.name == "swing_ratio":
            check_range("traffic.swing_ratio", value, 0, 1, kind="a share")
        elif each.name == "steps":
            _check_steps(value)
        else:
            _check_positive(f"traffic.{each.name}", value)
    return OpenLoop(arrivals=arrivals, classes=classes)


def _check_steps(steps: tuple[tuple[float, float], ...]) -> None:
    times = [begin for begin, _ in steps]
    if not steps or times[0] != 0 or times != sorted(set(times)):
        raise ConfigError(field="traffic.steps", value=steps, allowed="pairs (time, rate), times rising from 0")
    for _, rate in steps:
        check_range("traffic.steps", rate, 0, 1_000_000_000, kind="a rate")


def _check_positive(field: str, value: float, most: float = 1e9) -> None:
    if not 0 < value <= most:
        raise ConfigError(field=field, value=value, allowed=f"a number above 0, at most {most:g}")


def _picked(field: str, name: Any, known: Mapping[str, T]) -> T:
    if name not in known:
        raise ConfigError(field=field, value=name, allowed="one of " + ", ".join(known))
    return known[name]


def _built(kind: type[T], tree: Any, place: str) -> T:
    """A dataclass from a mapping: no unknown names, no wrong types."""
    settings = _mapping(tree, place)
    _check_names(place, settings, tuple(each.name for each in fields(kind)))  # type: ignore[arg-type] # a dataclass
    return _converted(settings, kind, place)


def _built_number(field: str, value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float) or not -inf < value < inf:
        raise ConfigError(field=field, value=value, allowed="a number")
    return value if field == "duration_s" else _whole(field, value)


def _whole(field: str, value: float) -> int:
    if value != int(value):
        raise ConfigError(field=field, value=value, allowed="an integer")
    return int(value)


def _mapping(tree: Any, place: str) -> dict[str, Any]:
    if not isinstance(tree, dict):
        raise ConfigError(field=place, value=tree, allowed="a mapping of settings")
    return tree


def _check_names(place: str, tree: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for name in tree:
        if name not in known:
            raise ConfigError(field=f"{place}.{name}", value=tree[name], allowed="one of " + ", ".join(known))


def _converted(value: Any, kind: type[T], place: str) -> T:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ConfigError(field=place, value=value, allowed=str(error)) from None
