import argparse
import json
from pathlib import Path

import pytest
import torch

from cluster.engine.model_input import ModelInput
from cluster.engine.model_source import ModelSource
from cluster.engine.startup import EngineParts
from deployments import cli, cli_lossless
from tests.cluster.engine.engine_harness import tiny_runner, tokenizer
from tests.tiny import EOS_TOKEN_ID


class Runner:
    """The tiny model; `fault` makes it depend on its batch, or interrupts it after some passes."""

    def __init__(self, fault: str | None = None) -> None:
        runner = tiny_runner(256)
        self.vocab_size, self.block_size, self.max_model_len = (
            runner.vocab_size,
            runner.block_size,
            runner.max_model_len,
        )
        self.num_kv_blocks, self.dtype, self.numerics = runner.num_kv_blocks, runner.dtype, runner.numerics
        self._runner, self._fault, self._num_passes = runner, fault, 0

    def forward(self, batch: ModelInput) -> torch.Tensor:
        self._num_passes += 1
        if self._fault == "interrupt" and self._num_passes > 300:
            raise KeyboardInterrupt
        logits_NV = self._runner.forward(batch)
        return logits_NV.flip(1) if self._fault == "batch" and len(batch.block_tables) > 1 else logits_NV

    def close(self) -> None:
        """The tiny model is shared."""


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "mine.txt"
    path.write_text("the verifier accepts\nwhen it refuses a guess\n")
    return path


def verify(monkeypatch: pytest.MonkeyPatch, prompts: Path, *options: str, fault: str | None = None) -> int:
    parts = EngineParts(
        runner=Runner(fault),
        tokenizer=tokenizer(),
        eos_token_ids=frozenset([EOS_TOKEN_ID]),
        model_id="tiny",
        source=ModelSource(folder=Path(), model_id="tiny"),
    )
    monkeypatch.setattr("cluster.engine.startup.load_parts", lambda config, memory: parts)
    monkeypatch.setattr("cluster.config.BUNDLED_DRAFT_FOLDER", Path("/nothing/here"))
    monkeypatch.setenv("COLUMNS", "120")
    settings = ["--prompts", str(prompts), "--num-prompts", "2", "--max-tokens", "24"]
    return cli.main(["verify-lossless", *settings, *options])


def test_identical_tokens_end_with_status_0_and_a_table(
    monkeypatch: pytest.MonkeyPatch, prompts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify(monkeypatch, prompts) == 0
    shown = capsys.readouterr().out
    assert "identical (100 %): 2 of 2 prompts" in shown
    assert "n-gram, preempted" in shown


def test_json_goes_alone_to_standard_output(
    monkeypatch: pytest.MonkeyPatch, prompts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify(monkeypatch, prompts, "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["is_lossless"] is True
    assert report["num_identical"] == report["num_compared"] > 60
    assert report["scenarios"]["n-gram K=3, batch"]["counts"]["T=0.7"]["num_compared"] == 2


def test_a_difference_ends_with_status_1_and_shows_prompt_scenario_position_and_ids(
    monkeypatch: pytest.MonkeyPatch, prompts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify(monkeypatch, prompts, fault="batch") == 1
    shown = capsys.readouterr().out
    assert "mine.txt:1 (T=0), n-gram K=1, batch, K=1: token " in shown
    assert "expected [" in shown
    assert "requests differ" in shown


def test_an_interruption_prints_what_was_compared(
    monkeypatch: pytest.MonkeyPatch, prompts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify(monkeypatch, prompts, "--json", fault="interrupt") == 130
    captured = capsys.readouterr()
    report = json.loads(captured.out)
    assert not report["is_complete"]
    assert 0 < report["num_compared"] == report["num_identical"] < 60
    assert "interrupted" in captured.err


def test_a_wrong_argument_is_named(prompts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["verify-lossless", "--prompts", "/nothing/here.txt"]) == 2
    assert "--prompts" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        cli.main(["verify-lossless", "--max-tokens", "0"])


@pytest.mark.parametrize("rule", ["rejection", "block"])
def test_rules_under_which_tokens_depend_on_drafts_are_refused_with_the_reason(
    rule: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["verify-lossless", "--acceptance", rule]) == 2
    message = capsys.readouterr().err
    assert rule in message
    assert "nothing to compare" in message


def test_without_a_draft_model_a_line_says_what_is_left_out(
    monkeypatch: pytest.MonkeyPatch, prompts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify(monkeypatch, prompts, "--json") == 0
    captured = capsys.readouterr()
    assert "drafter actor and draft model are left out" in captured.err
    assert not any(name.startswith("draft") for name in json.loads(captured.out)["scenarios"])


def test_a_run_in_which_nothing_was_drafted_does_not_pass_for_a_proof(
    monkeypatch: pytest.MonkeyPatch, prompts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify(monkeypatch, prompts, "--max-tokens", "1") == 3
    shown = " ".join(capsys.readouterr().out.split())
    assert "identical (100 %), but that proves too little (nothing was drafted in n-gram K=1, batch / n-gram" in shown
    assert "/ off, batch" not in shown


def test_a_difference_counts_for_more_than_missing_drafts(monkeypatch: pytest.MonkeyPatch, prompts: Path) -> None:
    assert verify(monkeypatch, prompts, "--max-tokens", "2", fault="batch") == 1


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], "bundled"),
        (["--model", "some/other", "--revision", "x"], None),
        (["--draft-model", "bundled", "--model", "some/other"], "bundled"),
    ],
)
def test_the_bundled_draft_model_is_taken_beside_the_bundled_target(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, options: list[str], expected: str | None
) -> None:
    monkeypatch.setattr("cluster.config.BUNDLED_DRAFT_FOLDER", tmp_path)
    parser = argparse.ArgumentParser()
    cli_lossless.add_parser(parser.add_subparsers())
    config = cli_lossless._draft_config(parser.parse_args(["verify-lossless", *options]))
    assert (config.model if config else None) == expected


@pytest.mark.parametrize("name", ["/nothing/here", "bundled"])
def test_a_draft_model_that_is_not_there_is_refused_before_the_target_is_loaded(
    monkeypatch: pytest.MonkeyPatch, prompts: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    monkeypatch.setattr("cluster.engine.drafters.draft_source.BUNDLED_DRAFT_FOLDER", Path("/nothing/here"))
    assert verify(monkeypatch, prompts, "--draft-model", name) == 2
    captured = capsys.readouterr()
    assert captured.err.strip().endswith(f"outrider: draft model {name!r}: /nothing/here is not a folder")
    assert captured.out == ""


def test_one_source_of_drafts_can_be_checked_alone(
    monkeypatch: pytest.MonkeyPatch, prompts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify(monkeypatch, prompts, "--json", "--drafter", "grammar") == 0
    report = json.loads(capsys.readouterr().out)
    assert list(report["scenarios"]) == ["grammar K=8, batch"]
    assert report["num_identical"] == report["num_compared"] == 10
    assert verify(monkeypatch, prompts, "--drafter", "draft_model") == 2
    assert "one of all, ngram, grammar, replay, trees" in capsys.readouterr().err
