"""EAGLE-3 heads in both published layouts against an independent reference, in torch and on the CPU kernels."""

from collections.abc import Sequence as Seq
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cluster.engine.drafters.draft_job import DraftCapacityError, DraftLengthError
from cluster.engine.drafters.eagle3 import MAX_ROWS, Eagle3Head
from cluster.engine.drafters.eagle3_source import load_eagle3
from cluster.engine.drafters.eagle3_torch import TorchEagle3
from cluster.engine.drafters.head import HeadRows
from cluster.engine.drafters.head_drafter import HeadDrafter
from cluster.engine.drafters.heads import build_eagle3
from cluster.engine.native.eagle3 import NativeEagle3
from tests.cluster.engine.drafters.head_harness import (
    LAYERS,
    Reference,
    disturbed_run,
    head_target,
    head_tensors,
    save_specforge,
    save_speculators,
)
from tests.cluster.engine.drafters.test_head_drafter import SAMPLING, all_the_same, counts, make_drafter
from tests.cluster.engine.engine_harness import make_engine, random_prompt, request, run

TOLERANCE = {"native": (3e-2, 3e-2), "torch": (5e-2, 8e-2)}
"""Relative and absolute. The kernels round keys and values to bf16, torch every step."""
SAVE = {"specforge": save_specforge, "speculators": save_speculators}


def make_head(folder: Path, kind: str, *, num_blocks: int = 64, max_len: int = 512) -> Eagle3Head:
    weights = load_eagle3(folder, head_target())
    layer: Any
    if kind == "native":
        layer = NativeEagle3(weights, num_blocks=num_blocks, max_len=max_len, num_threads=1)
    else:
        layer = TorchEagle3(weights, num_blocks=num_blocks, max_len=max_len, device="cpu", num_threads=1)
    return Eagle3Head(layer, feature_layers=weights.feature_layers, target_ids=weights.target_ids, max_len=max_len)


