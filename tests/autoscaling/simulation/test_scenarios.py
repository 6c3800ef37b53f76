import json
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

from autoscaling.simulation.arrivals import Bursts, Poisson
from autoscaling.simulation.scenario import Scenario
from autoscaling.simulation.scenario_file import load_scenario
from autoscaling.simulation.scenarios import SCENARIOS, find_scenario
from autoscaling.simulation.trace import read_trace
from autoscaling.simulation.workload import ClosedLoop, OpenLoop, Replay, TraceEntry
from cluster.errors import ConfigError
from cluster.routing.types import Domain

GOOD: dict[str, object] = {
    "hardware": {"gpu": "h200", "num_gpus": 4, "model": "llama-70b", "draft_model": "llama-1b", "draft": "ahead"},
    "traffic": {"kind": "poisson", "rate_per_s": 3},
    "num_replicas": 2,
    "duration_s": 30,
    "modes": ["dynamic", "batch"],
    "pools": {"tpot_slo_s": 0.02},
}

DAY = {"kind": "diurnal", "rate_per_s": 1, "swing_ratio": 0.5, "period_s": 9}
CHAT = {"name": "a", "domain": "general_chat"}


def load(tmp_path: Path, **changes: object) -> Scenario:
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(GOOD | changes))
    return load_scenario(path)


def test_a_file_says_what_is_run(tmp_path: Path) -> None:
    scenario = load(tmp_path)
    assert (scenario.name, scenario.num_replicas, scenario.duration_s) == ("mine", 2, 30)
    assert isinstance(scenario.source, OpenLoop) and scenario.source.arrivals == Poisson(rate_per_s=3.0)
    assert [mode.name for mode in scenario.make_modes()] == ["dynamic", "batch"]
    assert scenario.pools.tpot_slo_s == 0.02
    assert scenario.cost.name == "Llama-3.3-70B bf16 on 4 x H200 SXM"
    assert scenario.cost.num_gpus == 5


def test_json_says_the_same_as_yaml(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(GOOD))
    assert load_scenario(path) == load(tmp_path)


def test_prices_kernels_and_classes_can_be_given(tmp_path: Path) -> None:
    hardware = {"num_gpus": 8, "price_per_gpu_hour": 1.5, "efficiency": {"flops_ratio": 0.4}}
    chat = {"name": "chat", "domain": "general_chat", "acceptance_rate": 0.6, "mean_output_tokens": 50}
    scenario = load(tmp_path, hardware=hardware, classes=[chat])
    assert scenario.cost.price_per_hour == 12.0
    assert [each.domain for each in scenario.classes] == [Domain.GENERAL_CHAT]


def test_kinds_of_traffic(tmp_path: Path) -> None:
    bursts = {"kind": "bursts", "rate_per_s": 1, "burst_rate_per_s": 9, "mean_calm_s": 10, "mean_burst_s": 5}
    source = load(tmp_path, traffic=bursts).source
    assert isinstance(source, OpenLoop) and isinstance(source.arrivals, Bursts)
    assert isinstance(load(tmp_path, traffic={"kind": "closed", "concurrency": 4}).source, ClosedLoop)
    (tmp_path / "t.csv").write_text("arrival_s,prompt_tokens,output_tokens,domain\n0.5,10,20,structured_json\n")
    source = load(tmp_path, traffic={"kind": "trace", "path": "t.csv"}).source
    assert isinstance(source, Replay) and source.entries[0].domain is Domain.STRUCTURED_JSON


