"""Faults that users of other engines reported, with a drafter in a process of its own, over a real channel."""

import logging
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from shutil import copytree

import pytest
import torch
from safetensors.torch import load_file, save_file

from cluster.config import DraftConfig, EngineConfig
from cluster.errors import LoadError
from deployments.drafter_process import drafter_process
from tests.chaos.verifier_process import Job, Report
from tests.chaos.verifiers import start, stopping, verifier_here
from tests.chaos.watched_drafter import WatchedDrafter, watched_drafter
from tests.tiny import build_config, build_tokenizer, random_llama

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

DRAFT_WAIT_S = 0.5
"""The draft model is as large as the tiny target: without a wait its tables would all be late."""


Plain = Callable[[Sequence[Job]], Mapping[str, list[int]]]


def job(number: int, num_tokens: int = 60, *, prompt_tokens: int = 20, temperature: float = 0.0) -> Job:
    prompt = tuple((11 + 37 * number + 13 * j * (j + number)) % 500 + 3 for j in range(prompt_tokens))
    return Job(request_id=f"r{number}", prompt=prompt, num_tokens=num_tokens, seed=number, temperature=temperature)


def jobs(count: int, num_tokens: int = 60, *, temperature: float = 0.0) -> list[Job]:
    return [job(number, num_tokens, temperature=temperature) for number in range(count)]


@pytest.fixture(scope="module")
def plain(engine_config: EngineConfig) -> Plain:
    """Texts with speculation off."""

    def texts(jobs: Sequence[Job]) -> Mapping[str, list[int]]:
        config = replace(engine_config, num_speculative_tokens=0)
        with verifier_here(config, []) as verifier:
            return verifier.run([replace(each, first_round=0, abort_round=None) for each in jobs]).texts

    return texts


