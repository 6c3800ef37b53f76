"""An EAGLE-3 head in training (arXiv 2503.01840), under the names of the published checkpoints.

A linear layer fuses hidden states of three of the target's layers. One decoder layer reads them beside the embedding of
the token behind them; from the second step on it reads its own output instead. All steps are unrolled in training: the
keys of step 0 are those of the text, each further step adds one key of the row itself.

Shapes: B texts, L positions, M most rows of a text, R rows, F features, H hidden size, J query heads, K KV heads,
D head size, V columns of the head.
"""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import (
    LlamaMLP,
    LlamaRMSNorm,
    LlamaRotaryEmbedding,
    apply_rotary_pos_emb,
)

from cluster.errors import LoadError
from cluster.training.draft_net import DraftNet, HeadBatch
from cluster.training.student import EMBEDDING, HEAD, NORM, layer_weights

_FIRST_SHARPNESS = 0.3
_WIDE = ("q_proj.weight", "k_proj.weight", "v_proj.weight")
_PUBLISHED_LAYERS = 7
"""From so many layers on the published choice names three different ones, in rising order."""


def eagle3_layers(num_layers: int) -> tuple[int, int, int]:
    """Whose hidden states a head reads: what enters these layers.

    The published heads read layers 2, n / 2 and n - 3 (SafeAILab/EAGLE, `modeling_llama_kv.py`). Where these are not
    three rising ones, the second, the middle and the last layer take their place.
    """
    if num_layers >= _PUBLISHED_LAYERS:
        return 2, num_layers // 2, num_layers - 3
    return min(1, num_layers - 1), num_layers // 2, num_layers - 1


class Eagle3Net(DraftNet):
    """Everything is trained but the embedding, which stays the target's.

    Args:
        config: of the head's layer: a Llama of one layer, of the target's width.
        num_target_layers: of the target.
        weights: the target's, by checkpoint name.
        target_ids: token ids of the head's columns, int64 [V].
        num_steps: unrolled in training.

    Raises:
        LoadError: the target is no relative of Llama.
    """

    def __init__(
        self,
        config: LlamaConfig,
        *,
        num_target_layers: int,
        weights: Mapping[str, Tensor],
        target_ids: Tensor,
        num_steps: int,
    ) -> None:
        super().__init__()
        if missing := {EMBEDDING, NORM, HEAD} - weights.keys():
            raise LoadError(f"the target has no {min(missing)}: heads are trained for relatives of Llama")
        self.num_steps, self.feature_layers = num_steps, eagle3_layers(num_target_layers)
        hidden = config.hidden_size
        self.fc = nn.Linear(len(self.feature_layers) * hidden, hidden, bias=False)
        self.midlayer = MidLayer(config)
        self.norm = LlamaRMSNorm(hidden, config.rms_norm_eps)
        self.lm_head = nn.Linear(hidden, len(target_ids), bias=False)
        self.rotary = LlamaRotaryEmbedding(config)
        self.register_buffer("embedding_TH", weights[EMBEDDING], persistent=False)
        self._warm_start(weights, num_target_layers, target_ids)

    @torch.no_grad()
    def _warm_start(self, weights: Mapping[str, Tensor], num_target_layers: int, target_ids: Tensor) -> None:
        """Begin as the target's last layer on the last of the three hidden states, where shapes fit.

        The embedding's half of the attention starts at random, as there is nothing like it in the target. Compared on
        73,000 tokens, three times over, one step: a random start gave 0.240 right guesses at temperature 0, the
        target's matrices with its norm as it is 0.227, and this 0.290.
        """
        hidden = self.norm.weight.shape[0]
        # The target's own norm would make a head that knows nothing yet very sure of it.
        self.norm.weight.copy_(weights[NORM] * _FIRST_SHARPNESS)
        self.lm_head.weight.copy_(weights[HEAD][target_ids])
        self.fc.weight.zero_()
        self.fc.weight[:, -hidden:].copy_(torch.eye(hidden))
        self.midlayer.start_from(layer_weights(weights, num_target_layers - 1))

    def hidden_steps(self, batch: HeadBatch) -> Iterator[Tensor]:
        """See `DraftNet`. The last hidden states go into the next step before the norm."""
        fused_BLH = self.fc(batch.features)
        unrolled = _Unrolled(self, batch, fused_BLH)
        hidden_RH = fused_BLH.flatten(0, 1)[batch.rows]
        for step in range(self.num_steps):
            hidden_RH = unrolled.step(step, hidden_RH)
            yield self.norm(hidden_RH)

    def logits(self, hidden_RH: Tensor) -> Tensor:
        """Logits over the draft vocabulary, f32 [R, V]."""
        return self.lm_head(hidden_RH).float()  # type: ignore[no-any-return]

    def embed(self, token_ids: Tensor) -> Tensor:
        """The target's embedding of tokens, f32 [..., H]."""
        table_TH: Tensor = self.get_buffer("embedding_TH")
        return table_TH[token_ids].float()


