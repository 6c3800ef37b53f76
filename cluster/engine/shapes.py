"""Shapes of decoders: how many elements their parts have, and how tensor parallelism divides them. Pure; no torch.

What is divided and what is not follows Megatron-LM (arXiv 1909.08053), with the embedding and the output head divided
by vocabulary. Attention is divided by heads; where there are more ranks than key/value heads, each of these lies on
several ranks. Norms, biases and routers, which are small, count whole on every rank.
"""

from dataclasses import dataclass, replace
from typing import Protocol

DTYPE_BYTES: dict[str, int] = {"bf16": 2, "fp8": 1}
"""Bytes of an element of a decoder's matrices."""

BF16_BYTES = 2
"""Of everything else: embeddings, output head, norms, biases, routers, and KV."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Tensors that are divided in the same way.

    Attributes:
        num_elements: of all of them.
        most_shares: among how many ranks they can be divided; 1 leaves them whole on every rank.
        is_matrix: a linear layer inside the decoder, which fp8 checkpoints quantise.
    """

    num_elements: int
    most_shares: int = 1
    is_matrix: bool = False

    def share(self, num_ranks: int) -> int:
        """Elements on one rank."""
        return -(-self.num_elements // min(num_ranks, self.most_shares))

    def num_bytes(self, num_ranks: int, dtype: str) -> int:
        """Bytes on one rank."""
        return self.share(num_ranks) * (DTYPE_BYTES[dtype] if self.is_matrix else BF16_BYTES)


class Attention(Protocol):
    """The attention of one layer.

    Attributes:
        num_heads: of queries.
    """

    @property
    def num_heads(self) -> int:
        """Of queries."""
        ...

    def weights(self, hidden: int) -> tuple[Weights, ...]:
        """Its tensors in a model of this width."""
        ...

    def can_divide(self, num_ranks: int) -> bool:
        """Whether so many ranks can share it."""
        ...

    def kv_elements(self, num_ranks: int) -> int:
        """Cache entries of one token on one rank."""
        ...

    def row_elements(self, num_ranks: int) -> int:
        """Activations of one row on one rank: queries, keys, values, and what comes out."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedAttention:
    """Grouped-query attention, with as many groups as key/value heads.

    Attributes:
        num_heads: of queries.
        num_kv_heads: of keys, and of values.
        head_dim: of each of them.
        has_input_bias: at queries, keys and values.
        has_output_bias: at the output.
        has_head_norm: norms of queries and keys, one weight for each element of a head.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    has_input_bias: bool = False
    has_output_bias: bool = False
    has_head_norm: bool = False

    def weights(self, hidden: int) -> tuple[Weights, ...]:
        """Queries and output, keys and values, and the small ones."""
        query, key_value = self.num_heads * self.head_dim, 2 * self.num_kv_heads * self.head_dim
        small = self.has_input_bias * (query + key_value) + self.has_output_bias * hidden
        small += 2 * self.head_dim * self.has_head_norm
        return (
            Weights(num_elements=2 * hidden * query, most_shares=self.num_heads, is_matrix=True),
            Weights(num_elements=hidden * key_value, most_shares=self.num_kv_heads, is_matrix=True),
            Weights(num_elements=small),
        )

    def can_divide(self, num_ranks: int) -> bool:
        """Whole heads everywhere; key/value heads are divided, or each is repeated equally often."""
        is_even = self.num_kv_heads % num_ranks == 0 or num_ranks % self.num_kv_heads == 0
        return self.num_heads % num_ranks == 0 and is_even

    def kv_elements(self, num_ranks: int) -> int:
        """A key and a value for each head of the rank, of which it has one at least."""
        return 2 * self.head_dim * max(1, self.num_kv_heads // num_ranks)

    def row_elements(self, num_ranks: int) -> int:
        """Queries and output, keys and values."""
        return 2 * self.num_heads * self.head_dim // num_ranks + self.kv_elements(num_ranks)


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """Multi-head latent attention of DeepSeek-V2 and V3 (arXiv 2405.04434, section 2.1).

    Attributes:
        num_heads: of queries, keys and values.
        query_rank: width of the compressed query; 0 where queries are not compressed.
        kv_rank: width of the compressed key and value.
        nope_dim: of a head of queries and keys, without the rotary part.
        rope_dim: rotary part of a query; the key's is shared by all heads.
        value_dim: of a head of values.
        keeps_latent: the cache holds the compressed form, whole on every rank, instead of keys and values by head.
    """

    num_heads: int
    query_rank: int
    kv_rank: int
    nope_dim: int
    rope_dim: int
    value_dim: int
    keeps_latent: bool = False

    def weights(self, hidden: int) -> tuple[Weights, ...]:
        """What works on single heads is divided; what compresses is whole, as its result is normed whole."""
        query_columns = self.num_heads * (self.nope_dim + self.rope_dim)
        by_head = (self.query_rank or hidden) * query_columns + hidden * self.num_heads * self.value_dim
        by_head += self.kv_rank * self.num_heads * (self.nope_dim + self.value_dim)
        return (
            Weights(num_elements=by_head, most_shares=self.num_heads, is_matrix=True),
            Weights(num_elements=hidden * (self.query_rank + self.kv_rank + self.rope_dim), is_matrix=True),
            Weights(num_elements=self.query_rank + self.kv_rank),
        )

    def can_divide(self, num_ranks: int) -> bool:
        """Whole heads everywhere."""
        return self.num_heads % num_ranks == 0

    def kv_elements(self, num_ranks: int) -> int:
        """The compressed form, or full keys and values of the rank's heads."""
        if self.keeps_latent:
            return self.kv_rank + self.rope_dim
        return self.num_heads // num_ranks * (self.nope_dim + self.rope_dim + self.value_dim)

    def row_elements(self, num_ranks: int) -> int:
        """Queries, full keys and values, output, and the compressed forms."""
        of_head = 2 * (self.nope_dim + self.rope_dim) + 2 * self.value_dim
        return self.num_heads // num_ranks * of_head + self.query_rank + self.kv_rank + self.rope_dim


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """The mixture of experts of a model's sparse layers.

    Attributes:
        num_experts: to choose from.
        num_active: chosen for a token.
        intermediate: width of each.
        shared_intermediate: width of the experts together that every token uses.
        num_dense_layers: layers with one plain MLP instead.
        has_router_bias: the router has a bias for each expert.
    """

    num_experts: int
    num_active: int
    intermediate: int
    shared_intermediate: int = 0
    num_dense_layers: int = 0
    has_router_bias: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """A decoder, as far as its memory depends on it.

    Attributes:
        name: how reports call it.
        hidden: width of the residual stream.
        num_layers: decoder layers, without next-n modules.
        intermediate: width of a plain MLP.
        vocab: rows of the embedding.
        max_model_len: longest sequence in tokens.
        attention: of each layer.
        experts: None for a dense model.
        is_tied: embedding and output head are one matrix.
        has_mlp_bias: biases in plain MLPs.
        num_mtp_layers: next-n modules in the checkpoint.
    """

    name: str
    hidden: int
    num_layers: int
    intermediate: int
    vocab: int
    max_model_len: int
    attention: Attention
    experts: Experts | None = None
    is_tied: bool = False
    has_mlp_bias: bool = False
    num_mtp_layers: int = 0

    @property
    def num_parameters(self) -> int:
        """Of the target itself, next-n modules left out."""
        return sum(each.num_elements for each in self._weights())

    @property
    def num_mtp_parameters(self) -> int:
        """Of the first next-n module, with an embedding and an output head of its own, as it is loaded."""
        return sum(each.num_elements for each in self._mtp_weights()) if self.num_mtp_layers else 0

    def weight_bytes(self, num_ranks: int = 1, dtype: str = "bf16") -> int:
        """On one rank."""
        return sum(each.num_bytes(num_ranks, dtype) for each in self._weights())

    def mtp_bytes(self, num_ranks: int = 1, dtype: str = "bf16") -> int:
        """Of the first next-n module on one rank, divided like the target; 0 without one."""
        return sum(each.num_bytes(num_ranks, dtype) for each in self._mtp_weights()) if self.num_mtp_layers else 0

    def kv_layer_bytes(self, num_ranks: int = 1) -> int:
        """KV of one token in one layer on one rank."""
        return BF16_BYTES * self.attention.kv_elements(num_ranks)

    def kv_token_bytes(self, num_ranks: int = 1) -> int:
        """KV of one token over all layers on one rank."""
        return self.num_layers * self.kv_layer_bytes(num_ranks)

    def row_elements(self, num_ranks: int = 1) -> int:
        """Activations of one row of a pass that live at once: two residuals, two normed, attention, and an MLP."""
        experts = self.experts
        sparse = 0 if experts is None else experts.num_active * experts.intermediate + experts.shared_intermediate
        mlp = 3 * max(self.intermediate, sparse) // num_ranks
        return 4 * self.hidden + self.attention.row_elements(num_ranks) + mlp

    def can_divide(self, num_ranks: int) -> bool:
        """Whether so many ranks can share the model evenly."""
        widths = [self.intermediate]
        if self.experts is not None:
            widths += [self.experts.intermediate, self.experts.shared_intermediate]
        return self.attention.can_divide(num_ranks) and all(width % num_ranks == 0 for width in widths)

    def degrees(self, most: int) -> tuple[int, ...]:
        """Numbers of ranks up to `most` that can share the model, rising; 1 is always among them."""
        return tuple(count for count in range(1, most + 1) if self.can_divide(count))

    def _weights(self) -> tuple[Weights, ...]:
        num_dense = self.num_layers if self.experts is None else self.experts.num_dense_layers
        dense = (*self._block(), *self._dense_mlp())
        sparse = (*self._block(), *self._sparse_mlp())
        layers = [_times(num_dense, each) for each in dense]
        layers += [_times(self.num_layers - num_dense, each) for each in sparse]
        return (*self._vocabulary(1 if self.is_tied else 2), *layers, Weights(num_elements=self.hidden))

    def _mtp_weights(self) -> tuple[Weights, ...]:
        """A layer, its norms (embedding, hidden state, output), and the matrix from two states to one."""
        joint = Weights(num_elements=2 * self.hidden * self.hidden)
        mlp = self._dense_mlp() if self.experts is None else self._sparse_mlp()
        return (*self._vocabulary(2), *self._block(), *mlp, joint, Weights(num_elements=3 * self.hidden))

    def _vocabulary(self, count: int) -> tuple[Weights, ...]:
        return (Weights(num_elements=count * self.vocab * self.hidden, most_shares=self.vocab),)

    def _block(self) -> tuple[Weights, ...]:
        """A layer without its MLP."""
        return (*self.attention.weights(self.hidden), Weights(num_elements=2 * self.hidden))

    def _dense_mlp(self) -> tuple[Weights, ...]:
        matrices = Weights(
            num_elements=3 * self.hidden * self.intermediate, most_shares=self.intermediate, is_matrix=True
        )
        return matrices, Weights(num_elements=self.has_mlp_bias * (2 * self.intermediate + self.hidden))

    def _sparse_mlp(self) -> tuple[Weights, ...]:
        if self.experts is None:
            return ()
        experts = self.experts
        width = experts.num_experts * experts.intermediate + experts.shared_intermediate
        router = experts.num_experts * (self.hidden + experts.has_router_bias)
        return (
            Weights(num_elements=3 * self.hidden * width, most_shares=experts.intermediate, is_matrix=True),
            Weights(num_elements=router),
        )


def _times(count: int, weights: Weights) -> Weights:
    return replace(weights, num_elements=count * weights.num_elements)
