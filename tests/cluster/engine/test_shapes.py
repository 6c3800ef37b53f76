"""Shapes against transformers' own modules, counted on the meta device, and against arithmetic written out."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from cluster.engine.known_shapes import KNOWN_CONFIGS, find_shape, known_shape
from cluster.engine.shape_config import FAMILIES, read_shape, shape_of
from cluster.engine.shapes import LatentAttention, ModelShape
from cluster.errors import ConfigError, LoadError

ROUTER_BIAS = "e_score_correction_bias"
SMALL = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "max_position_embeddings": 128,
}
MOE = SMALL | {"moe_intermediate_size": 32, "num_experts_per_tok": 2}
EXPERTS = {"n_routed_experts": 8, "n_shared_experts": 2, "first_k_dense_replace": 1}
SMALL_CONFIGS: dict[str, dict[str, Any]] = {
    "llama with biases": SMALL | {"model_type": "llama", "attention_bias": True, "mlp_bias": True},
    "mistral, tied": SMALL | {"model_type": "mistral", "tie_word_embeddings": True, "head_dim": 16},
    "qwen2": SMALL | {"model_type": "qwen2"},
    "qwen3 with biases": SMALL | {"model_type": "qwen3", "attention_bias": True, "head_dim": 16},
    "mixtral": SMALL | {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen3_moe": MOE
    | {"model_type": "qwen3_moe", "head_dim": 16, "num_experts": 4, "mlp_only_layers": [3], "decoder_sparse_step": 2},
    "glm4_moe": MOE | EXPERTS | {"model_type": "glm4_moe", "use_qk_norm": True, "attention_bias": True, "head_dim": 16},
    "deepseek_v3": MOE
    | EXPERTS
    | {
        "model_type": "deepseek_v3",
        "q_lora_rank": 24,
        "kv_lora_rank": 16,
        "qk_nope_head_dim": 8,
        "num_key_value_heads": 8,
    }
    | {"qk_rope_head_dim": 4, "v_head_dim": 6, "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1},
    "deepseek_v3 without compressed queries": MOE
    | EXPERTS
    | {"model_type": "deepseek_v3", "q_lora_rank": None, "kv_lora_rank": 16, "qk_nope_head_dim": 8}
    | {"qk_rope_head_dim": 4, "v_head_dim": 6, "n_group": 2, "topk_group": 1, "num_key_value_heads": 8},
}


def count_on_meta(config: dict[str, Any]) -> int:
    """Parameters of transformers' module, and the bias of its routers, which is a buffer there."""
    fields = {name: value for name, value in config.items() if name != "model_type"}
    built = AutoConfig.for_model(config["model_type"], **({"tie_word_embeddings": False} | fields))
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(built)
    buffers = [each for name, each in model.named_buffers() if name.endswith(ROUTER_BIAS)]
    return sum(each.numel() for each in (*model.parameters(), *buffers))


@pytest.mark.parametrize("config", SMALL_CONFIGS.values(), ids=SMALL_CONFIGS)
def test_every_family_has_as_many_parameters_as_its_module(config: dict[str, Any]) -> None:
    assert shape_of(config, name="small", source="test").num_parameters == count_on_meta(config)


def test_every_family_is_counted() -> None:
    assert {config["model_type"] for config in SMALL_CONFIGS.values()} == set(FAMILIES)


@pytest.mark.parametrize("name", ["Llama-3.3-70B", "Llama-3.2-1B", "Qwen3-32B", "Qwen3-0.6B", "DeepSeek-V3"])
def test_known_models_have_as_many_parameters_as_their_modules(name: str) -> None:
    assert known_shape(name).num_parameters == count_on_meta(KNOWN_CONFIGS[name])


def test_known_models_have_the_parameters_that_are_published() -> None:
    published = {
        "Llama-3.3-70B": 70_553_706_496,
        "Llama-3.1-8B": 8_030_261_248,
        "Llama-3.2-3B": 3_212_749_824,
        "Llama-3.2-1B": 1_235_814_400,
        "Qwen3-32B": 32_762_123_264,
        "Qwen3-14B": 14_768_307_200,
        "Qwen3-8B": 8_190_735_360,
        "Qwen3-0.6B": 596_049_920,
        "DeepSeek-V3": 671_026_419_200,
        "SmolLM2-135M": 134_515_008,
    }
    assert {name: known_shape(name).num_parameters for name in KNOWN_CONFIGS} == published


def test_the_next_n_module_of_deepseek_v3_is_one_of_its_layers_with_two_norms_and_a_projection_more() -> None:
    one_layer = KNOWN_CONFIGS["DeepSeek-V3"] | {"num_hidden_layers": 1, "first_k_dense_replace": 0}
    # The module of one layer brings embedding, head, and the last norm; enorm, hnorm and eh_proj come on top.
    expected = count_on_meta(one_layer) + 2 * 7168 + 7168 * 2 * 7168
    assert known_shape("DeepSeek-V3").num_mtp_parameters == expected
    assert expected - 2 * 129_280 * 7168 == pytest.approx(11.5e9, rel=0.02)  # "11.5B unique parameters"
    assert known_shape("Llama-3.3-70B").num_mtp_parameters == 0


