"""Medusa heads in training (arXiv 2401.10774), under the names of the published checkpoints.

Each head is a residual block on the target's last hidden state in front of the target's own output matrix, as in the
second version of the published heads: they are small, and a draft needs no matrix but the target's.

Shapes: R rows, H hidden size, V vocabulary.
"""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn
from transformers import PretrainedConfig
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from cluster.errors import LoadError
from cluster.training.draft_net import DraftNet, HeadBatch
from cluster.training.student import HEAD, NORM


class MedusaNet(DraftNet):
    """Residual blocks are trained; norm and output matrix stay the target's.

    Args:
        config: of the target.
        weights: the target's, by checkpoint name.
        target_ids: tokens that are told apart in training, int64 [V].
        num_heads: each guesses one token further ahead.

    Raises:
        LoadError: the target is no relative of Llama.
    """

    def __init__(
        self, config: PretrainedConfig, *, weights: Mapping[str, Tensor], target_ids: Tensor, num_heads: int
    ) -> None:
        super().__init__()
        if missing := {NORM, HEAD} - weights.keys():
            raise LoadError(f"the target has no {min(missing)}: heads are trained for relatives of Llama")
        self.num_steps, self.feature_layers = num_heads, (config.num_hidden_layers,)
        for head in range(num_heads):
            self.add_module(str(head), nn.Sequential(ResidualBlock(config.hidden_size)))
        self.norm = LlamaRMSNorm(config.hidden_size, config.rms_norm_eps).requires_grad_(False)
        self.norm.load_state_dict({"weight": weights[NORM]})
        self.register_buffer("head_VH", weights[HEAD][target_ids].float(), persistent=False)

    def hidden_steps(self, batch: HeadBatch) -> Iterator[Tensor]:
        """See `DraftNet`; every head reads the same hidden state."""
        hidden_RH = self.norm(batch.features.flatten(0, 1)[batch.rows])
        for head in range(self.num_steps):
            yield self.get_submodule(str(head))(hidden_RH)

    def logits(self, hidden_RH: Tensor) -> Tensor:
        """Logits of the tokens that are told apart, f32 [R, V]."""
        return nn.functional.linear(hidden_RH, self.get_buffer("head_VH"))


class ResidualBlock(nn.Module):
    """x + silu(linear(x)); leaves x as it is before training.

    Args:
        hidden_size: of the target.
    """

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.linear = nn.Linear(hidden_size, hidden_size)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, hidden_RH: Tensor) -> Tensor:
        """Of the same shape."""
        return hidden_RH + nn.functional.silu(self.linear(hidden_RH))


def medusa_config(num_heads: int, hidden_size: int, vocab_size: int, target: str) -> dict[str, object]:
    """`config.json` of the heads."""
    return {
        "architectures": ["MedusaModel"],
        "model_type": "medusa",
        "medusa_num_heads": num_heads,
        "medusa_num_layers": 1,
        "base_model_name_or_path": target,
        "hidden_size": hidden_size,
        "vocab_size": vocab_size,
        "dtype": "bfloat16",
    }


def medusa_tensors(net: MedusaNet) -> dict[str, Tensor]:
    """The checkpoint's tensors: `{head}.0.linear.weight` and `.bias`, bfloat16."""
    return {name: weight.to(torch.bfloat16) for name, weight in net.trained().items()}
