"""Shapes of language models, as far as their cost depends on them."""

from dataclasses import dataclass

from cluster.engine.known_shapes import known_shape
from cluster.engine.shapes import DTYPE_BYTES, GroupedAttention


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """A dense decoder.

    Attributes:
        name: how reports call it.
        num_parameters: embeddings and output head included.
        num_layers: each with two all-reduces under tensor parallelism.
        hidden_size: width of what is reduced.
        num_kv_heads: of the cache.
        head_dim: of each of them.
    """

    name: str
    num_parameters: float
    num_layers: int
    hidden_size: int
    num_kv_heads: int
    head_dim: int

    @property
    def flops_per_token(self) -> float:
        """A multiplication and an addition for each parameter; attention over the context is left out."""
        return 2.0 * self.num_parameters

    def weight_bytes(self, dtype: str) -> float:
        """All parameters."""
        return self.num_parameters * DTYPE_BYTES[dtype]

    def kv_bytes_per_token(self, dtype: str = "bf16") -> float:
        """Keys and values of all layers."""
        return 2.0 * self.num_layers * self.num_kv_heads * self.head_dim * DTYPE_BYTES[dtype]


def _known(name: str) -> ModelShape:
    """A dense model with grouped attention whose shape is built in."""
    shape = known_shape(name)
    assert isinstance(shape.attention, GroupedAttention) and shape.experts is None
    return ModelShape(
        name=name,
        num_parameters=shape.num_parameters,
        num_layers=shape.num_layers,
        hidden_size=shape.hidden,
        num_kv_heads=shape.attention.num_kv_heads,
        head_dim=shape.attention.head_dim,
    )


LLAMA_70B = _known("Llama-3.3-70B")
LLAMA_8B = _known("Llama-3.1-8B")
LLAMA_1B = _known("Llama-3.2-1B")
EAGLE_70B = ModelShape(
    # A decoder layer of the target's width that reads three fused features, and an output head over 32,000 tokens.
    name="EAGLE-3 head for Llama-3.3-70B",
    num_parameters=1.4e9,
    num_layers=1,
    hidden_size=8192,
    num_kv_heads=8,
    head_dim=128,
)

MODELS: dict[str, ModelShape] = {
    "llama-70b": LLAMA_70B,
    "llama-8b": LLAMA_8B,
    "llama-1b": LLAMA_1B,
    "eagle3-70b": EAGLE_70B,
}
"""By the name in scenario files."""