@pytest.mark.parametrize(
    ("changes", "field", "allowed"),
    [
        ({"hardware": None}, "hardware", "a mapping"),
        ({"hardware": {"gpu": "a100"}}, "hardware.gpu", "h100, h200, b200"),
        ({"hardware": {"gpus": 8}}, "hardware.gpus", "num_gpus"),
        ({"hardware": {"num_gpus": 1}}, "num_gpus", "at least 2"),
        ({"hardware": {"num_gpus": "many"}}, "hardware", "int"),
        ({"hardware": {"draft": "later", "draft_model": "llama-1b"}}, "hardware.draft", "local, ahead"),
        ({"hardware": {"efficiency": {"flops_ratio": 1.5}}}, "hardware.efficiency.flops_ratio", "at most 1"),
        ({"traffic": {"kind": "tidal"}}, "traffic.kind", "poisson, bursts, diurnal, steps, closed, trace"),
        ({"traffic": {"rate_per_s": 1}}, "traffic.kind", "poisson"),
        ({"traffic": {"kind": "poisson", "rate_per_s": 0}}, "traffic.rate_per_s", "above 0"),
        ({"traffic": {"kind": "poisson"}}, "traffic", "missing required field `rate_per_s`"),
        ({"traffic": {"kind": "poisson", "rate": 1}}, "traffic.rate", "rate_per_s"),
        ({"traffic": DAY | {"swing_ratio": 2}}, "traffic.swing_ratio", "0 to 1"),
        ({"traffic": {"kind": "steps", "steps": [[5, 1]]}}, "traffic.steps", "rising from 0"),
        ({"traffic": {"kind": "closed"}}, "traffic.concurrency", "a number"),
        ({"traffic": {"kind": "trace", "path": "nowhere.csv"}}, "traffic.path", "a readable file"),
        ({"classes": [{"name": "a"}]}, "classes[0]", "missing required field `domain`"),
        ({"classes": [{"name": "a", "domain": "poetry"}]}, "classes[0]", "poetry"),
        ({"classes": [CHAT | {"acceptance_rate": 2}]}, "classes[0].acceptance_rate", "0 to 1"),
        ({"classes": []}, "classes", "at least one"),
        ({"modes": ["fast"]}, "modes", "dynamic, speculative, batch"),
        ({"pools": {"tpot": 1}}, "pools.tpot", "tpot_slo_s"),
        ({"pools": {"tpot_slo_s": -1}}, "pools.tpot_slo_s", "seconds"),
        ({"num_replicas": 0}, "num_replicas", "1 to 10000"),
        ({"num_replicas": 1.5}, "num_replicas", "an integer"),
        ({"duration_s": "long"}, "duration_s", "a number"),
        ({"replicas": 3}, "scenario.replicas", "num_replicas"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_place_and_what_is_allowed(
    tmp_path: Path, changes: dict[str, object], field: str, allowed: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, **changes)
    assert caught.value.field == field
    assert allowed in str(caught.value)


@pytest.mark.parametrize("text", ["[1, 2]", "a: [", "{"])
def test_a_file_that_is_no_mapping_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match="SCENARIO"):
        load_scenario(path)


def test_a_name_that_does_not_exist_lists_those_that_do() -> None:
    with pytest.raises(ConfigError, match=r"h100-llama70b.*measured-here"):
        find_scenario("h100")


def test_the_measured_scenario_asks_for_a_calibration() -> None:
    with pytest.raises(ConfigError, match="outrider calibrate"):
        find_scenario("measured-here")


@pytest.mark.parametrize("name", [name for name in SCENARIOS if name != "measured-here"])
def test_every_scenario_can_be_built(name: str) -> None:
    scenario = find_scenario(name)
    assert scenario.name == name
    assert scenario.make_modes()
    assert scenario.cost.notes


def test_json_lines_hold_a_trace_as_well(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"arrival_s": 0.5, "prompt_tokens": 10, "output_tokens": 20}\n\n')
    entry = TraceEntry(arrival_s=0.5, prompt_tokens=10, output_tokens=20, domain=Domain.GENERAL_CHAT)
    assert read_trace(path) == (entry,)


@pytest.mark.parametrize(
    "line",
    ["0.5,10", "x,10,20", "0.5,0,20", "-1,10,20", "nan,10,20", "0.5,10,20,poetry"],
)
def test_a_wrong_line_of_a_trace_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f"arrival_s,prompt_tokens,output_tokens,domain\n0.1,1,1,\n{line}\n")
    with pytest.raises(ConfigError, match="line 3"):
        read_trace(path)


def test_an_empty_trace_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text("\n")
    with pytest.raises(ConfigError, match="at least one request"):
        read_trace(path)
