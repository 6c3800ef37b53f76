"""Who computed a prefix before: keys of a prompt's beginnings, and a bounded table from keys to replicas. Pure."""

from collections import OrderedDict
from collections.abc import Sequence

PREFIX_LENGTHS = (1024, 256, 64)
"""Beginnings of a prompt that are remembered, in tokens, longest first."""

MAX_ENTRIES = 16_384


def prefix_keys(token_ids: Sequence[int], salt: str = "") -> tuple[int, ...]:
    """Keys of a prompt's beginnings, longest first; good within this process.

    A prompt that is shorter than all `PREFIX_LENGTHS` has none: it costs little to compute again.

    Args:
        token_ids: the prompt.
        salt: namespace of the prefix cache; other namespaces have other keys.
    """
    num_tokens = len(token_ids)
    return tuple(hash((salt, tuple(token_ids[:size]))) for size in PREFIX_LENGTHS if size <= num_tokens)


class PrefixTable:
    """Remembers which replica computed a prefix last; the least recently used entries are dropped.

    Args:
        max_entries: most keys kept.
    """

    def __init__(self, max_entries: int = MAX_ENTRIES) -> None:
        self._max_entries = max_entries
        self._holders: OrderedDict[int, str] = OrderedDict()

    def __len__(self) -> int:
        return len(self._holders)

    def find(self, keys: Sequence[int]) -> str | None:
        """The replica that computed the longest of these beginnings; None for none.

        Args:
            keys: from `prefix_keys`.
        """
        for key in keys:
            holder = self._holders.get(key)
            if holder is not None:
                self._holders.move_to_end(key)
                return holder
        return None

    def put(self, keys: Sequence[int], replica_id: str) -> None:
        """A replica was given a prompt with these keys."""
        for key in keys:
            self._holders[key] = replica_id
            self._holders.move_to_end(key)
        while len(self._holders) > self._max_entries:
            self._holders.popitem(last=False)
