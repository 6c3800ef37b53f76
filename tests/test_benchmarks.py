"""The benchmarks are code as well: they must run, and their arithmetic must be right."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks.bench import BENCHMARKS, TAKES_MODELS, main
from tests.benchmarks.environment import ROOT
from tests.benchmarks.measure import Rounds, Summary, interleave, median_interval
from tests.benchmarks.report import Limit

SERVES = ("over_http", "pool_goodput")


def test_percentiles_lie_between_the_samples() -> None:
    summary = Summary.of([3.0, 1.0, 2.0, 5.0, 4.0])
    assert (summary.num, summary.p25, summary.p50, summary.p75) == (5, 2.0, 3.0, 4.0)
    assert summary.p90 == pytest.approx(4.6)


def test_the_interval_of_a_median_narrows_with_the_number_of_samples() -> None:
    few, many = [float(i) for i in range(5)], [float(i) for i in range(101)]
    assert median_interval(few) == (0.0, 4.0)
    assert median_interval(many) == (40.0, 60.0)


def test_interleaving_turns_the_order_and_leaves_the_warm_up_out() -> None:
    calls: list[str] = []

    def variant(name: str) -> dict[str, list[float]]:
        calls.append(name)
        return {name: [float(len(calls))]}

    rounds = interleave([lambda: variant("a"), lambda: variant("b")], num_rounds=2, settle_s=0.0)
    assert calls == ["a", "b", "b", "a", "a", "b"]
    assert (rounds.samples("a"), rounds.samples("b")) == ([4.0, 5.0], [3.0, 6.0])


def test_ratios_compare_medians_of_the_same_round() -> None:
    rounds = Rounds()
    rounds.add({"a": [2.0, 4.0, 90.0], "b": [2.0]})
    rounds.add({"a": [30.0], "b": [10.0]})
    assert rounds.ratios("a", "b") == [2.0, 3.0]
    assert rounds.differences("a", "b") == [2.0, 20.0]


def test_a_single_round_measures_nothing_and_has_no_warm_up() -> None:
    calls: list[str] = []

    def variant() -> dict[str, list[float]]:
        calls.append("a")
        return {"a": [1.0]}

    assert interleave([variant], num_rounds=1, settle_s=0.0).samples("a") == [1.0]
    assert calls == ["a"]


@pytest.mark.parametrize(("value", "at_most", "at_least"), [(0.9, True, False), (1.0, True, True), (1.1, False, True)])
def test_a_limit_is_met_on_its_own_side_only(value: float, at_most: bool, at_least: bool) -> None:
    assert Limit.at_most_of("x", [value], 1.0).is_met is at_most
    assert Limit.at_least_of("x", [value], 1.0).is_met is at_least


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.engine
@pytest.mark.usefixtures("bundled_source")
@pytest.mark.parametrize("name", [name for name in BENCHMARKS if name not in SERVES + TAKES_MODELS])
def test_every_benchmark_runs_and_ends_with_one_json_line(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Not as a command: that would import everything twice, and each benchmark has a process of its own anyway.
    monkeypatch.setattr(sys, "argv", ["bench", "--quick", name])
    assert main() == 0
    check_output(name, capsys.readouterr().out)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.e2e
@pytest.mark.usefixtures("bundled_source")
@pytest.mark.parametrize("name", SERVES)
def test_the_benchmark_of_the_server_runs(name: str) -> None:
    check_quick_run(name)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.engine
@pytest.mark.parametrize("name", TAKES_MODELS)
def test_a_benchmark_of_two_models_runs_with_those_that_are_named(
    name: str, tiny_model_dir: Path, tiny_draft_dir: Path
) -> None:
    answer = check_quick_run(name, "--model", str(tiny_model_dir), "--draft", str(tiny_draft_dir))
    assert answer["model"] == f"{tiny_model_dir.name}, draft model {tiny_draft_dir}"


def check_quick_run(name: str, *options: str) -> dict[str, Any]:
    command = (sys.executable, "-m", "tests.benchmarks.bench", "--quick", name, *options)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return check_output(name, done.stdout)


def check_output(name: str, output: str) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(output.splitlines()[-1])
    assert {"commit", "versions", "cpu", "isa", "num_cores", "load_before", "load_after", "was_idle"} <= result.keys()
    (answer,) = result["answers"]
    assert answer["benchmark"] == name and answer["model"] and answer["counts"]["rounds"] == 1
    assert len(answer["rows"]) >= 2, "no baseline"
    for row in answer["rows"]:
        assert 0 < row["p25"] <= row["p50"] <= row["p90"] <= row["p99"], row
        assert row["name"] in output
    found: dict[str, Any] = answer
    return found
