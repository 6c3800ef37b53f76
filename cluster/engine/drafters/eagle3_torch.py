"""The arithmetic of an EAGLE-3 head in torch, on any device. The CPU kernels are compared with it.

Legend: T rows of a pass, N rows with logits, H hidden size, Q query heads, K key and value heads, D width of a head.
"""

from collections.abc import Sequence as Seq

import torch
from torch import Tensor, nn
from torch.nn import functional

from cluster.engine.attention import AttentionCall, PagedAttention
from cluster.engine.drafters.eagle3 import BLOCK_SIZE
from cluster.engine.drafters.eagle3_source import EMBEDDING, FC, LAYER, NORM, OUTPUT, Eagle3Weights
from cluster.engine.drafters.head import Int32
from cluster.engine.drafters.target_parts import cpu_threads
from cluster.engine.kv_cache import KVLayer, PagedKVCache
from cluster.engine.model_input import ModelInput
from cluster.engine.native.weights import read_shape, rope_tables
from cluster.engine.noise import FloatArray


class TorchEagle3:
    """`Eagle3Layer` in torch.

    Args:
        weights: of the head.
        num_blocks: KV blocks.
        max_len: longest sequence in tokens.
        device: where it runs.
        num_threads: of its passes, on CPU.
    """

    def __init__(self, weights: Eagle3Weights, *, num_blocks: int, max_len: int, device: str, num_threads: int) -> None:
        config, shape = weights.config, read_shape(weights.config)
        self._weights = {name: tensor.to(device) for name, tensor in weights.tensors.items()}
        self._dtype, self._device = self._weights[FC].dtype, torch.device(device)
        self._head_dim, self._eps, self._normed_residual = shape.head_dim, shape.norm_eps, weights.normed_residual
        self._cosine, self._sine = (torch.from_numpy(table).to(device) for table in rope_tables(config, max_len))
        layer = KVLayer(
            num_kv_heads=shape.num_kv_heads,
            key_dim=shape.head_dim,
            value_dim=shape.head_dim,
            dtype=self._dtype,
        )
        self._cache = PagedKVCache(num_blocks=num_blocks, block_size=BLOCK_SIZE, layers=(layer,), device=device)
        self._num_threads = num_threads
        self._module = nn.Identity()  # stands for the layer where attention asks for one
        self.num_blocks, self.num_columns = num_blocks, len(weights.tensors[OUTPUT])

    @torch.inference_mode()
    def run(
        self, batch: ModelInput, rotary_positions: Int32, *, features_TF: Tensor | None, hidden_TH: Tensor | None
    ) -> tuple[FloatArray, Tensor]:
        """One pass; see `Eagle3Layer.run`."""
        with cpu_threads(self._num_threads):
            return self._run(batch, rotary_positions, features_TF, hidden_TH)

    def _run(
        self, batch: ModelInput, rotary_positions: Int32, features_TF: Tensor | None, hidden_TH: Tensor | None
    ) -> tuple[FloatArray, Tensor]:
        if features_TF is not None:
            hidden_TH = self._linear(FC, features_TF.to(self._device, self._dtype))
        assert hidden_TH is not None
        token_ids_T = torch.as_tensor(batch.token_ids, dtype=torch.int64, device=self._device)
        hidden_TH = self._layer(self._weights[EMBEDDING][token_ids_T], hidden_TH, batch, rotary_positions)
        hidden_NH = hidden_TH[torch.as_tensor(batch.logit_rows, dtype=torch.int64, device=self._device)]
        logits_NC = self._linear(OUTPUT, self._norm(NORM, hidden_NH))
        return logits_NC.float().cpu().numpy(), hidden_NH

    def copy_blocks(self, sources: Seq[int], destinations: Seq[int]) -> None:
        """Copy whole KV blocks; no block may be in both lists."""
        self._cache.copy_blocks(sources, destinations)

    def close(self) -> None:
        """Release weights and memory."""
        self._weights.clear()
        del self._cache

    def _layer(self, embedded_TH: Tensor, hidden_TH: Tensor, batch: ModelInput, rotary_positions: Int32) -> Tensor:
        normed_TH = self._norm(f"{LAYER}hidden_norm.weight", hidden_TH)
        residual_TH = normed_TH if self._normed_residual else hidden_TH
        pair = torch.cat((self._norm(f"{LAYER}input_layernorm.weight", embedded_TH), normed_TH), dim=1)
        residual_TH = residual_TH + self._attention(pair, batch, rotary_positions)
        normed_TH = self._norm(f"{LAYER}post_attention_layernorm.weight", residual_TH)
        gate, up = (self._linear(f"{LAYER}mlp.{name}_proj.weight", normed_TH) for name in ("gate", "up"))
        return residual_TH + self._linear(f"{LAYER}mlp.down_proj.weight", functional.silu(gate) * up)

    def _attention(self, pair: Tensor, batch: ModelInput, rotary_positions: Int32) -> Tensor:
        positions_T = torch.as_tensor(rotary_positions, dtype=torch.int64, device=self._device)
        query_TQD, key_TKD, value_TKD = (self._projection(name, pair) for name in "qkv")
        call = AttentionCall(
            module=self._module,
            query=self._rotate(query_TQD, positions_T),
            key=self._rotate(key_TKD, positions_T),
            value=value_TKD,
        )
        paged = PagedAttention(cache=self._cache, layers={self._module: 0}, batch=batch, device=self._device)
        return self._linear(f"{LAYER}self_attn.o_proj.weight", paged.attend(call).flatten(1))

    def _projection(self, name: str, pair: Tensor) -> Tensor:
        """Heads of the query, key or value, normed where the head has such norms."""
        bias = self._weights.get(f"{LAYER}self_attn.{name}_proj.bias")
        weight = self._weights[f"{LAYER}self_attn.{name}_proj.weight"]
        heads = functional.linear(pair, weight, bias).unflatten(1, (-1, self._head_dim))
        norm = f"{LAYER}self_attn.{name}_norm.weight"
        return self._norm(norm, heads) if norm in self._weights else heads

    def _rotate(self, heads: Tensor, positions_T: Tensor) -> Tensor:
        cosine, sine = self._cosine[positions_T, None], self._sine[positions_T, None]
        first, second = heads.float().chunk(2, dim=-1)
        rotated = torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)
        return rotated.to(self._dtype)

    def _norm(self, name: str, rows: Tensor) -> Tensor:
        exact = rows.float()
        scaled = exact * torch.rsqrt(exact.square().mean(dim=-1, keepdim=True) + self._eps)
        return (scaled * self._weights[name].float()).to(self._dtype)

    def _linear(self, name: str, rows: Tensor) -> Tensor:
        return functional.linear(rows, self._weights[name])
