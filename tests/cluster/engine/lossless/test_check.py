"""The check passes a sound engine, proves that its scenarios happened, and sees targets that are not exact."""

from pathlib import Path
from typing import Any

import pytest
import torch

from cluster.config import EngineConfig
from cluster.engine.lossless.cases import GRAMMAR, MIXED, REFERENCE, SETTINGS, Case, cases_of, scenarios
from cluster.engine.lossless.check import LosslessCheck
from cluster.engine.lossless.prompts import Prompt
from cluster.engine.lossless.report import Report
from cluster.engine.model_input import ModelInput
from cluster.engine.model_runner import ModelRunner
from cluster.engine.model_source import ModelSource
from cluster.engine.startup import EngineParts
from cluster.errors import ConfigError
from tests.cluster.engine.engine_harness import tiny_runner, tokenizer
from tests.tiny import EOS_TOKEN_ID

PROMPTS = [
    Prompt(name=f"p{i}", text=f"{i} when the verifier accepts a guess, {'several words appear ' * (1 + i % 5)}")
    for i in range(8)
]


class Disturbed:
    """The tiny model, but with other logits in rows that `is_disturbed` names."""

    def __init__(self, is_disturbed: str) -> None:
        runner = tiny_runner(256)
        self.vocab_size, self.block_size, self.max_model_len = (
            runner.vocab_size,
            runner.block_size,
            runner.max_model_len,
        )
        self.num_kv_blocks, self.dtype, self.numerics = runner.num_kv_blocks, runner.dtype, runner.numerics
        self.close = runner.close
        self._runner, self._is_disturbed = runner, is_disturbed

    def forward(self, batch: ModelInput) -> torch.Tensor:
        logits_NV = self._runner.forward(batch)
        if self._is_disturbed == "beside others" and len(batch.block_tables) > 1:
            return logits_NV.flip(1)
        if self._is_disturbed == "with drafts":
            num_rows = [int((batch.row_sequences == row).sum()) for row in batch.row_sequences[batch.logit_rows]]
            logits_NV = logits_NV.clone()
            logits_NV[[i for i, num in enumerate(num_rows) if 1 < num <= 9]] += torch.linspace(
                0.0, 9.0, self.vocab_size
            )
        return logits_NV


def check_of(runner: ModelRunner | None = None, prompts: list[Prompt] = PROMPTS, **options: Any) -> LosslessCheck:
    parts = EngineParts(
        runner=runner or tiny_runner(256),
        tokenizer=tokenizer(),
        eos_token_ids=frozenset([EOS_TOKEN_ID]),
        model_id="tiny",
        source=ModelSource(folder=Path(), model_id="tiny"),
    )
    return LosslessCheck(parts, EngineConfig(), prompts, **{"max_tokens": 20, "num_alone": 5, **options})


def run(check: LosslessCheck) -> Report:
    return check.run(lambda _: None, lambda: None)


def test_a_sound_engine_is_identical_in_every_scenario() -> None:
    ended: list[None] = []
    check = check_of()
    report = check.run(lambda _: None, lambda: ended.append(None))
    assert report.is_complete
    assert report.num_prompts_done == 8
    assert report.num_compared == report.num_identical
    assert report.differences == []
    assert report.as_json()["is_lossless"]
    assert len(ended) == check.num_requests
    costly = {scenario.name for scenario in scenarios(thorough=False) if scenario.is_costly}
    assert costly == {"n-gram, alone", "trees, preempted", "trees, cached"}
    for name, result in report.scenarios.items():
        assert set(result.counts) == set(SETTINGS)
        assert result.counts["mixed"].num_compared == (5 if name in costly else 8)


