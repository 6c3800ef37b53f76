"""Whether a transformers model can run on paged attention, found out at load instead of in the text it writes.

First the config is read, for a refusal that names the reason. Then a trial pass records what each attention layer asks
for. Last, a self-test compares logits of interleaved chunks with the model's own attention: it catches every kind of
state that does not go through attention (convolutions, recurrences, compressed keys), known by name or not.

Shapes: T rows, N rows with logits, V vocabulary, H query heads, K key/value heads, D width of a head.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel

from cluster.engine.attention import ATTENTION_NAME, AttentionCall
from cluster.engine.kv_cache import KVLayer
from cluster.engine.model_input import ModelInput
from cluster.errors import LoadError

SUPPORTED_LAYER_TYPES = frozenset({"full_attention", "sliding_attention"})

# Rope types whose angles depend on the longest position in the batch: beyond the original limit they would make one
# sequence's text depend on the others.
LENGTH_DEPENDENT_ROPE = frozenset({"dynamic", "longrope"})

# Median relative difference of logit rows that rounding alone does not reach, and lost state does not stay under.
MAX_DIFFERENCE_FLOAT32 = 1e-3
MAX_DIFFERENCE_HALF = 0.25

SELF_TEST_BLOCK_SIZE = 4
SELF_TEST_NUM_BLOCKS = 6
SELF_TEST_TABLES = ((4, 1, 3), (2, 0, 5))
SELF_TEST_LENGTHS = (12, 10)
# (sequence, first row, end) in each pass: sequences are interleaved, cut inside and across blocks, and one decodes.
SELF_TEST_PASSES = (((0, 0, 5), (1, 0, 3)), ((1, 3, 8), (0, 5, 6)), ((0, 6, 12), (1, 8, 10)))

Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionLayers:
    """What the trial pass found.

    Attributes:
        index: attention module to its layer, in order of call.
        kv_layers: what each layer stores.
        vocab_size: width of the logits.
    """

    index: dict[nn.Module, int]
    kv_layers: tuple[KVLayer, ...]
    vocab_size: int


@dataclass(slots=True, eq=False)
class _Recorder:
    """An attention backend that takes notes and answers zeros."""

    calls: list[AttentionCall] = field(default_factory=list)

    def attend(self, call: AttentionCall) -> torch.Tensor:
        """Note the call; returns zeros [T, H, Dv]."""
        self.calls.append(call)
        num_rows, num_heads, _ = call.query.shape
        return call.value.new_zeros(num_rows, num_heads, call.value.shape[-1])


def check_config(model: PreTrainedModel) -> None:
    """Refuse what the config already tells.

    Raises:
        LoadError: encoder-decoder, recurrent state, or a kind of attention layer that is not supported.
    """
    config = model.config
    if config.is_encoder_decoder:
        raise _refusal(model, "it is an encoder-decoder model")
    if getattr(model, "_is_stateful", False):
        raise _refusal(model, "it keeps recurrent state besides keys and values")
    types = set(getattr(config.get_text_config(), "layer_types", None) or ())
    if unsupported := sorted(types - SUPPORTED_LAYER_TYPES):
        raise _refusal(model, f"layers of type {', '.join(unsupported)} are not supported")


def position_limit(config: PreTrainedConfig) -> int | None:
    """Longest sequence in tokens for which a row's result depends on its own sequence alone; None if unlimited."""
    text_config = config.get_text_config()
    limits = [getattr(text_config, "max_position_embeddings", None)]
    rope = getattr(text_config, "rope_parameters", None) or {}
    for parameters in (rope, *rope.values()):
        if isinstance(parameters, dict) and parameters.get("rope_type") in LENGTH_DEPENDENT_ROPE:
            limits.append(parameters.get("original_max_position_embeddings"))
    return min((limit for limit in limits if limit), default=None)


def find_layers(model: PreTrainedModel) -> AttentionLayers:
    """Put our attention into the model, run two tokens through it and note what its layers ask for.

    Raises:
        LoadError: the model cannot be given another attention, or asks for what paged attention does not do.
    """
    model.set_attn_implementation(ATTENTION_NAME)
    recorder = _Recorder()
    logits_NV = _trial(model, lambda: call_model(model, torch.arange(2), torch.arange(2), paged=recorder))
    if not recorder.calls:
        raise _refusal(model, "its attention cannot be replaced")
    index = {call.module: layer for layer, call in enumerate(recorder.calls)}
    if len(index) != len(recorder.calls):
        raise _refusal(model, "one attention module serves several layers")
    _check_windows(model, recorder.calls)
    return AttentionLayers(
        index=index,
        kv_layers=tuple(_kv_layer(call) for call in recorder.calls),
        vocab_size=logits_NV.shape[-1],
    )


