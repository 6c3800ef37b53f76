"""The yardstick: a model's matrix products alone, with weights packed once by oneDNN, and nothing between them.

Fused as far as any implementation could: query, key and value in one product, gate and up in another.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from cluster.config import BUNDLED
from cluster.engine.model_loader import load_config, load_weights
from cluster.engine.model_source import resolve_model
from tests.benchmarks.measure import THREADS, torch_threads

_PROJECTIONS = (
    ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    ("self_attn.o_proj",),
    ("mlp.gate_proj", "mlp.up_proj"),
    ("mlp.down_proj",),
)
_PACKED_FOR_ROWS = 16  # A hint for oneDNN's choice of layout.


class PackedLinears:
    """All linear layers of the bundled model, output head included.

    Args:
        dtype: of weights and activations.
    """

    def __init__(self, dtype: torch.dtype = torch.bfloat16) -> None:
        source = resolve_model(BUNDLED, revision=None, cache_dir=None)
        weights = load_weights(source, dtype)
        num_layers = load_config(source).num_hidden_layers
        self._dtype, self._ops = dtype, torch.ops.mkldnn
        self._layers = [self._pack(weights, index) for index in range(num_layers)]
        head_VK = weights["lm_head.weight"]
        self._head, self._hidden = self._reorder(head_VK), head_VK.shape[1]
        self._depths = [sum(weights[f"model.layers.0.{names[0]}.weight"].shape[1:]) for names in _PROJECTIONS]

    def times_s(self, num_rows: int, num_times: int) -> list[float]:
        """Time that many passes over all layers, after two that are not kept."""
        inputs = [torch.randn(num_rows, depth).to(self._dtype) for depth in self._depths]
        head_input = torch.randn(num_rows, self._hidden).to(self._dtype)
        with torch.inference_mode(), torch_threads(THREADS):
            return [self._pass_s(inputs, head_input) for _ in range(num_times + 2)][2:]

    def _pass_s(self, inputs: Sequence[Tensor], head_input: Tensor) -> float:
        multiply = self._ops._linear_pointwise
        started_s = time.perf_counter()
        for layer in self._layers:
            for rows, weight in zip(inputs, layer, strict=True):
                multiply(rows, weight, None, "none", [], "")
        multiply(head_input, self._head, None, "none", [], "")
        return time.perf_counter() - started_s

    def _pack(self, weights: Mapping[str, Tensor], index: int) -> list[Any]:
        prefix = f"model.layers.{index}."
        return [
            self._reorder(torch.cat([weights[f"{prefix}{name}.weight"] for name in names])) for names in _PROJECTIONS
        ]

    def _reorder(self, weight_NK: Tensor) -> Any:
        return self._ops._reorder_linear_weight(weight_NK.contiguous(), _PACKED_FOR_ROWS)
