"""Models that paged attention cannot serve are refused at load, by name and with the reason."""

from typing import Any

import pytest
import torch
import transformers
from transformers import PretrainedConfig

from cluster.engine.paged_support import position_limit
from cluster.engine.transformers_runner import TransformersRunner
from cluster.errors import LoadError
from tests.cluster.engine.tiny_models import COMMON, VOCAB_SIZE, random_model


def refused(config: PretrainedConfig, reason: str) -> None:
    model = random_model(config)
    with pytest.raises(LoadError, match=reason) as caught:
        TransformersRunner(model, num_kv_blocks=8, block_size=4)
    assert type(model).__name__ in str(caught.value)


def test_recurrent_models_are_refused() -> None:
    refused(
        transformers.MambaConfig(vocab_size=VOCAB_SIZE, hidden_size=16, num_hidden_layers=2, state_size=4),
        "recurrent state",
    )


def test_unknown_layer_types_are_refused() -> None:
    types = ["chunked_attention", "full_attention", "chunked_attention"]
    refused(transformers.LlamaConfig(**{**COMMON, "layer_types": types}), "chunked_attention")


def test_models_with_attention_of_their_own_are_refused() -> None:
    config = transformers.GPTNeoConfig(
        vocab_size=VOCAB_SIZE, hidden_size=16, num_layers=2, num_heads=2, attention_types=[[["global", "local"], 1]]
    )
    refused(config, "cannot be replaced")


def test_encoder_decoders_are_refused() -> None:
    config = transformers.BartConfig(vocab_size=VOCAB_SIZE, d_model=16, encoder_layers=1, decoder_layers=1)
    model = random_model(config)
    model.config.is_encoder_decoder = True
    with pytest.raises(LoadError, match="encoder-decoder"):
        TransformersRunner(model, num_kv_blocks=8, block_size=4)


def test_a_window_that_attention_does_not_ask_for_is_refused() -> None:
    model = random_model(transformers.LlamaConfig(**COMMON))
    model.config.sliding_window = 6
    with pytest.raises(LoadError, match="sliding windows"):
        TransformersRunner(model, num_kv_blocks=8, block_size=4)


def test_hidden_state_outside_attention_is_found_by_the_self_test() -> None:
    model = random_model(transformers.LlamaConfig(**COMMON))
    mlp = model.get_submodule("model.layers.1.mlp")
    # A convolution over positions is fine in one full forward and wrong in chunks; nothing in the config tells.
    mlp.register_forward_hook(lambda _module, _inputs, output: output + torch.roll(output, 1, dims=1))
    with pytest.raises(LoadError, match=r"LlamaForCausalLM .*logits differ"):
        TransformersRunner(model, num_kv_blocks=8, block_size=4)


def test_one_attention_module_for_two_layers_is_refused() -> None:
    model = random_model(transformers.LlamaConfig(**COMMON))
    first, second = model.get_submodule("model.layers.0"), model.get_submodule("model.layers.1")
    second.self_attn = first.self_attn
    with pytest.raises(LoadError, match="serves several layers"):
        TransformersRunner(model, num_kv_blocks=8, block_size=4)


def test_errors_inside_the_modelling_code_name_the_model() -> None:
    model = random_model(transformers.LlamaConfig(**COMMON))

    def broken(*_: object) -> None:
        raise AttributeError("'NoneType' object has no attribute 'conv_states'")

    model.get_submodule("model.layers.1.mlp").register_forward_hook(broken)
    with pytest.raises(LoadError, match=r"LlamaForCausalLM .*conv_states"):
        TransformersRunner(model, num_kv_blocks=8, block_size=4)


@pytest.mark.parametrize("rope_type", ["dynamic", "longrope"])
def test_rope_that_depends_on_the_longest_sequence_limits_the_length(rope_type: str) -> None:
    rope: dict[str, Any] = {"rope_type": rope_type, "rope_theta": 10000.0, "factor": 4.0}
    rope["original_max_position_embeddings"] = 32
    if rope_type == "longrope":
        rope |= {"short_factor": [1.0] * 4, "long_factor": [2.0] * 4}
    assert position_limit(transformers.LlamaConfig(**COMMON, rope_parameters=rope)) == 32
    by_layer_type = {"full_attention": rope, "sliding_attention": {"rope_type": "default", "rope_theta": 1.0}}
    config = transformers.LlamaConfig(**COMMON)
    config.rope_parameters = by_layer_type
    assert position_limit(config) == 32
