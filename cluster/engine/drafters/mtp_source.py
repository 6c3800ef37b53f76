"""Loads the next-n module ("multi-token prediction") out of the target's own checkpoint, in DeepSeek-V3's layout.

The module is one more decoder layer, `model.layers.{N}` of a model with layers 0..N-1:

    x = eh_proj([enorm(embedding of the next token), hnorm(the target's hidden state)])
    h = shared_head.norm(decoder layer(x));  logits = shared_head.head(h)

`embed_tokens` and `shared_head.head` are the target's own where the checkpoint does not repeat them. That is a model of
the target's family with a single layer, fed with x instead of embeddings, and so it is built: transformers' own code,
with `shared_head.norm` as its final norm.

GLM-4-MoE has the same layout. Qwen3-Next names and places its module otherwise, and its linear attention cannot be
served on paged attention.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from cluster.engine.drafters.head import HeadTarget
from cluster.engine.drafters.target_parts import EMBEDDING, OUTPUT, fill, final_norm, skeleton
from cluster.errors import LoadError

FAMILIES = frozenset({"deepseek_v3", "glm4_moe"})
SETTING = "draft.heads"

_LAYER = "model.layers.0."
_GATE_UP, _DOWN = "mlp.experts.gate_up_proj", "mlp.experts.down_proj"


@dataclass(frozen=True, slots=True, kw_only=True)
class MtpModule:
    """A loaded module on the target's device in its dtype.

    Attributes:
        model: a model with the decoder layer; its final norm is `shared_head.norm`.
        enorm: norm of the embedding.
        hnorm: norm of the hidden state.
        eh_proj: from both, side by side, to the layer's input.
        target_norm: the target's final norm.
    """

    model: PreTrainedModel
    enorm: nn.Module
    hnorm: nn.Module
    eh_proj: nn.Linear
    target_norm: nn.Module


def load_mtp(target: HeadTarget) -> MtpModule:
    """Load and check the first next-n module of the target's checkpoint.

    Raises:
        LoadError: the model is of another family, or the checkpoint has no such module or a damaged one.
    """
    config = target.config
    if config.model_type not in FAMILIES:
        known = " and ".join(sorted(FAMILIES))
        raise LoadError(
            f"{SETTING} names 'mtp', but a target of type {config.model_type} has no next-n module that is known here; "
            f"{known} have. Remove 'mtp' from {SETTING}"
        )
    weights = _Weights(target, f"model.layers.{config.num_hidden_layers}.")
    eh_proj = nn.Linear(2 * config.hidden_size, config.hidden_size, bias=False, device="meta", dtype=target.dtype)
    fill(eh_proj, {"weight": weights.own("eh_proj.weight")}, weights.prefix + "eh_proj")
    model = _block(target, weights)
    norm = model.get_decoder().norm
    return MtpModule(
        model=model,
        enorm=_norm(norm, weights, "enorm", target),
        hnorm=_norm(norm, weights, "hnorm", target),
        eh_proj=nn.Module.to(eh_proj, target.device),
        target_norm=final_norm(target),
    )


class _Weights:
    """Tensors of the module, and of the target where the module shares them."""

    def __init__(self, target: HeadTarget, prefix: str) -> None:
        self._target, self.prefix = target, prefix

    def own(self, name: str) -> Tensor:
        """A tensor of the module that has to be there."""
        try:
            return self._target.weight(self.prefix + name)
        except LoadError as error:
            raise LoadError(
                f"{SETTING} names 'mtp', but the target's checkpoint brings no complete next-n module: "
                f"{self.prefix}{name} is the first tensor that cannot be read ({error}). Use a checkpoint with it, or "
                f"remove 'mtp' from {SETTING}"
            ) from error

    def shared(self, name: str, *others: str) -> Tensor:
        """A tensor of the module, or the first of these of the target."""
        for full in (self.prefix + name, *others[:-1]):
            try:
                return self._target.weight(full)
            except LoadError:
                continue
        return self._target.weight(others[-1])

    def of_block(self, name: str, num_experts: int) -> Tensor:
        """A tensor of the one-layer model by its name there."""
        if name == EMBEDDING:
            return self.shared("embed_tokens.weight", EMBEDDING)
        if name == OUTPUT:
            return self.shared("shared_head.head.weight", OUTPUT, EMBEDDING)
        if name == "model.norm.weight":
            return self.own("shared_head.norm.weight")
        name = name.removeprefix(_LAYER)
        if name == _GATE_UP:
            return torch.stack(
                [
                    torch.cat([self.own(f"mlp.experts.{expert}.{part}_proj.weight") for part in ("gate", "up")])
                    for expert in range(num_experts)
                ]
            )
        if name == _DOWN:
            return torch.stack([self.own(f"mlp.experts.{expert}.down_proj.weight") for expert in range(num_experts)])
        return self.own(name)


def _block(target: HeadTarget, weights: _Weights) -> PreTrainedModel:
    """The decoder layer as a model of its own."""
    config = target.config.get_mtp_config()
    config.num_hidden_layers, config.tie_word_embeddings = 1, False
    model = skeleton(config, target.dtype)
    tensors = {name: weights.of_block(name, config.n_routed_experts) for name in model.state_dict()}
    fill(model, tensors, weights.prefix.removesuffix("."))
    decoder = model.get_decoder()
    decoder.rotary_emb = type(decoder.rotary_emb)(config=config)  # Its tables are computed, not stored.
    return nn.Module.to(model, target.device)


def _norm(like: nn.Module, weights: _Weights, name: str, target: HeadTarget) -> nn.Module:
    norm = type(like)(target.config.hidden_size, eps=target.config.rms_norm_eps).to(target.dtype)
    fill(norm, {"weight": weights.own(f"{name}.weight")}, weights.prefix + name)
    return nn.Module.to(norm, target.device)
