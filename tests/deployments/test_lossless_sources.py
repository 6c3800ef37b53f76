"""`outrider verify-lossless` with a draft model: in a real drafter process, killed on the way, and gone at the end."""

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from cluster.config import DraftConfig, EngineConfig
from cluster.engine import startup
from cluster.engine.lossless import check
from cluster.engine.lossless.cases import scenarios
from cluster.engine.model_input import ModelInput
from cluster.engine.model_runner import ModelRunner
from cluster.engine.startup import EngineParts
from deployments import cli, lossless_sources
from deployments.draft_client import DraftClient
from deployments.drafter_process import DrafterProcess, drafter_process
from deployments.engine_build import build_client
from tests.tiny import save_tiny_draft

pytestmark = [pytest.mark.engine, pytest.mark.slow]

SCENARIOS = {
    "drafter actor K=1, batch",
    "drafter actor K=8, batch",
    "drafter actor K=8, alone",
    "drafter actor K=1, preempted",
    "drafter actor, killed",
    "draft model K=8, batch",
}


class Spy:
    """The drafters' processes and their clients, as the command starts them.

    Args:
        temporary: where the processes make their sockets.
    """

    def __init__(self, temporary: Path) -> None:
        self.processes: list[DrafterProcess] = []
        self.clients: list[DraftClient] = []
        self._temporary = temporary

    @contextmanager
    def start(self, engine: EngineConfig, draft: DraftConfig, *, module: str) -> Iterator[DrafterProcess]:
        with drafter_process(engine, draft, module=module) as process:
            self.processes.append(process)
            try:
                yield process
            finally:
                is_killed = process.process.poll() is not None
                for client in self.clients[:-1] if is_killed else self.clients:
                    assert client._peers._link is None, "the process ends while a client uses it"

    def build(self, *args: Any, **settings: Any) -> DraftClient:
        self.clients.append(build_client(*args, **settings))
        return self.clients[-1]

    def assert_nothing_is_left(self) -> None:
        assert self.clients and all(client._peers._link is None for client in self.clients), "a client is left"
        assert self.processes and all(each.process.poll() is not None for each in self.processes), "a process is left"
        assert list(self._temporary.glob("outrider-*")) == []


@pytest.fixture
def spy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spy]:
    with tempfile.TemporaryDirectory() as folder:  # paths of sockets must be short
        monkeypatch.setenv("TMPDIR", folder)
        spy = Spy(Path(folder))
        monkeypatch.setattr(lossless_sources, "drafter_process", spy.start)
        monkeypatch.setattr(lossless_sources, "build_client", spy.build)
        yield spy


@pytest.fixture(scope="module")
def draft_dir(tmp_path_factory: pytest.TempPathFactory, tiny_model_dir: Path) -> Path:
    """All layers of the target but the last: it guesses right and wrong."""
    return save_tiny_draft(tmp_path_factory.mktemp("drafts") / "three-layers", tiny_model_dir, num_layers=3)


def verify(target: Path, draft: Path, *options: str) -> int:
    models = ["--model", str(target), "--draft-model", str(draft), "--num-threads", "1"]
    return cli.main(["verify-lossless", *models, "--json", *options])


def test_a_real_actor_changes_no_token_not_even_when_it_is_killed(
    tiny_model_dir: Path,
    draft_dir: Path,
    spy: Spy,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(check, "scenarios", lambda **kinds: [s for s in scenarios(**kinds) if s.name in SCENARIOS])
    # From another folder than the drafter's own, to see that it finds the models nevertheless.
    monkeypatch.chdir(tiny_model_dir.parent)
    draft = Path(os.path.relpath(draft_dir, tiny_model_dir.parent))
    options = ("--num-prompts", "4", "--max-tokens", "40", "--thorough")
    assert verify(Path(tiny_model_dir.name), draft, *options) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["is_lossless"] and not report["weaknesses"]
    results = report["scenarios"]
    assert set(results) == SCENARIOS
    for result in results.values():
        compared = {setting: count["num_compared"] for setting, count in result["counts"].items()}
        assert compared == {"T=0": 4, "T=0.7": 4, "T=1": 4, "mixed": 4, "grammar": 4}
        assert result["num_draft_tokens"] > result["num_accepted_tokens"] > 10
    drafted = {name: result["num_draft_tokens"] for name, result in results.items()}
    assert drafted["drafter actor K=8, batch"] > drafted["drafter actor K=1, batch"]
    assert results["drafter actor K=1, preempted"]["num_preempted"] > 0
    assert results["drafter actor, killed"]["num_outages"] == 1
    assert [each.process.returncode for each in spy.processes] == [-9, 0]
    spy.assert_nothing_is_left()


class InterruptedRunner:
    """A target that the user interrupts once drafts of the actor have been verified for a while."""

    def __init__(self, runner: ModelRunner, spy: Spy) -> None:
        self.vocab_size, self.block_size, self.max_model_len = (
            runner.vocab_size,
            runner.block_size,
            runner.max_model_len,
        )
        self.num_kv_blocks, self.dtype, self.numerics = runner.num_kv_blocks, runner.dtype, runner.numerics
        self.close = runner.close
        self._runner, self._spy = runner, spy

    def forward(self, batch: ModelInput) -> torch.Tensor:
        if self._spy.clients and self._spy.clients[0].stats().lookups["hit"] > 5:
            raise KeyboardInterrupt
        return self._runner.forward(batch)


def test_an_interruption_closes_the_connection_ends_the_process_and_reports(
    tiny_model_dir: Path,
    draft_dir: Path,
    spy: Spy,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    load_parts = startup.load_parts

    def load(*args: Any) -> EngineParts:
        parts = load_parts(*args)
        return replace(parts, runner=InterruptedRunner(parts.runner, spy))

    monkeypatch.setattr(startup, "load_parts", load)
    assert verify(tiny_model_dir, draft_dir, "--num-prompts", "2") == 130
    captured = capsys.readouterr()
    report = json.loads(captured.out)
    assert report["num_identical"] == report["num_compared"] >= 40
    assert not report["is_complete"]
    assert "interrupted" in captured.err
    assert [each.process.returncode for each in spy.processes] == [0]
    spy.assert_nothing_is_left()
