"""The draft model in training: a Llama of few layers between parts of the target, which stay as they are.

Embedding, first layers and head are the target's own. Sharing them costs nothing in the file that is shipped, starts
the student in a space where the target's tokens already lie right, and lets it be deeper than what it learns. The
layers that it learns start as copies of some of the target's.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaModel, PretrainedConfig

from cluster.errors import LoadError
from cluster.training.loop import TrainedModule

EMBEDDING, NORM, HEAD = "model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"

# Shapes: B texts, L positions, H hidden, R rows, V columns of the head.


class Student(TrainedModule):
    """Its own layers and the final norm are trained; embedding, shared layers and head are not.

    What the target has and a Llama has not (norms of queries and keys, some biases) is left out of its own layers, and
    what it lacks starts at random.

    Args:
        config: the student's, of the target's width.
        weights: the target's, by checkpoint name.
        start_layers: the target's layers that its own start from, one each; the layers before them are shared.
        target_ids: token ids of the head's columns, int64 [V].

    Raises:
        LoadError: the target is no relative of Llama, or its layers are not Llama's and shall be shared.
    """

    def __init__(
        self, config: LlamaConfig, weights: Mapping[str, Tensor], start_layers: Sequence[int], target_ids: Tensor
    ) -> None:
        super().__init__()
        if missing := {EMBEDDING, NORM, HEAD} - weights.keys():
            raise LoadError(f"the target has no {min(missing)}: draft models are made for relatives of Llama")
        self.config = config
        self.model = LlamaModel(config)
        self.num_shared_layers = config.num_hidden_layers - len(start_layers)
        start = {"embed_tokens.weight": weights[EMBEDDING], "norm.weight": weights[NORM]}
        for own, source in enumerate((*range(self.num_shared_layers), *start_layers)):
            lent = layer_weights(weights, source)
            if own < self.num_shared_layers and lent.keys() != self.model.layers[own].state_dict().keys():
                raise LoadError("the target's layers are not Llama's: train with --num-shared-layers 0")
            start |= {f"layers.{own}.{name}": weight for name, weight in lent.items()}
        shapes = {name: tensor.shape for name, tensor in self.model.state_dict().items()}
        fitting = {name: weight.float() for name, weight in start.items() if shapes.get(name) == weight.shape}
        self.model.load_state_dict(fitting, strict=False)
        self.model.embed_tokens.weight.requires_grad_(False)
        for layer in self._layers[: self.num_shared_layers]:
            layer.requires_grad_(False)
        self.register_buffer("head_VH", weights[HEAD][target_ids].float(), persistent=False)

    def forward(self, token_ids_BL: Tensor, rows_R: Tensor) -> Tensor:
        """Logits over the head's columns at the given flat positions, f32 [R, V]."""
        return self.own(self.shared(token_ids_BL), rows_R)

    @torch.no_grad()
    def shared(self, token_ids_BL: Tensor) -> Tensor:
        """What comes out of the shared layers, [B, L, H]: the same however long the student learns."""
        return self._run(self.model.embed_tokens(token_ids_BL), self._layers[: self.num_shared_layers])

    def own(self, hidden_BLH: Tensor, rows_R: Tensor) -> Tensor:
        """Logits from what the shared layers gave, at the given flat positions, f32 [R, V]."""
        hidden_BLH = self.model.norm(self._run(hidden_BLH, self._layers[self.num_shared_layers :]))
        hidden_RH = hidden_BLH.flatten(0, 1)[rows_R]
        return nn.functional.linear(hidden_RH, cast(Tensor, self.head_VH).to(hidden_RH.dtype)).float()

    @property
    def _layers(self) -> list[nn.Module]:
        return list(self.model.layers)

    def _run(self, hidden_BLH: Tensor, layers: Sequence[nn.Module]) -> Tensor:
        positions_1L = torch.arange(hidden_BLH.shape[1], device=hidden_BLH.device)[None]
        rotary = self.model.rotary_emb(hidden_BLH, positions_1L)
        for layer in layers:  # Without a mask attention is causal, and padding stands on the right.
            hidden_BLH = layer(hidden_BLH, attention_mask=None, position_ids=positions_1L, position_embeddings=rotary)
        return hidden_BLH


def layer_weights(weights: Mapping[str, Tensor], index: int) -> dict[str, Tensor]:
    """A layer of a checkpoint, by name within it."""
    prefix = f"model.layers.{index}."
    return {name.removeprefix(prefix): weight for name, weight in weights.items() if name.startswith(prefix)}


def training_device() -> torch.device:
    """Where training runs: a GPU if there is one."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def starting_layers(num_target_layers: int, num_layers: int, num_shared_layers: int = 0) -> tuple[int, ...]:
    """The target's layers that a student's own start from: at equal distances among those that it does not share.

    Behind shared layers the last one is the target's last, whose output the head knows how to read; without them the
    first one is the target's first, which knows how to read the embedding.
    """
    rest = num_target_layers - num_shared_layers
    if not num_shared_layers:
        return tuple(index * rest // num_layers for index in range(num_layers))
    return tuple(num_shared_layers + (index + 1) * rest // num_layers - 1 for index in range(num_layers))


def student_config(target: PretrainedConfig, num_layers: int) -> LlamaConfig:
    """The target's config with fewer layers.

    Raises:
        LoadError: the target is no relative of Llama.
    """
    names = (
        *("vocab_size", "hidden_size", "num_attention_heads", "num_key_value_heads", "max_position_embeddings"),
        *("intermediate_size", "rms_norm_eps", "hidden_act", "rope_parameters"),
    )
    missing = [name for name in names if getattr(target, name, None) is None]
    if missing:
        raise LoadError(f"a {target.model_type} has no {missing[0]}: draft models are made for relatives of Llama")
    fields: dict[str, Any] = {name: getattr(target, name) for name in names}
    fields["head_dim"] = getattr(target, "head_dim", None) or target.hidden_size // target.num_attention_heads
    fields["attn_implementation"] = "sdpa"
    config = LlamaConfig(**fields, num_hidden_layers=num_layers, tie_word_embeddings=False)
    config.architectures = ["LlamaForCausalLM"]
    return config
