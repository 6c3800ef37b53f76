import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from cluster.training import questions
from cluster.training.head_pipeline import _command as head_command
from cluster.training.pipeline import DraftTraining
from cluster.training.pipeline import _command as draft_command
from cluster.training.settings import HeadSettings, TrainSettings
from deployments import cli, cli_train
from tests.cluster.training.training_harness import save_draft, save_target, write_shards, write_spec_bench

SMALL = ("--num-generated-tokens", "500", "--num-training-tokens", "8000", "--head-tokens", "200", "--threads", "1",
         "--num-shared-layers", "1")  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli-train")
    save_target(folder / "target")
    save_draft(folder / "draft", folder / "target", num_layers=2, num_columns=300)
    write_spec_bench(folder / "questions.jsonl")
    return folder


def train(folder: Path, output: Path, *options: str) -> int:
    argv = ["train", "draft-model", "--target", str(folder / "target"), "--output", str(output)]
    return cli.main([*argv, *SMALL, *options])


def measure(monkeypatch: pytest.MonkeyPatch, folder: Path, *options: str) -> int:
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(questions, "human_eval_prompts", lambda: iter(()))
    argv = ["train", "measure", "--target", str(folder / "target"), "--draft", str(folder / "draft")]
    argv += ["--spec-bench", str(folder / "questions.jsonl"), "--limit", "1", "--max-tokens", "8", "--threads", "1"]
    return cli.main([*argv, *options])


@pytest.mark.engine
def test_training_ends_with_a_line_and_json_and_goes_on_after_ctrl_c(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(self: DraftTraining) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(DraftTraining, "train", interrupt)
        assert train(folder, tmp_path / "draft") == 130
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "the same command goes on from here" in shown.err
    assert train(folder, tmp_path / "draft") == 0
    summary, result = capsys.readouterr().out.splitlines()
    assert "single guesses are right at temperature 0" in summary
    values = json.loads(result)
    assert values["num_training_tokens"] >= 8000
    assert values["num_generated_tokens"] >= 500
    assert 0 < values["held_out"]["same_top_ratio"] < 1
    assert (tmp_path / "draft" / "model.safetensors").stat().st_size >= values["num_bytes"]


@pytest.mark.engine
def test_training_a_head_ends_with_a_line_and_json(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["train", "eagle3", "--target", str(folder / "target"), "--output", str(tmp_path / "head"), "--threads", "1"]
    argv += ["--data", str(write_shards(tmp_path / "data", 60)), "--num-training-tokens", "200", "--head-tokens", "100"]
    assert cli.main([*argv, "--num-draft-tokens", "2", "--feature-cache-gb", "0.1"]) == 0
    summary, result = capsys.readouterr().out.splitlines()
    assert "tokens a round at temperature 0" in summary
    values = json.loads(result)
    assert len(values["held_out"]["steps"]) == 2
    assert values["held_out"]["greedy_length"] >= 1
    assert (tmp_path / "head" / "config.json").exists()
    assert (tmp_path / "head" / "training" / "features.bin").exists()


@pytest.mark.engine
def test_measuring_prints_a_table_and_json_and_writes_the_card_when_asked(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (folder / "draft" / "README.md").read_text()
    assert measure(monkeypatch, folder) == 0
    lines = capsys.readouterr().out.splitlines()
    values = json.loads(lines[-1])
    assert 0 <= values["alpha_t1"] <= 1
    assert values["coupling"]["num_pairs"] > 0
    assert any("mt-bench" in line for line in lines)
    assert "coupled rule" in lines[-2]
    assert (folder / "draft" / "README.md").read_text() == before
    assert measure(monkeypatch, folder, "--json", "--write") == 0
    again = json.loads(capsys.readouterr().out)
    assert {**again, "duration_s": 0} == {**values, "duration_s": 0}
    assert f"| all | {values['alpha_t0']:.3f} |" in (folder / "draft" / "README.md").read_text()


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("draft-model", "--output", "out", "--num-layers", "0"), "--num-layers = 0"),
        (("draft-model", "--output", "out", "--text-file", "nowhere"), "--text-file = 'nowhere'"),
        (("draft-model", "--output", "out", "--threads", "-1"), "--threads = -1"),
        (("eagle3", "--output", "out", "--num-draft-tokens", "0"), "--num-draft-tokens = 0"),
        (("eagle3", "--output", "out", "--feature-cache-gb", "nan"), "--feature-cache-gb = nan"),
        (("medusa", "--output", "out", "--learning-rate", "-1"), "--learning-rate = -1"),
        (("mtp",), "a next-n module is a part of its target"),
        (("measure", "--limit", "0"), "--limit = 0"),
        (("measure", "--threads", "-2"), "--threads = -2"),
        (("measure", "--draft", "nowhere"), "nowhere is not a folder"),
        (("measure", "--spec-bench", "nowhere"), "--spec-bench = 'nowhere'"),
    ],
)
def test_wrong_arguments_end_with_status_2_and_their_name(
    argv: tuple[str, ...],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["train", *argv]) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("kind", "write"), [("draft-model", draft_command), ("eagle3", head_command), ("medusa", head_command)]
)
def test_the_command_on_a_card_is_one_that_the_command_line_takes(kind: Any, write: Any) -> None:
    common: dict[str, Any] = {"output": Path("out"), "data": Path("data"), "seed": 3, "num_training_tokens": 77}
    settings = TrainSettings(**common) if kind == "draft-model" else HeadSettings(kind=kind, **common)
    parser = argparse.ArgumentParser()
    cli_train.add_parser(parser.add_subparsers())
    found = parser.parse_args(write(settings).split()[1:])
    assert (found.seed, found.num_training_tokens, found.data) == (3, 77, Path("DATA"))


def test_help_says_what_the_phases_do(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["train", "draft-model", "--help"])
    shown = capsys.readouterr().out
    assert "generate" in shown
    assert "goes on from there" in shown
