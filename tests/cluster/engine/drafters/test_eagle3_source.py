"""EAGLE-3 checkpoints load as they are published, and what does not fit is refused by name."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from cluster.engine.drafters.eagle3_source import default_layers, load_eagle3
from cluster.errors import LoadError
from tests.cluster.engine.drafters.head_harness import (
    LAYERS,
    SIZES,
    head_target,
    head_tensors,
    save_specforge,
    save_speculators,
)


def test_both_layouts_hold_the_same_head(tmp_path: Path) -> None:
    first = load_eagle3(save_specforge(tmp_path / "a"), head_target())
    second = load_eagle3(save_speculators(tmp_path / "b"), head_target())
    assert first.tensors.keys() == second.tensors.keys()
    assert all(torch.equal(tensor, second.tensors[name]) for name, tensor in first.tensors.items())
    assert first.feature_layers == second.feature_layers == LAYERS
    ids = np.flatnonzero(head_tensors()["t2d"].numpy())
    assert first.target_ids is not None
    assert second.target_ids is not None
    assert first.target_ids.tolist() == second.target_ids.tolist() == ids.tolist()


def test_layers_default_to_those_that_other_engines_read(tmp_path: Path) -> None:
    assert default_layers(32) == (2, 16, 29)
    assert default_layers(2) == (2, 1, 0)
    loaded = load_eagle3(save_specforge(tmp_path / "head", eagle_config={}), head_target())
    assert loaded.feature_layers == default_layers(2)


def test_columns_in_any_order_are_sorted_by_their_token(tmp_path: Path) -> None:
    tensors = head_tensors()
    ids = tensors["d2t"] + torch.arange(200)
    order = torch.randperm(200, generator=torch.Generator().manual_seed(3))
    shuffled = {
        **tensors,
        "d2t": ids[order] - torch.arange(200),
        "lm_head.weight": tensors["lm_head.weight"][order],
    }
    loaded = load_eagle3(save_specforge(tmp_path / "head", shuffled), head_target())
    assert loaded.target_ids is not None
    assert loaded.target_ids.tolist() == ids.tolist()
    assert torch.equal(loaded.tensors["lm_head.weight"], tensors["lm_head.weight"])


def test_heads_in_float16_or_float32_take_the_targets_type(tmp_path: Path) -> None:
    tensors = {n: t.half() if t.is_floating_point() else t for n, t in head_tensors().items()}
    loaded = load_eagle3(save_specforge(tmp_path / "head", tensors), head_target())
    assert {tensor.dtype for tensor in loaded.tensors.values()} == {torch.bfloat16}


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a second layer": ({"num_hidden_layers": 2}, "num_hidden_layers = 2"),
    "another activation": ({"hidden_act": "gelu"}, "hidden_act = 'gelu'"),
    "a norm before fc": ({"norm_before_fc": True}, "norm_before_fc"),
    "one hidden state": ({"eagle_config": {"use_aux_hidden_state": False}}, "use_aux_hidden_state"),
    "a layer that is not there": ({"eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 1, 7]}}, "names layers"),
    "layers that are no numbers": ({"eagle_aux_hidden_state_layer_ids": ["a"]}, "names layers"),
    "other sizes": ({"intermediate_size": 128}, "has shape (64, 96), config.json implies (64, 128)"),
    "another architecture": ({"architectures": ["LlamaForCausalLM"]}, "not that of an EAGLE-3 head"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_variants_and_sizes_that_do_not_fit_are_refused_by_name(tmp_path: Path, name: str) -> None:
    changes, message = REFUSED[name]
    with pytest.raises(LoadError) as caught:
        load_eagle3(save_specforge(tmp_path / "head", **changes), head_target())
    assert message in str(caught.value)


def test_tensors_that_are_missing_or_unknown_are_named(tmp_path: Path) -> None:
    tensors = head_tensors()
    del tensors["midlayer.hidden_norm.weight"]
    with pytest.raises(LoadError, match=r"layers\.0\.hidden_norm\.weight is missing"):
        load_eagle3(save_specforge(tmp_path / "a", tensors), head_target())
    with pytest.raises(LoadError, match="mask_hidden has no place"):
        load_eagle3(save_specforge(tmp_path / "b", {**head_tensors(), "mask_hidden": torch.zeros(3)}), head_target())


def test_a_vocabulary_that_is_not_the_targets_is_refused(tmp_path: Path) -> None:
    tensors = head_tensors()
    for name, d2t in (("beyond", tensors["d2t"] + 400), ("twice", -torch.arange(200)), ("floats", torch.zeros(200))):
        with pytest.raises(LoadError, match="d2t"):
            load_eagle3(save_specforge(tmp_path / name, {**tensors, "d2t": d2t}), head_target())
    whole = save_specforge(tmp_path / "whole", {name: t for name, t in tensors.items() if name != "d2t"})
    with pytest.raises(LoadError, match="200 rows, expected 512"):
        load_eagle3(whole, head_target())
    small = {**tensors, "embed_tokens.weight": torch.zeros(100, 64, dtype=torch.bfloat16)}
    with pytest.raises(LoadError, match="embedding has 100 rows"):
        load_eagle3(save_specforge(tmp_path / "embedding", small), head_target())


def test_a_head_of_another_width_needs_an_embedding_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="hidden_size = 128, the target's is 64"):
        load_eagle3(save_specforge(tmp_path / "head", hidden_size=128), head_target())


def test_pickles_and_folders_without_a_configuration_are_refused(tmp_path: Path) -> None:
    folder = save_specforge(tmp_path / "head")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(LoadError, match="pickle"):
        load_eagle3(folder, head_target())
    save_file(head_tensors(), folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({**SIZES, "speculators_model_type": "eagle3"}))
    with pytest.raises(LoadError, match="transformer_layer_config"):
        load_eagle3(folder, head_target())
    (folder / "config.json").unlink()
    with pytest.raises(LoadError, match=r"config\.json"):
        load_eagle3(folder, head_target())
