"""What heads take from their target: its final norm, its embedding and its output matrix, and CPU threads of their own.

Legend: H hidden size, V vocabulary.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PretrainedConfig, PreTrainedModel

from cluster.engine.cpu_share import share_of
from cluster.engine.drafters.head import HeadTarget
from cluster.errors import LoadError

EMBEDDING, OUTPUT = "model.embed_tokens.weight", "lm_head.weight"


def skeleton(config: PretrainedConfig, dtype: torch.dtype) -> PreTrainedModel:
    """A model of this configuration without weights, in evaluation mode: it takes no memory and no time."""
    with torch.device("meta"):
        model: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=dtype, trust_remote_code=False)
    model.eval()
    return model


def final_norm(target: HeadTarget) -> nn.Module:
    """The norm behind the target's last layer, in transformers' own class, with the target's weights.

    Raises:
        LoadError: the model calls it otherwise, or its weights are missing.
    """
    model = skeleton(target.config, target.dtype)
    norm = getattr(model.get_decoder(), "norm", None)
    if not isinstance(norm, nn.Module):
        raise LoadError(f"{type(model).__name__} has no final norm of the name `norm`: heads behind it cannot run")
    prefix = next(name for name, module in model.named_modules() if module is norm)
    fill(norm, {name: target.weight(f"{prefix}.{name}") for name in norm.state_dict()}, prefix)
    return nn.Module.to(norm, target.device)


def output_matrix(target: HeadTarget) -> Tensor:
    """The target's output matrix [V, H] in its dtype on its device; the embedding where the two are tied.

    Raises:
        LoadError: there is none.
    """
    name = EMBEDDING if target.config.tie_word_embeddings else OUTPUT
    return target.weight(name).to(target.device, target.dtype)


def fill(module: nn.Module, weights: dict[str, Tensor], where: str) -> None:
    """Give a module without weights its own; nothing is copied where the type fits.

    Args:
        module: mutated.
        weights: by the module's names, all of them.
        where: what the weights belong to, for errors.

    Raises:
        LoadError: one has another shape than the module's.
    """
    expected = module.state_dict()
    for name, tensor in weights.items():
        if tensor.shape != expected[name].shape:
            raise LoadError(
                f"{where}.{name} has shape {tuple(tensor.shape)}, the configuration implies "
                f"{tuple(expected[name].shape)}"
            )
    module.load_state_dict({name: weights[name].to(expected[name].dtype) for name in expected}, assign=True)


@contextmanager
def cpu_threads(num_threads: int) -> Iterator[None]:
    """Let torch use so many CPU threads inside; the target's runner sets its own number for the time outside."""
    num_threads, before = share_of(num_threads), torch.get_num_threads()
    if before == num_threads:
        yield
        return
    torch.set_num_threads(num_threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
