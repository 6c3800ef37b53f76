"""What an engine will hold in memory, worked out before anything is loaded. Pure; no torch."""

from dataclasses import dataclass

from cluster.errors import ConfigError

_MIB = 1 << 20


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
    """

    weights_bytes: int
    kv_token_bytes: int
    kv_cache_tokens: int
    lookahead_tokens: int
    workspace_bytes: int
    available_bytes: int | None
    draft: "DraftMemory | None" = None

    @property
    def kv_bytes(self) -> int:
        """The whole KV cache."""
        return self.kv_token_bytes * self.kv_cache_tokens

    @property
    def total_bytes(self) -> int:
        """Everything together; lookahead slots are part of the KV cache."""
        return self.weights_bytes + self.kv_bytes + self.workspace_bytes + (self.draft.total_bytes if self.draft else 0)

    def table(self) -> str:
        """The plan as lines of text, in MiB."""
        lookahead_bytes = min(self.lookahead_tokens, self.kv_cache_tokens) * self.kv_token_bytes
        rows = [
            ("weights", self.weights_bytes),
            (f"KV cache, {self.kv_cache_tokens} tokens", self.kv_bytes),
            ("  of it for drafts at worst", lookahead_bytes),
            ("workspace", self.workspace_bytes),
            *(self.draft.rows() if self.draft else ()),
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
