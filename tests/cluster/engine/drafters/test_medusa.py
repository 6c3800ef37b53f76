"""Medusa heads in the published layouts, against the formula of the paper written out."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from cluster.engine.drafters import medusa
from cluster.engine.drafters.draft_job import DraftCapacityError
from cluster.engine.drafters.head import HeadRows, HeadTarget
from cluster.engine.drafters.heads import load_heads
from cluster.engine.drafters.medusa import MedusaHead, build_medusa
from cluster.errors import LoadError
from tests.tiny import VOCAB_SIZE, build_config, random_llama

NUM_HEADS, NUM_LAYERS, HIDDEN = 3, 2, 64
TARGET = {name: tensor.clone() for name, tensor in random_llama(build_config(), seed=1).state_dict().items()}
TARGET["model.norm.weight"] = torch.linspace(0.5, 2.0, HIDDEN)


def target(**changes: Any) -> HeadTarget:
    settings: dict[str, Any] = {
        "config": build_config(),
        "weight": TARGET.__getitem__,
        "device": "cpu",
        "dtype": torch.float32,
        "max_model_len": 256,
        "max_sequences": 8,
        "num_threads": 1,
    }
    return HeadTarget(**{**settings, **changes})


def random_tensors(*, has_outputs: bool) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    tensors: dict[str, Tensor] = {}
    for head in range(NUM_HEADS):
        for layer in range(NUM_LAYERS):
            tensors[f"{head}.{layer}.linear.weight"] = 0.2 * torch.randn(HIDDEN, HIDDEN, generator=generator)
            tensors[f"{head}.{layer}.linear.bias"] = 0.2 * torch.randn(HIDDEN, generator=generator)
        if has_outputs:
            tensors[f"{head}.{NUM_LAYERS}.weight"] = 0.2 * torch.randn(VOCAB_SIZE, HIDDEN, generator=generator)
    return tensors


def write(
    folder: Path, tensors: Mapping[str, Tensor], *, file: str = "medusa_lm_head.safetensors", **config: Any
) -> Path:
    about = {"medusa_num_heads": NUM_HEADS, "medusa_num_layers": NUM_LAYERS, **config}
    (folder / "config.json").write_text(json.dumps(about))
    save_file(dict(tensors), folder / file)
    return folder


def wanted_logits(tensors: Mapping[str, Tensor], feature_H: Tensor) -> Tensor:
    """Logits of all heads, [K, V]."""
    norm_H = feature_H / torch.sqrt(feature_H.square().mean() + build_config().rms_norm_eps)
    logits = []
    for head in range(NUM_HEADS):
        x_H = norm_H * TARGET["model.norm.weight"]
        for layer in range(NUM_LAYERS):
            inner = tensors[f"{head}.{layer}.linear.weight"] @ x_H + tensors[f"{head}.{layer}.linear.bias"]
            x_H = x_H + inner * torch.sigmoid(inner)
        logits.append(tensors.get(f"{head}.{NUM_LAYERS}.weight", TARGET["lm_head.weight"]) @ x_H)
    return torch.stack(logits)


def features(seed: int, num_rows: int) -> Tensor:
    return torch.randn(num_rows, HIDDEN, generator=torch.Generator().manual_seed(seed))


def rows(state: object, features_nH: Tensor) -> HeadRows:
    return HeadRows(state=state, first_position=5, token_ids=[7] * len(features_nH), features_nF=features_nH)


def all_logits(head: MedusaHead, parts: list[Tensor], token_id: int = 9) -> Tensor:
    """Logits of all heads for a batch, [K, B, C]."""
    states = [head.open() for _ in parts]
    found = [head.begin([rows(state, part) for state, part in zip(states, parts, strict=True)])]
    found += [head.step(states, [token_id] * len(states)) for _ in range(NUM_HEADS - 1)]
    for state in states:
        head.close(state)
    return torch.stack([torch.from_numpy(part) for part in found])


@pytest.mark.parametrize("has_outputs", [True, False], ids=["own outputs", "the target's output"])
@pytest.mark.parametrize("prefix", ["", "medusa_lm_head.", "medusa_head."])
def test_heads_give_the_logits_of_the_formula(tmp_path: Path, has_outputs: bool, prefix: str) -> None:
    tensors = random_tensors(has_outputs=has_outputs)
    head = build_medusa(write(tmp_path, {prefix + name: tensor for name, tensor in tensors.items()}), target())
    parts = [features(seed, 1 + seed) for seed in range(3)]
    wanted = torch.stack([wanted_logits(tensors, part[-1]) for part in parts], dim=1)
    torch.testing.assert_close(all_logits(head, parts), wanted, atol=1e-4, rtol=1e-4)


def test_logits_do_not_depend_on_how_many_are_worked_out_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = build_medusa(write(tmp_path, random_tensors(has_outputs=False)), target())
    parts = [features(seed, 2) for seed in range(4)]
    together = all_logits(head, parts)
    monkeypatch.setattr(medusa, "_MAX_JOINT_ROWS", 0)
    torch.testing.assert_close(all_logits(head, parts), together, atol=1e-5, rtol=1e-5)


def test_sequences_at_different_depths_step_together(tmp_path: Path) -> None:
    tensors = random_tensors(has_outputs=True)
    head = build_medusa(write(tmp_path, tensors), target())
    parts, states = [features(1, 1), features(2, 1)], [head.open(), head.open()]
    head.begin([rows(states[0], parts[0])])
    head.step([states[0]], [3])
    head.begin([rows(states[1], parts[1])])
    found = torch.from_numpy(head.step(states, [3, 4]))
    wanted = torch.stack([wanted_logits(tensors, parts[0][0])[2], wanted_logits(tensors, parts[1][0])[1]])
    torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)


def test_the_draft_token_makes_no_difference_and_begin_starts_anew(tmp_path: Path) -> None:
    head = build_medusa(write(tmp_path, random_tensors(has_outputs=True)), target())
    state, part = head.open(), features(3, 1)
    drafts = [[head.begin([rows(state, part)]), head.step([state], [token])] for token in (1, 400)]
    np.testing.assert_array_equal(drafts[0], drafts[1])


def test_weights_in_the_usual_files_and_a_tied_embedding_are_found(tmp_path: Path) -> None:
    config = build_config(tie_word_embeddings=True)
    tied = {name: tensor for name, tensor in TARGET.items() if name != "lm_head.weight"}
    folder = write(tmp_path, random_tensors(has_outputs=False), file="model.safetensors")
    head = build_medusa(folder, target(config=config, weight=tied.__getitem__))
    tops = all_logits(head, [features(4, 1)])
    assert tops.shape == (NUM_HEADS, 1, VOCAB_SIZE)


def test_a_folder_of_heads_is_known_by_its_config(tmp_path: Path) -> None:
    (head,) = load_heads((str(write(tmp_path, random_tensors(has_outputs=False))),), target())
    assert isinstance(head, MedusaHead)


def test_as_many_sequences_as_draft_at_once_can_be_open(tmp_path: Path) -> None:
    head = build_medusa(write(tmp_path, random_tensors(has_outputs=True)), target(max_sequences=2))
    first, _ = head.open(), head.open()
    with pytest.raises(DraftCapacityError):
        head.open()
    head.close(first)
    head.open()


def test_the_head_says_what_it_is(tmp_path: Path) -> None:
    head = build_medusa(write(tmp_path, random_tensors(has_outputs=True)), target())
    assert (head.name, head.feature_layers, head.max_draft_tokens) == ("medusa", (4,), NUM_HEADS)
    assert (head.num_columns, head.target_ids) == (VOCAB_SIZE, None)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"2.1.linear.bias": None}, r"2\.1\.linear\.bias is missing"),
        ({"1.2.weight": None}, r"1\.2\.weight is missing"),
        ({"0.1.linear.weight": None}, "these are no Medusa heads"),
        (
            {"1.0.linear.weight": torch.zeros(3, 3)},
            r"1\.0\.linear\.weight has shape \(3, 3\), the target needs \(64, 64\)",
        ),
        ({"0.2.weight": torch.zeros(100, HIDDEN)}, r"0\.2\.weight has shape \(100, 64\), the target needs \(512, 64\)"),
    ],
)
def test_heads_that_do_not_fit_are_refused_by_name(
    tmp_path: Path, changes: dict[str, Tensor | None], reason: str
) -> None:
    tensors = {**random_tensors(has_outputs=True), **changes}
    with pytest.raises(LoadError, match=reason):
        build_medusa(write(tmp_path, {n: t for n, t in tensors.items() if t is not None}), target())


@pytest.mark.parametrize("config", [{"medusa_num_heads": 0}, {"medusa_num_layers": "1"}, {"medusa_num_heads": 99}])
def test_a_config_out_of_range_is_refused_with_field_and_range(tmp_path: Path, config: dict[str, Any]) -> None:
    folder = write(tmp_path, random_tensors(has_outputs=True), **config)
    with pytest.raises(LoadError, match=rf"{next(iter(config))} = .* no number from 1 to 16"):
        build_medusa(folder, target())


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path, random_tensors(has_outputs=True))
    (folder / "medusa_lm_head.safetensors").write_bytes(b"no tensors")
    with pytest.raises(LoadError, match="is damaged"):
        build_medusa(folder, target())


def test_a_pickle_is_refused_with_a_command_that_converts_it(tmp_path: Path) -> None:
    tensors = random_tensors(has_outputs=True)
    folder = write(tmp_path, tensors)
    (folder / "medusa_lm_head.safetensors").unlink()
    torch.save(tensors, folder / "medusa_lm_head.pt")
    with pytest.raises(LoadError, match="is a pickle") as caught:
        build_medusa(folder, target())
    code = str(caught.value).split('python -c "')[1].rstrip('"')
    exec(compile(code, "command", "exec"), {})
    assert load_file(folder / "medusa_lm_head.safetensors").keys() == tensors.keys()
    build_medusa(folder, target())
