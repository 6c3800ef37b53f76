"""Hidden states between the layers of a model in transformers' own code, caught by hooks.

Shapes: T rows, H hidden size, F = layers asked for * H.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from cluster.engine.features import RoundFeatures
from cluster.errors import LoadError


class FeatureHooks:
    """Keeps the hidden states that enter or leave decoder layers.

    Args:
        model: in whose passes it looks.
        attention: the attention module of each decoder layer, in order.
    """

    def __init__(self, model: nn.Module, attention: Iterable[nn.Module]) -> None:
        self._model, self._attention = model, tuple(attention)
        self._layers: tuple[int, ...] = ()
        self._handles: list[RemovableHandle] = []
        self._caught: dict[int, torch.Tensor] = {}

    def capture(self, layers: tuple[int, ...]) -> None:
        """Keep what enters these layers from now on; their number stands for what leaves the last one.

        Raises:
            LoadError: the model has no list of decoder layers.
        """
        for handle in self._handles:
            handle.remove()
        self._layers, self._handles, self._caught = layers, [], {}
        if not layers:
            return
        blocks = self._blocks()
        assert all(0 <= layer <= len(blocks) for layer in layers), "there is no such layer"
        self._handles = [self._hook(blocks, layer) for layer in layers]

    @property
    def features(self) -> RoundFeatures:
        """What the last pass left."""
        if not self._caught:
            return RoundFeatures(self._layers, torch.zeros(0, 0))
        return RoundFeatures(self._layers, torch.cat([self._caught[layer] for layer in self._layers], dim=1))

    def _hook(self, blocks: nn.ModuleList, layer: int) -> RemovableHandle:
        def before(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            self._keep(layer, args[0] if args else kwargs["hidden_states"])

        def after(_: nn.Module, __: tuple[Any, ...], output: Any) -> None:
            self._keep(layer, output[0] if isinstance(output, tuple) else output)

        if layer == len(blocks):
            return blocks[-1].register_forward_hook(after)
        return blocks[layer].register_forward_pre_hook(before, with_kwargs=True)

    def _keep(self, layer: int, hidden_1TH: torch.Tensor) -> None:
        self._caught[layer] = hidden_1TH[0].float()

    def _blocks(self) -> nn.ModuleList:
        """The list whose entries hold the attention modules, one each."""
        for module in self._model.modules():
            if isinstance(module, nn.ModuleList) and len(module) == len(self._attention):
                pairs = zip(module, self._attention, strict=True)
                if all(attention in set(block.modules()) for block, attention in pairs):
                    return module
        raise LoadError(
            f"{type(self._model).__name__}: its decoder layers cannot be told apart, so no head can read them"
        )