class MidLayer(nn.Module):
    """A decoder layer whose attention reads an embedding and a hidden state side by side.

    Args:
        config: of a Llama.
    """

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.self_attn = WideAttention(config)
        self.mlp = LlamaMLP(config)
        self.hidden_norm = LlamaRMSNorm(config.hidden_size, config.rms_norm_eps)
        self.input_layernorm = LlamaRMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = LlamaRMSNorm(config.hidden_size, config.rms_norm_eps)

    def start_from(self, layer: Mapping[str, Tensor]) -> None:
        """Take over what fits of a target's layer; its attention goes into the hidden state's half."""
        own = self.state_dict()
        for name, weight in layer.items():
            if name == "input_layernorm.weight":
                _fill(own["hidden_norm.weight"], weight)
            elif name in own:
                _fill(own[name].chunk(2, dim=1)[1] if name.endswith(_WIDE) else own[name], weight)

    def read(self, embedded: Tensor, hidden: Tensor) -> Tensor:
        """What attention reads, [..., 2 H]."""
        return torch.cat((self.input_layernorm(embedded), self.hidden_norm(hidden)), -1)


class WideAttention(nn.Module):
    """The matrices of an attention over inputs of twice the width.

    Args:
        config: of a Llama.
    """

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        width, head_dim = 2 * config.hidden_size, int(config.head_dim or 0)
        self.num_heads, self.num_kv_heads = config.num_attention_heads, int(config.num_key_value_heads or 0)
        self.head_dim = head_dim
        self.q_proj = nn.Linear(width, self.num_heads * head_dim, bias=False)
        self.k_proj = nn.Linear(width, self.num_kv_heads * head_dim, bias=False)
        self.v_proj = nn.Linear(width, self.num_kv_heads * head_dim, bias=False)
        self.o_proj = nn.Linear(self.num_heads * head_dim, config.hidden_size, bias=False)