def test_each_scenario_does_what_its_name_says() -> None:
    results = run(check_of(max_tokens=40)).scenarios
    grammar = results.pop("grammar K=8, batch")
    assert grammar.num_draft_tokens == grammar.num_accepted_tokens > 20
    assert all(r.num_draft_tokens > r.num_accepted_tokens > 0 for name, r in results.items() if name != "off, batch")
    assert results["off, batch"].num_draft_tokens == 0
    preempted, cached = {"n-gram, preempted", "trees, preempted"}, {"n-gram, cached", "trees, cached"}
    assert {name for name, result in results.items() if result.num_preempted} == preempted
    assert {name for name, result in results.items() if result.num_cached_tokens} == cached
    assert {name for name, result in results.items() if result.num_resumed} == cached
    assert results["n-gram K=8, batch"].num_draft_tokens > results["n-gram K=1, batch"].num_draft_tokens


def test_a_target_that_depends_on_its_batch_is_found_and_described() -> None:
    report = run(check_of(Disturbed("beside others"), PROMPTS[:3]))
    assert not report.as_json()["is_lossless"]
    assert report.scenarios["n-gram, alone"].total.num_identical == 15
    assert report.scenarios["off, batch"].total.num_identical < 15
    first = report.differences[0]
    assert first.expected[: first.position] == first.actual[: first.position]
    assert first.expected[first.position] != first.actual[first.position]
    assert first.num_speculative_tokens == 1
    assert first.sampling["max_tokens"] == 20


def test_a_target_that_is_wrong_in_verified_rows_is_found_with_and_without_a_batch() -> None:
    report = run(check_of(Disturbed("with drafts"), PROMPTS[:6], max_tokens=40, num_alone=6))
    different = {n for n, r in report.scenarios.items() if r.total.num_identical < r.total.num_compared}
    assert different >= {"n-gram, alone", "replay K=8, batch", "n-gram K=8, batch"}


def test_an_interrupted_check_reports_the_groups_that_it_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cluster.engine.lossless.check._GROUP_SIZE", 3)
    check = check_of(prompts=PROMPTS[:6])
    num_references = 0

    def on_phase(text: str) -> None:
        nonlocal num_references
        num_references += text.startswith("reference")
        if num_references == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        check.run(on_phase, lambda: None)
    assert check.report.num_prompts_done == 3
    assert check.report.num_compared == check.report.num_identical > 50
    assert not check.report.is_complete


@pytest.mark.parametrize("text", ["", "word " * 600])
def test_a_prompt_that_does_not_fit_is_refused_by_name(text: str) -> None:
    with pytest.raises(ConfigError, match="prompt long"):
        check_of(prompts=[Prompt(name="long", text=text)])


def test_thorough_runs_each_lookahead_in_each_scenario() -> None:
    names = {scenario.name for scenario in scenarios(thorough=True)}
    for way in ("alone", "preempted", "cached", "batch"):
        assert {f"n-gram K={k}, {way}" for k in (1, 3, 8)} <= names
    assert not any(scenario.is_costly for scenario in scenarios(thorough=True))


def _case(setting: str, index: int) -> Case:
    return next(case for case in cases_of("p", index, (5, 6, 7), 20) if case.setting == setting)


def test_the_grammar_setting_meets_every_grammar_at_every_temperature() -> None:
    cases = [_case(GRAMMAR, index) for index in range(9)]
    assert len({(case.grammar, case.sampling.temperature) for case in cases}) == 9
    assert all(REFERENCE.request_of(case).grammar == case.grammar != "" for case in cases)
    assert not any(_case(setting, 0).grammar for setting in SETTINGS if setting != GRAMMAR)


def test_the_mixed_setting_covers_every_kind_of_sampling() -> None:
    mixed = [_case(MIXED, index).sampling for index in range(16)]
    plain = cases_of("p", 0, (5, 6, 7), 20)[0].sampling
    for name in ("top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty"):
        assert any(getattr(sampling, name) != getattr(plain, name) for sampling in mixed), name
    for name in ("logit_bias", "bad_words", "min_tokens", "stop", "ignore_eos", "logprobs"):
        assert any(getattr(sampling, name) not in ((), 0, None, False) for sampling in mixed), name
    assert len({sampling.seed for sampling in mixed}) == 16
