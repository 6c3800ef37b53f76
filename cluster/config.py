"""Settings of one engine. `EngineConfig` is what the user asks for; nothing is read from the environment here."""

from dataclasses import dataclass
from typing import Literal, get_args

from cluster.errors import ConfigError

Dtype = Literal["auto", "bfloat16", "float32"]
Numerics = Literal["auto", "invariant", "fast"]
DrafterName = Literal["ngram", "off"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """What one verifier's engine needs to start.

    Attributes:
        model: "bundled", a local folder, or a hub id.
        revision: commit of a hub id; required for hub ids.
        cache_dir: where converted weights are kept; None takes the user's cache folder.
        dtype: weights and activations; auto measures packed bf16 against f32 once.
        numerics: invariant gives a row the same bits whatever the batch; auto takes it where it is cheap.
        num_threads: CPU threads of the forward pass; 0 takes the cores this process may use.
        max_model_len: longest prompt plus output in tokens; 0 takes the model's own limit.
        block_size: tokens per KV block.
        kv_cache_tokens: KV capacity in tokens.
        max_num_seqs: most sequences in one round.
        max_num_batched_tokens: most rows in one round.
        prefill_chunk_tokens: most prompt tokens of one sequence in one round.
        enable_prefix_cache: reuse KV of equal prefixes.
        drafter: default source of drafts.
        num_speculative_tokens: upper limit K of drafts per sequence and round; 0 turns speculation off.
    """

    model: str = "bundled"
    revision: str | None = None
    cache_dir: str | None = None
    dtype: Dtype = "auto"
    numerics: Numerics = "auto"
    num_threads: int = 0
    max_model_len: int = 0
    block_size: int = 32
    kv_cache_tokens: int = 65_536
    max_num_seqs: int = 64
    max_num_batched_tokens: int = 1024
    prefill_chunk_tokens: int = 512
    enable_prefix_cache: bool = True
    drafter: DrafterName = "ngram"
    num_speculative_tokens: int = 7

    def __post_init__(self) -> None:
        """Refuse values out of range, naming field, value and range."""
        _check_choice("dtype", self.dtype, get_args(Dtype))
        _check_choice("numerics", self.numerics, get_args(Numerics))
        _check_choice("drafter", self.drafter, get_args(DrafterName))
        _check_range("num_threads", self.num_threads, 0, 1024)
        _check_range("max_model_len", self.max_model_len, 0, 1 << 24)
        _check_range("block_size", self.block_size, 32, 256)
        if self.block_size % 32:
            raise ConfigError(field="block_size", value=self.block_size, allowed="a multiple of 32")
        _check_range("max_num_seqs", self.max_num_seqs, 1, 4096)
        _check_range("max_num_batched_tokens", self.max_num_batched_tokens, 16, 1 << 20)
        _check_range("prefill_chunk_tokens", self.prefill_chunk_tokens, 16, 1 << 20)
        _check_range("num_speculative_tokens", self.num_speculative_tokens, 0, 64)
        _check_range("kv_cache_tokens", self.kv_cache_tokens, 2 * self.block_size, 1 << 32)
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ConfigError(
                field="max_num_batched_tokens",
                value=self.max_num_batched_tokens,
                allowed=f"at least max_num_seqs ({self.max_num_seqs})",
            )


def _check_range(field: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise ConfigError(field=field, value=value, allowed=f"an integer from {low} to {high}")


def _check_choice(field: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ConfigError(field=field, value=value, allowed=f"one of {', '.join(allowed)}")