@pytest.fixture(scope="module")
def drafter(
    engine_config: EngineConfig, draft_config: DraftConfig, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[WatchedDrafter]:
    """Drafts what the target says."""
    with watched_drafter(engine_config, draft_config, tmp_path_factory.mktemp("cases")) as drafter:
        yield drafter


def edited(config: DraftConfig, folder: Path, edit: Callable[[dict[str, torch.Tensor]], None]) -> DraftConfig:
    """A copy of a draft model with other weights, in `folder`."""
    copytree(str(config.model), folder)
    tensors = load_file(folder / "model.safetensors")
    edit(tensors)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return replace(config, model=str(folder))


def test_a_sequence_beyond_the_drafters_limit_stops_speculating_alone(
    engine_config: EngineConfig, draft_config: DraftConfig, tmp_path: Path, plain: Plain
) -> None:
    """Case D1: draft limit 128, a request of 200 tokens among short ones."""
    work = [job(0, 200), *(job(number, 60) for number in range(1, 4))]
    config = replace(draft_config, max_model_len=128)
    with (
        watched_drafter(engine_config, config, tmp_path) as drafter,
        verifier_here(engine_config, [drafter.running.record], draft_wait_s=DRAFT_WAIT_S) as verifier,
    ):
        report = verifier.run(work)
        assert report.texts == plain(work)
        assert report.fallbacks["length"] >= 70, "one token a round from 128 on"
        assert report.hit_ratio > 0.8
        late = job(9, 10, prompt_tokens=150)
        assert verifier.run([late]).lookups["hit"] == 0, "too long from the beginning"
        assert verifier.run(jobs(2, 30)).hit_ratio > 0.8
        drafter.wait_for(lambda sight: sight.is_empty)


def test_a_drafter_whose_memory_does_not_fit_refuses_to_start_with_its_table(
    engine_config: EngineConfig, draft_config: DraftConfig, capfd: pytest.CaptureFixture[str]
) -> None:
    """Case D3."""
    too_large = replace(draft_config, kv_cache_tokens=1 << 32)
    with pytest.raises(LoadError, match="did not start"), drafter_process(engine_config, too_large):
        pass
    said = capfd.readouterr().err
    assert "draft.kv_cache_tokens" in said
    assert "KV" in said


@pytest.mark.parametrize(("draft_wait_s", "forward_s"), [(DRAFT_WAIT_S, 0.0), (0.0, 0.02)], ids=["awaited", "late"])
def test_preempted_sequences_keep_their_texts_and_get_no_stale_drafts(
    engine_config: EngineConfig, drafter: WatchedDrafter, plain: Plain, draft_wait_s: float, forward_s: float
) -> None:
    """Cases D5 and B11: sequences are preempted, and skip rounds, while drafts for them are on their way."""
    work = [*jobs(4, 120), *(job(number, 120, temperature=1.0) for number in range(4, 8))]
    tight = replace(engine_config, kv_cache_tokens=512)
    with verifier_here(tight, [drafter.running.record], draft_wait_s=draft_wait_s, forward_s=forward_s) as verifier:
        report = verifier.run(work)
    assert report.num_preempted > 3
    assert report.texts == plain(work)
    assert report.num_foreign_ids == 0
    assert report.lookups["hit"] > 0
    assert report.acceptance_ratio > 0.95, "what was drafted before is not what is verified after"
    drafter.wait_for(lambda sight: sight.is_empty)


def test_aborted_requests_are_forgotten_by_both_sides_within_a_second(
    engine_config: EngineConfig, drafter: WatchedDrafter
) -> None:
    """Case D7: clients go away in the middle of their streams."""
    with verifier_here(engine_config, [drafter.running.record], draft_wait_s=DRAFT_WAIT_S) as verifier:
        report = verifier.run([replace(each, abort_round=12) for each in jobs(8, 500)])
        aborted_s = time.monotonic()
        assert set(report.reasons.values()) == {"abort"}
        assert report.lookups["hit"] > 0
        assert drafter.wait_for(lambda sight: sight.is_empty).at_s - aborted_s < 1.0
        assert verifier.num_kept == 0


@pytest.mark.parametrize("temperature", [0.3, 1.0, 1.7])
def test_a_draft_model_that_equals_its_target_is_always_right_when_tokens_are_sampled(
    engine_config: EngineConfig, drafter: WatchedDrafter, temperature: float
) -> None:
    """Case B6: the noise is shared, so equal distributions draw equal tokens."""
    with verifier_here(engine_config, [drafter.running.record], draft_wait_s=DRAFT_WAIT_S) as verifier:
        report = verifier.run(jobs(4, 80, temperature=temperature))
    assert sum(report.drafted) > 100
    assert report.acceptance_ratio == 1.0


def test_stopped_processes_hold_nobody_up(engine_config: EngineConfig, drafter: WatchedDrafter, plain: Plain) -> None:
    """Case D14: two verifiers and one drafter, none in lock step with another."""
    work = jobs(4, 100)
    started = [start(engine_config, [drafter.running.record], name=name, draft_wait_s=0.05) for name in "ab"]
    with stopping(*started) as (first, second):
        first.begin(jobs(4, 400))
        drafter.wait_for(lambda sight: sight.by_verifier.get("a") == 4)
        os.kill(first.process.pid, signal.SIGSTOP)
        report = second.serve(work)
        assert report.texts == plain(work)
        assert report.hit_ratio > 0.5
        os.kill(first.process.pid, signal.SIGCONT)
        pid = drafter.running.process.pid
        os.kill(pid, signal.SIGSTOP)
        try:
            report = second.serve(work)
            assert report.texts == plain(work)
            assert report.hit_ratio < 0.1
            assert first.report().texts == plain(jobs(4, 400))
        finally:
            os.kill(pid, signal.SIGCONT)


def test_a_drafter_with_other_attention_options_changes_nothing_in_the_verifier(
    engine_config: EngineConfig, draft_config: DraftConfig, tmp_path: Path, plain: Plain
) -> None:
    """Case D16: the two share no process, and so no global settings."""
    config = build_config()
    config.num_attention_heads, config.num_key_value_heads, config.head_dim = 2, 1, 32
    config.rope_parameters = {"rope_type": "default", "rope_theta": 500.0}
    folder = tmp_path / "other"
    random_llama(config, seed=7).save_pretrained(folder)
    build_tokenizer().save_pretrained(folder)
    before = torch.get_num_threads(), torch.get_default_dtype(), torch.is_grad_enabled()
    with (
        watched_drafter(engine_config, replace(draft_config, model=str(folder)), tmp_path) as drafter,
        verifier_here(engine_config, [drafter.running.record], draft_wait_s=DRAFT_WAIT_S) as verifier,
    ):
        report = verifier.run(jobs(4))
        assert report.num_lookups > 0
        assert report.texts == plain(jobs(4))
    assert before == (torch.get_num_threads(), torch.get_default_dtype(), torch.is_grad_enabled())


def test_a_drafter_that_says_token_0_for_ever_is_left_alone(
    engine_config: EngineConfig, draft_config: DraftConfig, tmp_path: Path, plain: Plain
) -> None:
    """Case B12: a model whose logits are all equal, so that ties go to id 0."""

    def clear_norm(tensors: dict[str, torch.Tensor]) -> None:
        tensors["model.norm.weight"].zero_()

    zero = edited(draft_config, tmp_path / "zero", clear_norm)
    work = jobs(4, 200)
    with (
        watched_drafter(engine_config, zero, tmp_path) as drafter,
        verifier_here(engine_config, [drafter.running.record], draft_wait_s=DRAFT_WAIT_S) as verifier,
    ):
        report = verifier.run(work)
    assert report.texts == plain(work)
    assert report.transitions["wrong"] >= 1
    assert report.fallbacks["quarantined"] > report.num_lookups


def accepted_in(report: Report, begin: int, end: int) -> float:
    """Accepted share of the draft tokens of some rounds."""
    return sum(report.accepted[begin:end]) / max(1, sum(report.drafted[begin:end]))


def test_drafts_are_as_good_after_a_burst_without_any_as_before(
    engine_config: EngineConfig, drafter: WatchedDrafter, plain: Plain
) -> None:
    """Case A10: so many sequences that no draft pays, for 50 rounds."""
    begin = 40
    burst = [replace(job(number, 50), first_round=begin) for number in range(2, 22)]
    work = [*jobs(2, 450), *burst]
    # Passes of up to 12 rows cost next to nothing, further rows their full share.
    ratios = [(1, 1.0), (12, 1.05), (112, 101.0)]
    with verifier_here(
        engine_config, [drafter.running.record], forward_s=0.01, draft_wait_s=DRAFT_WAIT_S, step_ratios=ratios
    ) as verifier:
        report = verifier.run(work)
    assert report.texts == plain(work)
    end = begin + 50
    assert report.drafted[begin + 2 : end - 2].count(0) > 40, "but for a try now and then"
    assert sum(report.drafted[2:begin]) > 0.8 * 8 * (begin - 2), "four tokens for each of the two before"
    assert accepted_in(report, end + 2, len(report.drafted)) > accepted_in(report, 0, begin) - 0.05
    assert accepted_in(report, 0, begin) > 0.8


def test_after_a_spell_of_prompts_that_it_cannot_draft_for_the_drafter_is_used_again(
    engine_config: EngineConfig, draft_config: DraftConfig, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Case A11: 200 bad prompts, then 200 good ones."""
    strange_id = 499

    def misread(tensors: dict[str, torch.Tensor]) -> None:
        tensors["model.embed_tokens.weight"][strange_id] *= -20

    strange = edited(draft_config, tmp_path / "strange", misread)
    bad = [replace(each, prompt=(strange_id,) * 40) for each in jobs(200, 10)]
    good = [replace(each, request_id=f"g{each.request_id}") for each in jobs(200, 10)]
    with (
        caplog.at_level(logging.INFO, logger="deployments.draft_peers"),
        watched_drafter(engine_config, strange, tmp_path) as drafter,
        verifier_here(engine_config, [drafter.running.record], draft_wait_s=DRAFT_WAIT_S) as verifier,
    ):
        assert verifier.run(bad, batch=8).transitions["wrong"] >= 1
        end_s = time.monotonic() + 30
        while not verifier.run(good, batch=8).transitions["recovered"]:
            assert time.monotonic() < end_s, "left alone for ever"
        report = verifier.run(good, batch=8)
    assert report.hit_ratio > 0.8
    assert report.acceptance_ratio > 0.8
    for reason in ("wrong", "probing", "recovered"):
        assert any(f": {reason}: " in message for message in caplog.messages)
