import json
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

from deployments.cli import main

SMALL = {
    "hardware": {"gpu": "h100", "num_gpus": 8, "draft_model": "llama-1b"},
    "traffic": {"kind": "poisson", "rate_per_s": 4},
    "num_replicas": 2,
    "duration_s": 10,
    "modes": ["dynamic", "batch"],
}


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump(SMALL))
    return path


def test_list_names_scenarios_and_modes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--list"]) == 0
    out = capsys.readouterr().out
    assert "h100-llama70b" in out and "one-pool" in out


def test_list_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--list", "--json"]) == 0
    assert "cluster-1000" in json.loads(capsys.readouterr().out)["scenarios"]


def test_a_scenario_file_is_run_and_shown(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", str(small)]) == 0
    out = capsys.readouterr().out
    assert "dynamic" in out and "batch" in out and "TPOT p50" in out and "Assumed price" in out


def test_json_holds_every_figure_and_nothing_else(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", str(small), "--json", "--modes", "batch", "--seed", "3", "--replicas", "1"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["seed"], result["num_replicas"]) == (3, 1)
    (outcome,) = result["outcomes"]
    assert outcome["mode"] == "batch"
    assert outcome["num_arrived"] == outcome["num_ended"] + outcome["num_in_flight"] + outcome["num_refused"]


def test_a_report_is_one_page_with_pictures(small: Path, tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    assert main(["simulate", str(small), "--json", "--report", str(target)]) == 0
    text = target.read_text()
    assert text.startswith("<!doctype html>") and text.count("<svg") >= 6
    assert "Modes compared" in text and "One replica by its load" in text


def test_published_figures_are_shown_beside_computed_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "h100-llama70b", "--duration", "2", "--modes", "batch"]) == 0
    out = capsys.readouterr().out
    assert "41.8 ms" in out and "42.1 ms" in out and "does not follow" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "SCENARIO"),
        (["nowhere"], "one of h100-llama70b"),
        (["nowhere.yaml"], "a readable file"),
        (["bursty", "--modes", "fast"], "modes = 'fast'"),
        (["bursty", "--replicas", "0"], "num_replicas = 0"),
        (["bursty", "--report", "/nowhere/at/all.html"], "--report"),
        (["measured-here"], "--calibration"),
        (["measured-here", "--calibration", "nowhere.json"], "nowhere.json"),
    ],
)
def test_a_wrong_argument_is_named(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", *arguments]) == 2
    assert words in capsys.readouterr().err