def call_model(
    model: PreTrainedModel, token_ids_T: torch.Tensor, positions_T: torch.Tensor, **kwargs: Any
) -> torch.Tensor:
    """One forward pass over one packed row without transformers' cache.

    Args:
        model: the model.
        token_ids_T: ids, any integer type, on any device.
        positions_T: positions, the same.
        **kwargs: handed through, also to the attention function.

    Returns:
        Logits [N, V] of the rows in `logits_to_keep`, or of all rows.
    """
    output = model(
        input_ids=token_ids_T.to(model.device, torch.int64)[None],
        position_ids=positions_T.to(model.device, torch.int64)[None],
        use_cache=False,
        **kwargs,
    )
    logits_NV: torch.Tensor = output.logits[0]
    return logits_NV


def self_test(model: PreTrainedModel, forward: Callable[[ModelInput], torch.Tensor], vocab_size: int) -> None:
    """Compare paged logits with the model's own eager attention on two short sequences.

    Args:
        model: the model, with our attention, which it has again afterwards.
        forward: one paged pass over a cache of SELF_TEST_NUM_BLOCKS blocks of SELF_TEST_BLOCK_SIZE tokens.
        vocab_size: number of token ids.

    Raises:
        LoadError: they differ by more than rounding.
    """
    tokens = [(np.arange(length) * 7919 + 13 * length) % vocab_size for length in SELF_TEST_LENGTHS]
    model.set_attn_implementation("eager")
    wanted = [_trial(model, partial(_full_forward, model, ids)) for ids in tokens]
    model.set_attn_implementation(ATTENTION_NAME)
    differences = []
    for cuts in SELF_TEST_PASSES:
        batch = _self_test_batch(tokens, cuts)
        found_NV = _trial(model, partial(forward, batch)).float()
        wanted_NV = torch.cat([wanted[sequence][start:end] for sequence, start, end in cuts])
        spread_N = (wanted_NV - wanted_NV.mean(dim=-1, keepdim=True)).norm(dim=-1).clamp_min(1e-12)
        differences.append((found_NV - wanted_NV).norm(dim=-1) / spread_N)
    # Rows of the first pass have no earlier state that could be missing; a median ignores a flipped expert.
    difference = torch.cat(differences[1:]).nan_to_num(nan=float("inf")).median().item()
    limit = MAX_DIFFERENCE_FLOAT32 if model.dtype == torch.float32 else MAX_DIFFERENCE_HALF
    if difference > limit:
        raise _refusal(model, f"its logits differ from its own attention's by {difference:.2g} (at most {limit:g})")


def _full_forward(model: PreTrainedModel, token_ids_T: Int64) -> torch.Tensor:
    return call_model(model, torch.as_tensor(token_ids_T), torch.arange(len(token_ids_T))).float()


def _self_test_batch(tokens: list[Int64], cuts: tuple[tuple[int, int, int], ...]) -> ModelInput:
    rows = [(sequence, position) for sequence, start, end in cuts for position in range(start, end)]
    order = [sequence for sequence, _, _ in cuts]
    size = SELF_TEST_BLOCK_SIZE
    return ModelInput(
        token_ids=np.array([tokens[s][p] for s, p in rows], np.int32),
        positions=np.array([p for _, p in rows], np.int32),
        slot_mapping=np.array([SELF_TEST_TABLES[s][p // size] * size + p % size for s, p in rows], np.int32),
        row_sequences=np.array([order.index(s) for s, _ in rows], np.int32),
        block_tables=np.array([SELF_TEST_TABLES[s] for s in order], np.int32),
        logit_rows=np.arange(len(rows), dtype=np.int32),
    )


def _trial(model: PreTrainedModel, run: Callable[[], torch.Tensor]) -> torch.Tensor:
    """Run one pass; whatever breaks inside the modelling code becomes a refusal that names the model."""
    try:
        with torch.inference_mode():
            return run()
    except LoadError as error:
        raise _refusal(model, str(error)) from error
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, TypeError, ValueError, AttributeError, LookupError) as error:
        raise _refusal(model, f"its forward pass fails with {type(error).__name__}: {error}") from error


def _check_windows(model: PreTrainedModel, calls: list[AttentionCall]) -> None:
    """Refuse a config that declares sliding windows which its attention modules do not ask for, or the reverse."""
    config = model.config.get_text_config()
    layer_types = getattr(config, "layer_types", None)
    window = getattr(config, "sliding_window", None)
    everywhere = [window is not None] * len(calls)
    declared = [kind == "sliding_attention" for kind in layer_types] if layer_types else everywhere
    asked = [call.sliding_window is not None for call in calls]
    if declared != asked:
        raise _refusal(model, "it declares sliding windows that its attention layers do not ask for, or the reverse")


def _kv_layer(call: AttentionCall) -> KVLayer:
    _, num_kv_heads, key_dim = call.key.shape
    return KVLayer(num_kv_heads=num_kv_heads, key_dim=key_dim, value_dim=call.value.shape[-1], dtype=call.key.dtype)


def _refusal(model: PreTrainedModel, reason: str) -> LoadError:
    return LoadError(f"{type(model).__name__} cannot be served with paged attention: {reason}")