def features_of(seed: int, num_rows: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(num_rows, len(LAYERS) * 64, generator=generator).bfloat16()


def rows_of(head: Eagle3Head, state: Any, start: int, tokens: Seq[int], features: torch.Tensor) -> HeadRows:
    head.reserve(state, len(tokens) + 4, start + len(tokens) + 4)
    return HeadRows(state=state, first_position=start, token_ids=tokens, features_nF=features)


def close(actual: Any, expected: Any, kind: str) -> None:
    rtol, atol = TOLERANCE[kind]
    torch.testing.assert_close(torch.as_tensor(np.array(actual)), torch.stack(list(expected)), rtol=rtol, atol=atol)


@pytest.mark.parametrize("layout", SAVE)
@pytest.mark.parametrize("kind", TOLERANCE)
def test_logits_of_first_and_later_tokens_are_those_of_the_reference(tmp_path: Path, layout: str, kind: str) -> None:
    head, reference = make_head(SAVE[layout](tmp_path / layout), kind), Reference(head_tensors())
    tokens, features, drafts = random_prompt(0, 40), features_of(0, 40), random_prompt(1, 3)
    state = head.open()
    first = head.begin([rows_of(head, state, 0, tokens, features)]).copy()
    later = [head.step([state], [token]).copy() for token in drafts]
    close(np.concatenate([first, *later]), reference.logits(features, tokens, range(40), drafts), kind)


@pytest.mark.parametrize("kind", TOLERANCE)
def test_a_normed_residual_is_what_the_configuration_says(tmp_path: Path, kind: str) -> None:
    folder = save_speculators(tmp_path / "head", norm_before_residual=True)
    head, reference = make_head(folder, kind), Reference(head_tensors(), normed_residual=True)
    tokens, features = random_prompt(0, 12), features_of(0, 12)
    state = head.open()
    first = head.begin([rows_of(head, state, 0, tokens, features)]).copy()
    later = head.step([state], [9]).copy()
    close(np.concatenate([first, later]), reference.logits(features, tokens, range(12), [9]), kind)


@pytest.mark.parametrize("kind", TOLERANCE)
def test_what_steps_read_is_forgotten_and_rows_may_come_in_parts_with_gaps(tmp_path: Path, kind: str) -> None:
    head, reference = make_head(save_specforge(tmp_path / "head"), kind), Reference(head_tensors())
    tokens, features = random_prompt(0, 30), features_of(0, 30)
    kept = [*range(7), *range(12, 30)]
    state = head.open()
    head.begin([rows_of(head, state, 0, tokens[:7], features[:7])])
    for token in range(20):
        head.step([state], [token])
    head.begin([rows_of(head, state, 12, tokens[12:29], features[12:29])])
    known = [tokens[place] for place in kept]
    stepped = head.step([state], [13]).copy()
    close(stepped, reference.logits(features[kept[:-1]], known[:-1], kept[:-1], [13])[1:], kind)
    answer = head.begin([rows_of(head, state, 29, tokens[29:], features[29:])])
    close(answer, reference.logits(features[kept], known, kept), kind)


@pytest.mark.parametrize("kind", TOLERANCE)
def test_sequences_read_and_step_together_as_each_alone(tmp_path: Path, kind: str) -> None:
    head, reference = make_head(save_specforge(tmp_path / "head"), kind), Reference(head_tensors())
    lengths = (3, 50, 1, 33)
    tokens = [random_prompt(seed, length) for seed, length in enumerate(lengths)]
    features = [features_of(seed, length) for seed, length in enumerate(lengths)]
    states = [head.open() for _ in lengths]
    batch = [rows_of(head, *each) for each in zip(states, (0, 5, 0, 0), tokens, features, strict=True)]
    answers = [head.begin(batch).copy()]
    answers += [head.step(states, [token] * 4).copy() for token in (8, 9)]
    for index, length in enumerate(lengths):
        start = 5 if index == 1 else 0
        expected = reference.logits(features[index], tokens[index], range(start, start + length), [8, 9])
        close([answer[index] for answer in answers], expected, kind)


def test_a_prompt_of_many_passes_is_read_as_in_one(tmp_path: Path) -> None:
    head, reference = make_head(save_specforge(tmp_path / "head"), "native"), Reference(head_tensors())
    lengths = (MAX_ROWS - 20, 160, 5)
    tokens = [random_prompt(seed, length) for seed, length in enumerate(lengths)]
    features = [features_of(seed, length) for seed, length in enumerate(lengths)]
    states = [head.open() for _ in lengths]
    answers = head.begin([rows_of(head, *each) for each in zip(states, (0, 0, 0), tokens, features, strict=True)])
    for index, length in enumerate(lengths):
        close(answers[index : index + 1], reference.logits(features[index], tokens[index], range(length)), "native")


def test_the_kernels_give_a_row_the_same_bits_beside_any_others(tmp_path: Path) -> None:
    folder, tokens, features = save_specforge(tmp_path / "head"), random_prompt(0, 20), features_of(0, 20)
    alone, together = make_head(folder, "native"), make_head(folder, "native")
    state = alone.open()
    expected = alone.begin([rows_of(alone, state, 0, tokens, features)])[0].copy()
    states = [together.open() for _ in range(3)]
    batch = [rows_of(together, other, 0, random_prompt(9, 14), features_of(9, 14)) for other in states[:2]]
    answer = together.begin([*batch, rows_of(together, states[2], 0, tokens, features)])[2]
    assert np.array_equal(answer, expected)


def test_blocks_are_bounded_and_given_back(tmp_path: Path) -> None:
    head = make_head(save_specforge(tmp_path / "head"), "native", num_blocks=3)
    first, second = head.open(), head.open()
    head.reserve(first, 60, 60)
    with pytest.raises(DraftCapacityError):
        head.reserve(second, 40, 40)
    with pytest.raises(DraftLengthError):
        head.reserve(second, 1, 513)
    assert head.num_free_blocks == 1
    head.close(first)
    head.reserve(second, 40, 40)
    head.close(second)
    assert head.num_free_blocks == 3


def eagle3_drafter(folder: Path, **settings: Any) -> HeadDrafter:
    head: Any = build_eagle3(folder, head_target())
    return make_drafter(head, **settings)


@pytest.mark.parametrize("name", SAMPLING)
def test_drafts_of_a_head_change_no_token(tmp_path: Path, name: str) -> None:
    drafter = eagle3_drafter(save_specforge(tmp_path / "head"))
    requests = [
        request(f"r{i}", random_prompt(i, 5 + 30 * i), max_tokens=30, seed=i, **SAMPLING[name]) for i in range(4)
    ]
    steps: list[Any] = []
    results = run(make_engine(drafter=drafter, num_speculative_tokens=4, draft_budget="fixed"), requests, steps)
    assert counts(steps)[0] > 100
    assert all_the_same(results, requests)
    assert (drafter.num_sequences, drafter.num_feature_bytes) == (0, 0)


def test_preemption_cached_prompts_aborts_and_changes_of_role_change_no_token(tmp_path: Path) -> None:
    drafter = eagle3_drafter(save_specforge(tmp_path / "head"))
    engine = make_engine(drafter=drafter, num_speculative_tokens=4, num_blocks=10, draft_budget="fixed")
    requests = [request(f"r{i}", random_prompt(i % 2, 40), max_tokens=60, seed=i, ignore_eos=True) for i in range(5)]
    results, steps = disturbed_run(engine, requests)
    assert sum(step.num_preempted for step in steps) > 0
    assert max(result.num_cached_tokens for result in results.values()) > 0
    assert counts(steps)[0] > 20
    assert all_the_same(results, requests[:4])
    assert drafter._head.num_free_blocks == 128  # type: ignore[attr-defined]


def test_a_head_without_columns_of_its_own_drafts_over_the_whole_vocabulary(tmp_path: Path) -> None:
    tensors = {name: tensor for name, tensor in head_tensors().items() if name not in ("d2t", "t2d", "lm_head.weight")}
    head = build_eagle3(save_specforge(tmp_path / "head", tensors), head_target())
    assert (head.num_columns, head.target_ids) == (512, None)
    tensors["lm_head.weight"] = head_target().weight("lm_head.weight")
    tokens, features = random_prompt(0, 9), features_of(0, 9)
    answer = head.begin([rows_of(head, head.open(), 0, tokens, features)])
    close(answer, Reference(tensors).logits(features, tokens, range(9)), "native")


def test_the_torch_head_runs_where_the_kernels_cannot(tmp_path: Path) -> None:
    assert isinstance(build_eagle3(save_specforge(tmp_path / "a"), head_target())._layer, NativeEagle3)
    tensors, attention = head_tensors(), "midlayer.self_attn."
    for name, rows in (("q_proj", 64), ("k_proj", 32), ("v_proj", 32)):
        tensors[f"{attention}{name}.weight"] = tensors[f"{attention}{name}.weight"][:rows].clone()
    tensors[f"{attention}o_proj.weight"] = tensors[f"{attention}o_proj.weight"][:, :64].contiguous()
    narrow = save_specforge(tmp_path / "b", tensors, head_dim=16)
    assert isinstance(build_eagle3(narrow, head_target())._layer, TorchEagle3)
