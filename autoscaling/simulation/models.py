"""Shapes of language models, as far as their cost depends on them."""

from dataclasses import dataclass


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


DTYPE_BYTES: dict[str, int] = {"bf16": 2, "fp8": 1}

LLAMA_70B = ModelShape(
    name="Llama-3.3-70B", num_parameters=70.55e9, num_layers=80, hidden_size=8192, num_kv_heads=8, head_dim=128
)
LLAMA_8B = ModelShape(
    name="Llama-3.1-8B", num_parameters=8.03e9, num_layers=32, hidden_size=4096, num_kv_heads=8, head_dim=128
)
LLAMA_1B = ModelShape(
    name="Llama-3.2-1B", num_parameters=1.24e9, num_layers=16, hidden_size=2048, num_kv_heads=8, head_dim=64
)
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
