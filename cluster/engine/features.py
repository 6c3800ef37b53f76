"""Hidden states that a target's forward pass leaves behind for drafters."""

from torch import Tensor


class RoundFeatures:
    """Hidden states of a round's rows, valid until the next pass.

    Legend: T rows, L layers, H hidden size, F = L * H.

    Args:
        layers: which hidden states were kept: i is what entered layer i, and the number of layers what left the last
            one, before the final norm.
        values_TF: float32 [T, F], side by side in the order of `layers`.
    """

    def __init__(self, layers: tuple[int, ...], values_TF: Tensor) -> None:
        self._layers, self._values_TF = layers, values_TF

    def of(self, layers: tuple[int, ...]) -> Tensor:
        """The hidden states of these layers, float32 [T, len(layers) * H]; all of them were kept."""
        if layers == self._layers:
            return self._values_TF
        places = [self._layers.index(layer) for layer in layers]
        values_TLH: Tensor = self._values_TF.unflatten(1, (len(self._layers), -1))
        return values_TLH[:, places].flatten(1)
