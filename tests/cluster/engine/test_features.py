"""Hidden states that runners keep: those of transformers itself, at no cost to the logits."""

from copy import deepcopy

import numpy as np
import pytest
import torch

from cluster.engine.engine import Engine
from cluster.engine.features import RoundFeatures
from cluster.engine.model_input import ModelInput
from cluster.engine.model_runner import FeatureRunner
from cluster.engine.native.runner import NativeRunner
from cluster.engine.native.weights import build_native_model
from cluster.engine.transformers_runner import TransformersRunner
from cluster.errors import ConfigError
from tests.cluster.engine.drafters.head_harness import target_runner, whole_input
from tests.cluster.engine.drafters.test_head_drafter import make_drafter
from tests.cluster.engine.engine_harness import ScriptedRunner, make_engine, random_prompt, tiny_llama
from tests.cluster.engine.tiny_models import CONFIGS, random_model
from tests.tiny import bf16_weights

LAYERS = (0, 1, 2)


def states_of(model: torch.nn.Module, tokens: tuple[int, ...], num_layers: int) -> list[torch.Tensor]:
    """What enters each layer and what leaves the last one, before the final norm, by hooks of the test's own."""
    decoder = model.get_decoder()  # type: ignore[operator]
    layers = getattr(decoder, "layers", None) or decoder.h
    caught: list[torch.Tensor] = []
    handles = [layer.register_forward_pre_hook(lambda _, args: caught.append(args[0][0])) for layer in layers]
    norm = next(getattr(decoder, name) for name in ("norm", "final_layer_norm", "ln_f") if hasattr(decoder, name))
    handles.append(norm.register_forward_pre_hook(lambda _, args: caught.append(args[0][0])))
    with torch.inference_mode():
        model(torch.tensor([tokens]), use_cache=False)
    for handle in handles:
        handle.remove()
    return caught[: num_layers + 1]


def test_the_kernels_keep_what_transformers_hands_from_layer_to_layer() -> None:
    tokens = random_prompt(0, 40)
    model = deepcopy(tiny_llama())
    model.load_state_dict(bf16_weights(model))  # rounds the weights, and nothing else
    native = build_native_model(
        model.config,
        bf16_weights(model),
        num_kv_blocks=4,
        block_size=32,
        max_model_len=128,
        kv_dtype=torch.float32,
    )
    runner = NativeRunner(native, num_kv_blocks=4, max_model_len=128, num_threads=2)
    runner.capture(LAYERS)
    runner.forward(whole_input(tokens))
    expected = torch.cat(states_of(model, tokens, 2), dim=1)
    torch.testing.assert_close(runner.features.of(LAYERS), expected, rtol=1e-4, atol=1e-4)
    assert runner.features.of((1,)).shape == (40, 64)


def test_keeping_hidden_states_changes_no_bit_of_the_logits_and_can_be_ended() -> None:
    batch, runner = whole_input(random_prompt(1, 50)), target_runner(4)
    plain = runner.forward(batch).clone()
    runner.capture(LAYERS)
    assert torch.equal(runner.forward(batch), plain)
    runner.capture(())
    assert torch.equal(runner.forward(batch), plain)
    assert runner.features.of(()).numel() == 0


def test_more_threads_and_many_rows_keep_the_same_hidden_states() -> None:
    tokens = random_prompt(2, 400)
    kept = []
    for num_threads in (1, 3):
        runner = target_runner(16)
        runner.set_num_threads(num_threads)
        runner.capture((1, 2))
        runner.forward(whole_input(tokens))
        kept.append(runner.features.of((1, 2)).clone())
    assert torch.equal(kept[0], kept[1])


@pytest.mark.parametrize("name", CONFIGS)
def test_hooks_keep_what_transformers_hands_from_layer_to_layer(name: str) -> None:
    model = random_model(CONFIGS[name]())
    tokens = tuple(range(3, 15))
    expected = torch.cat(states_of(model, tokens, 3), dim=1)
    runner = TransformersRunner(model, num_kv_blocks=8, block_size=4, max_model_len=32)
    batch = small_blocks(tokens)
    plain = runner.forward(batch).clone()
    runner.capture((0, 1, 2, 3))
    assert torch.equal(runner.forward(batch), plain)
    torch.testing.assert_close(runner.features.of((0, 1, 2, 3)), expected, rtol=1e-3, atol=1e-3)
    assert runner.features.of((1, 3)).shape == (12, 2 * runner.hidden_size)
    runner.capture(())
    runner.forward(batch)
    assert isinstance(runner, FeatureRunner)


def small_blocks(tokens: tuple[int, ...]) -> ModelInput:
    places = np.arange(len(tokens), dtype=np.int32)
    return ModelInput(
        token_ids=np.array(tokens, np.int32),
        positions=places,
        slot_mapping=places,
        row_sequences=np.zeros(len(tokens), np.int32),
        block_tables=np.arange(3, dtype=np.int32)[None],
        logit_rows=places,
    )


def test_layers_come_in_any_order_and_more_than_once() -> None:
    features = RoundFeatures((1, 4), torch.tensor([[1.0, 2.0, 3.0, 4.0]]))
    assert features.of((4, 1, 4)).tolist() == [[3.0, 4.0, 1.0, 2.0, 3.0, 4.0]]


def test_a_runner_without_hidden_states_refuses_a_head() -> None:
    with pytest.raises(ConfigError, match=r"draft\.heads"):
        make_engine(runner=ScriptedRunner([5]), drafter=make_drafter())


def test_an_engine_without_heads_asks_for_no_hidden_states() -> None:
    runner = target_runner(8)
    runner.capture((1,))
    engine: Engine = make_engine(runner=runner)
    assert runner.features.of(()).numel() == 0
    engine.close()