class _Unrolled:
    """One batch on its way through the steps.

    Only rows with labels go through the layer; of the other positions nothing but keys and values is needed.
    """

    def __init__(self, net: Eagle3Net, batch: HeadBatch, fused_BLH: Tensor) -> None:
        self._net, self._batch, self._layer = net, batch, net.midlayer
        attention = net.midlayer.self_attn
        self._kv_shape = (attention.num_kv_heads, attention.head_dim)
        length = batch.token_ids.shape[1]
        places = torch.arange(length + net.num_steps, device=fused_BLH.device)[None]
        cos_1PD, sin_1PD = net.rotary(fused_BLH, places)
        self._cos_PD, self._sin_PD = cos_1PD[0], sin_1PD[0]
        behind_BL = batch.token_ids.roll(-1, 1)
        wide = self._layer.read(net.embed(behind_BL), fused_BLH)
        self._first_keys_BKLD = self._keys(wide, places[0, :length]).transpose(1, 2)
        self._first_values_BKLD = attention.v_proj(wide).unflatten(-1, self._kv_shape).transpose(1, 2)
        self._wide_RW = wide.flatten(0, 1)[batch.rows]
        self._keys_RKD: list[Tensor] = []
        self._values_RKD: list[Tensor] = []
        self._place_rows()

    def _place_rows(self) -> None:
        """Where each row stands when the rows of a text lie side by side, and which keys it may see."""
        texts = self._batch.texts
        num_texts, length = self._batch.token_ids.shape
        counts = torch.bincount(texts, minlength=num_texts)
        self._num_slots = int(counts.max())
        firsts = counts.cumsum(0) - counts
        self._slots = texts * self._num_slots + torch.arange(len(texts), device=texts.device) - firsts[texts]
        positions = torch.zeros(num_texts * self._num_slots, dtype=torch.long, device=texts.device)
        positions[self._slots] = self._batch.positions
        hidden_BML = torch.arange(length, device=texts.device) > positions.view(num_texts, -1, 1)
        self._mask_BML = torch.zeros(hidden_BML.shape, device=texts.device).masked_fill_(hidden_BML, float("-inf"))

    def step(self, step: int, hidden_RH: Tensor) -> Tensor:
        """The layer's output at the rows, [R, H]."""
        layer, positions = self._layer, self._batch.positions + step
        attention = layer.self_attn
        wide_RW = self._wide_RW
        if step:
            wide_RW = layer.read(self._net.embed(self._batch.tokens_behind(1 + step)), hidden_RH)
            self._keys_RKD.append(self._keys(wide_RW, positions))
            self._values_RKD.append(attention.v_proj(wide_RW).unflatten(-1, self._kv_shape))
        query_RJD = attention.q_proj(wide_RW).unflatten(-1, (attention.num_heads, attention.head_dim))
        query_RJD = self._rotate(query_RJD, positions) * attention.head_dim**-0.5
        hidden_RH = hidden_RH + attention.o_proj(self._attend(query_RJD))
        return hidden_RH + layer.mlp(layer.post_attention_layernorm(hidden_RH))  # type: ignore[no-any-return]

    def _attend(self, query_RJD: Tensor) -> Tensor:
        """Attention over the text's keys up to the row, and the row's own of the steps so far; [R, J * D]."""
        query_RKGD = query_RJD.unflatten(1, (self._kv_shape[0], -1))
        scores = self._spread(query_RKGD).flatten(2, 3) @ self._first_keys_BKLD.transpose(2, 3)
        scores_BKGML = scores.unflatten(2, (-1, self._num_slots)) + self._mask_BML[:, None, None]
        own = [(query_RKGD * key_RKD[:, :, None]).sum(-1) for key_RKD in self._keys_RKD]
        own_BKGMS = self._spread(torch.stack(own, -1)) if own else scores_BKGML[..., :0]
        shares = torch.cat((scores_BKGML, own_BKGMS), -1).softmax(-1)
        length = scores_BKGML.shape[-1]
        mixed = shares[..., :length].flatten(2, 3) @ self._first_values_BKLD
        mixed_RKGD = self._gather(mixed.unflatten(2, (-1, self._num_slots)))
        if own:
            own_RKGS = self._gather(shares[..., length:])
            for place, value_RKD in enumerate(self._values_RKD):
                mixed_RKGD = mixed_RKGD + own_RKGS[..., place, None] * value_RKD[:, :, None]
        return mixed_RKGD.flatten(1)

    def _spread(self, rows: Tensor) -> Tensor:
        """[R, K, G, x] to [B, K, G, M, x]."""
        num_texts = self._batch.token_ids.shape[0]
        padded = rows.new_zeros(num_texts * self._num_slots, *rows.shape[1:]).index_copy(0, self._slots, rows)
        return padded.view(num_texts, self._num_slots, *rows.shape[1:]).permute(0, 2, 3, 1, 4)

    def _gather(self, padded: Tensor) -> Tensor:
        """[B, K, G, M, x] to [R, K, G, x]."""
        return padded.permute(0, 3, 1, 2, 4).flatten(0, 1).index_select(0, self._slots)

    def _keys(self, wide: Tensor, positions: Tensor) -> Tensor:
        keys = self._layer.self_attn.k_proj(wide).unflatten(-1, self._kv_shape)
        return self._rotate(keys, positions)

    def _rotate(self, heads: Tensor, positions: Tensor) -> Tensor:
        """Turn [..., N, heads, D] by the N positions."""
        cos, sin = self._cos_PD[positions], self._sin_PD[positions]
        return apply_rotary_pos_emb(heads, heads, cos, sin, unsqueeze_dim=1)[0]  # type: ignore[no-any-return]


def _fill(own: Tensor, weight: Tensor) -> None:
    if own.shape == weight.shape:
        own.copy_(weight)


def eagle3_config(config: LlamaConfig, feature_layers: tuple[int, ...], num_columns: int) -> dict[str, object]:
    """`config.json` of a head, as SpecForge writes it.

    Args:
        config: of the head's layer.
        feature_layers: whose hidden states it reads, in vLLM's count: what enters a layer.
        num_columns: tokens of the draft vocabulary.
    """
    rope = dict(config.rope_parameters or {})
    theta = rope.pop("rope_theta", None)
    return {
        **config.to_dict(),
        "architectures": ["LlamaForCausalLMEagle3"],
        "draft_vocab_size": num_columns,
        "target_hidden_size": config.hidden_size,
        "eagle_aux_hidden_state_layer_ids": list(feature_layers),
        # Readers with an older transformers look for these.
        "rope_theta": theta,
        "rope_scaling": None if rope.get("rope_type") == "default" else rope,
        "dtype": "bfloat16",
    }


def eagle3_tensors(net: Eagle3Net, target_ids: Tensor, vocab_size: int) -> dict[str, Tensor]:
    """The checkpoint's tensors: weights in bfloat16, `d2t` int64 [V] (token id minus column), `t2d` bool [vocabulary].

    Args:
        net: the head.
        target_ids: token ids of its columns, rising, int64 [V].
        vocab_size: of the target.
    """
    ids = target_ids.to("cpu", torch.int64)
    known = torch.zeros(vocab_size, dtype=torch.bool)
    known[ids] = True
    weights = {name: weight.to(torch.bfloat16) for name, weight in net.trained().items()}
    return {**weights, "d2t": ids - torch.arange(len(ids)), "t2d": known}
