"""What an engine will hold in memory, worked out before anything is loaded. Pure; no torch."""

from dataclasses import dataclass

from cluster.errors import ConfigError

_MIB = 1 << 20
_LEAST_BLOCKS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """Memory of one engine in bytes. None of it grows with uptime.

    Attributes:
        weights_bytes: the target's weights as they are kept.
        kv_token_bytes: KV of one token over all layers.
        kv_cache_tokens: capacity of the KV cache.
        lookahead_tokens: slots that drafts take at worst, out of the KV cache.
        workspace_bytes: activations of the largest round, and its logits.
        available_bytes: what the machine has left; None when unknown.
        draft: the draft model in the same process; None when there is none.
        heads_bytes: draft heads in the same process: weights, the embeddings that they keep, and KV.
        reserve_bytes: assumed for what no tensor of ours holds, such as the context of a GPU.
    """

    weights_bytes: int
    kv_token_bytes: int
    kv_cache_tokens: int
    lookahead_tokens: int
    workspace_bytes: int
    available_bytes: int | None
    draft: "DraftMemory | None" = None
    heads_bytes: int = 0
    reserve_bytes: int = 0

    @property
    def kv_bytes(self) -> int:
        """The whole KV cache."""
        return self.kv_token_bytes * self.kv_cache_tokens

    @property
    def total_bytes(self) -> int:
        """Everything together; lookahead slots are part of the KV cache."""
        draft_bytes = self.heads_bytes + (self.draft.total_bytes if self.draft else 0)
        return self.weights_bytes + self.kv_bytes + self.workspace_bytes + draft_bytes + self.reserve_bytes

    def table(self) -> str:
        """The plan as lines of text, in MiB."""
        lookahead_bytes = min(self.lookahead_tokens, self.kv_cache_tokens) * self.kv_token_bytes
        rows = [
            ("weights", self.weights_bytes),
            (f"KV cache, {self.kv_cache_tokens} tokens", self.kv_bytes),
            ("  of it for drafts at worst", lookahead_bytes),
            ("workspace", self.workspace_bytes),
            *(self.draft.rows() if self.draft else ()),
            *([("draft heads", self.heads_bytes)] if self.heads_bytes else ()),
            *([("context and graphs, assumed", self.reserve_bytes)] if self.reserve_bytes else ()),
            ("total", self.total_bytes),
        ]
        return _table(rows, self.available_bytes)

    def check(self) -> None:
        """Refuse a plan that does not fit, before it fails under load.

        Raises:
            ConfigError: with the table, and the one setting to change.
        """
        if self.available_bytes is None or self.total_bytes <= self.available_bytes:
            return
        left_bytes = self.available_bytes - (self.total_bytes - self.kv_bytes)
        fitting = max(0, left_bytes // self.kv_token_bytes)
        raise ConfigError(
            field="kv_cache_tokens", value=self.kv_cache_tokens, allowed=f"at most {fitting} here\n{self.table()}"
        )


def most_lookahead_tokens(num_seqs: int, longest: int, num_rows: int) -> int:
    """Slots that drafts take at worst in a round.

    Args:
        num_seqs: most sequences that draft.
        longest: most tokens of a draft, all nodes of a tree.
        num_rows: of the largest round.
    """
    return min(num_seqs * longest, num_rows)


def kv_tax_tokens(*, lookahead_tokens: int, draft_kv_bytes: int, kv_token_bytes: int) -> int:
    """The KV tax: what speculation takes from the target, in tokens of its KV cache.

    A replica that speculates keeps that much from new sequences, and gives it back when it stops. Of it, the lookahead
    slots are a reserve rather than a need: drafts take only what is spare, so without the reserve a full cache would
    leave them no room; and where it runs out, sequences that run already use it before one is preempted.

    Args:
        lookahead_tokens: slots that drafts take at worst.
        draft_kv_bytes: KV cache of a draft model in the same process; 0 without one.
        kv_token_bytes: KV of one token of the target over all layers, at least 1.
    """
    return lookahead_tokens + -(-draft_kv_bytes // kv_token_bytes)


def num_reserve_blocks(kv_tax_tokens: int, num_blocks: int, block_size: int) -> int:
    """Blocks that the KV tax takes out of a pool.

    Raises:
        ConfigError: too little is left.
    """
    num_reserve = -(-kv_tax_tokens // block_size)
    if num_reserve > num_blocks - _LEAST_BLOCKS:
        raise ConfigError(
            field="kv_cache_tokens",
            value=num_blocks * block_size,
            allowed=f"at least {(num_reserve + _LEAST_BLOCKS) * block_size}, as drafts take {kv_tax_tokens} at worst",
        )
    return num_reserve


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftMemory:
    """Memory of a draft model in bytes.

    Attributes:
        weights_bytes: its weights as they are kept, what it shares with the target included.
        kv_token_bytes: KV of one token over all layers.
        kv_cache_tokens: capacity of its KV cache, branches included.
        workspace_bytes: activations of its largest pass, and its logits.
    """

    weights_bytes: int
    kv_token_bytes: int
    kv_cache_tokens: int
    workspace_bytes: int

    @property
    def total_bytes(self) -> int:
        """Everything together."""
        return self.weights_bytes + self.kv_token_bytes * self.kv_cache_tokens + self.workspace_bytes

    def rows(self) -> list[tuple[str, int]]:
        """Its part of a table."""
        return [
            ("draft model, weights", self.weights_bytes),
            (f"draft KV cache, {self.kv_cache_tokens} tokens", self.kv_token_bytes * self.kv_cache_tokens),
            ("draft workspace", self.workspace_bytes),
        ]

    def table(self, available_bytes: int | None) -> str:
        """The plan of a process of its own as lines of text, in MiB."""
        return _table([*self.rows(), ("total", self.total_bytes)], available_bytes)

    def check(self, available_bytes: int | None) -> None:
        """Refuse a draft model that does not fit into a process of its own.

        Raises:
            ConfigError: with the table, and the one setting to change.
        """
        if available_bytes is None or self.total_bytes <= available_bytes:
            return
        left_bytes = available_bytes - self.weights_bytes - self.workspace_bytes
        fitting = max(0, left_bytes // self.kv_token_bytes)
        raise ConfigError(
            field="draft.kv_cache_tokens",
            value=self.kv_cache_tokens,
            allowed=f"at most {fitting} here\n{self.table(available_bytes)}",
        )


def _table(rows: list[tuple[str, int]], available_bytes: int | None) -> str:
    if available_bytes is not None:
        rows = [*rows, ("available", available_bytes)]
    return "\n".join(f"{name:<36}{size / _MIB:>10.0f} MiB" for name, size in rows)