def test_kv_of_grouped_attention_is_divided_by_heads_and_repeated_where_there_are_more_ranks() -> None:
    shape = known_shape("Llama-3.3-70B")
    by_ranks = {count: shape.kv_token_bytes(count) for count in (1, 2, 8, 16)}
    one_head = 80 * 2 * 128 * 2
    assert by_ranks == {1: 8 * one_head, 2: 4 * one_head, 8: one_head, 16: one_head}
    assert by_ranks[1] == 320 * 1024


def test_kv_of_latent_attention_is_full_by_head_or_compressed_on_every_rank() -> None:
    full = known_shape("DeepSeek-V3")
    assert isinstance(full.attention, LatentAttention)
    latent = replace(full, attention=replace(full.attention, keeps_latent=True))
    assert full.kv_token_bytes(8) == 61 * (128 // 8) * (128 + 64 + 128) * 2
    assert latent.kv_token_bytes(8) == latent.kv_token_bytes() == 61 * (512 + 64) * 2 == 70_272


def test_shares_of_all_ranks_are_the_weights_and_the_copies_of_what_is_not_divided() -> None:
    shape = known_shape("Llama-3.3-70B")
    norms = (2 * 80 + 1) * 8192 * 2
    assert 8 * shape.weight_bytes(8) == shape.weight_bytes() + 7 * norms
    # With 16 ranks, each of the 8 key and value heads lies on two of them.
    key_value = 80 * 8192 * 2 * 8 * 128 * 2
    assert 16 * shape.weight_bytes(16) == shape.weight_bytes() + 15 * norms + key_value


def test_what_latent_attention_compresses_lies_whole_on_every_rank() -> None:
    shape = known_shape("DeepSeek-V3")
    compressing = 61 * 7168 * (1536 + 512 + 64)
    routers = 58 * 256 * (7168 + 1)
    norms = 61 * (1536 + 512 + 2 * 7168) + 7168
    assert 8 * shape.weight_bytes(8) == shape.weight_bytes() + 7 * 2 * (compressing + routers + norms)


def test_fp8_halves_the_matrices_of_layers_and_nothing_else() -> None:
    shape = known_shape("Llama-3.3-70B")
    others = 2 * 128_256 * 8192 + (2 * 80 + 1) * 8192
    assert shape.weight_bytes(1, "fp8") == shape.num_parameters + others


def test_ranks_share_heads_and_widths_evenly() -> None:
    degrees = {name: known_shape(name).degrees(16) for name in ("Llama-3.3-70B", "Qwen3-14B", "SmolLM2-135M")}
    assert degrees == {"Llama-3.3-70B": (1, 2, 4, 8, 16), "Qwen3-14B": (1, 2, 4, 8), "SmolLM2-135M": (1, 3)}


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("meta-llama/Llama-3.3-70B-Instruct", "Llama-3.3-70B"),
        ("Qwen/Qwen3-0.6B", "Qwen3-0.6B"),
        ("deepseek-ai/DeepSeek-V3-0324", "DeepSeek-V3"),
        ("llama-3.1-8b", "Llama-3.1-8B"),
        ("bundled", "SmolLM2-135M"),
    ],
)
def test_well_known_models_are_found_by_their_usual_names(name: str, found: str) -> None:
    assert find_shape(name, field="--target").name == found


def test_a_folder_and_its_config_give_the_same_shape(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(SMALL_CONFIGS["qwen3_moe"]))
    shape = find_shape(str(tmp_path), field="--target")
    assert shape == read_shape(tmp_path / "config.json") == find_shape(f"{tmp_path}/config.json", field="--target")
    assert (shape.name, shape.num_layers) == (tmp_path.name, 4)


def test_the_bundled_draft_model_is_read_like_any_other() -> None:
    folder = Path(__file__).parents[3] / "cluster/assets/draft-smollm2-135m"
    shape: ModelShape = read_shape(folder)
    assert (shape.num_layers, shape.is_tied) == (6, False)


def test_an_unknown_name_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(ConfigError, match=r"--draft = 'owner/model' .* folder with a config.json, or one of Llama-3.3"):
        find_shape("owner/model", field="--draft")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model_type": "mamba"}, "model_type = 'mamba' is not one of deepseek_v3"),
        ({"num_hidden_layers": None}, "num_hidden_layers = None is no number"),
        ({"hidden_size": "many"}, "hidden_size = 'many' is no number"),
        ({"vocab_size": 0}, "vocab_size = 0 is no number"),
        ({"num_attention_heads": True}, "num_attention_heads = True"),
        ({"draft_vocab_size": 32_000}, "draft_vocab_size says that this is a draft head"),
    ],
)
def test_a_config_that_cannot_be_read_names_its_field(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(SMALL_CONFIGS["qwen2"] | change))
    with pytest.raises(LoadError, match=words):
        read_shape(tmp_path)


@pytest.mark.parametrize(("content", "words"), [("[1]", "JSON list"), ("{", "not readable JSON")])
def test_a_file_that_is_no_config_is_refused(content: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(LoadError, match=words):
        read_shape(tmp_path)


def test_layers_of_qwen3_moe_must_be_numbers() -> None:
    with pytest.raises(LoadError, match="mlp_only_layers"):
        shape_of(SMALL_CONFIGS["qwen3_moe"] | {"mlp_only_layers": "all"}, name="x", source="x")
