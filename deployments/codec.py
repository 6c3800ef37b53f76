"""The gateway's view of a tokenizer: text to ids, ids to text, and the text and bytes of single tokens."""

import asyncio
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Protocol, cast

from cluster.errors import InvalidRequestError

LONG_TEXT_CHARS = 16_384


class Tokenizer(Protocol):
    """The part of a transformers tokenizer that is used here."""

    @property
    def chat_template(self) -> object:
        """The model's chat template, if it has one."""
        ...

    def apply_chat_template(self, conversation: list[dict[str, Any]], **kwargs: Any) -> Any:
        """A conversation as text."""
        ...

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Text as ids."""
        ...

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        """Ids as text."""
        ...

    def convert_ids_to_tokens(self, ids: int) -> str | None:
        """The vocabulary's entry for an id."""
        ...

    @property
    def all_special_ids(self) -> Sequence[int]:
        """Ids of special tokens."""
        ...


class TextCodec:
    """Encodes and decodes with a model's tokenizer.

    Args:
        tokenizer: the model's.
        vocab_size: ids at or above it are refused.
    """

    def __init__(self, tokenizer: Tokenizer, vocab_size: int) -> None:
        self._tokenizer, self._vocab_size = tokenizer, vocab_size
        self._special_ids = frozenset(tokenizer.all_special_ids)
        self._special_pieces = frozenset(tokenizer.convert_ids_to_tokens(each) for each in self._special_ids)
        self.token_text = lru_cache(maxsize=65_536)(self._token_text)

    async def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Text as ids; long texts are encoded off the event loop."""
        if len(text) <= LONG_TEXT_CHARS:
            return self.encode_now(text, add_special_tokens=add_special_tokens)
        return await asyncio.to_thread(self.encode_now, text, add_special_tokens=add_special_tokens)

    def encode_now(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Text as ids, right here."""
        return self._tokenizer.encode(text, add_special_tokens=add_special_tokens)

    def decode(self, token_ids: Sequence[int]) -> str:
        """Ids as text, special tokens included."""
        return self._tokenizer.decode(token_ids, skip_special_tokens=False)

    def check_ids(self, token_ids: Sequence[int], param: str) -> None:
        """Refuse ids outside the vocabulary.

        Raises:
            InvalidRequestError: an id is too large.
        """
        if token_ids and max(token_ids) >= self._vocab_size:
            raise InvalidRequestError(
                f"{param} has token ids outside the vocabulary of {self._vocab_size}",
                param=param,
                code="invalid_token_id",
            )

    def is_special(self, piece: str) -> bool:
        """True for the name of a special token, which is left out of texts."""
        return piece in self._special_pieces

    def _token_text(self, token_id: int) -> tuple[str, bytes]:
        """How one token is shown: its text (with replacement characters for parts of one) and its bytes."""
        piece = self._tokenizer.convert_ids_to_tokens(token_id) if token_id < self._vocab_size else None
        if piece is None:
            return "", b""
        if token_id not in self._special_ids:
            raw = _piece_bytes(piece)
            if raw is not None:
                return raw.decode("utf-8", errors="replace"), raw
        text = self._tokenizer.decode([token_id], skip_special_tokens=False)
        return text, text.encode("utf-8", errors="replace")


def _piece_bytes(piece: str) -> bytes | None:
    """Bytes of a byte-level BPE piece or of a byte-fallback piece; None for other pieces."""
    if len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">"):
        return bytes([int(piece[3:5], 16)])
    table = _byte_level_table()
    if all(char in table for char in piece):
        return bytes(table[char] for char in piece)
    return None


@lru_cache(maxsize=1)
def _byte_level_table() -> dict[str, int]:
    """GPT-2's alphabet: printable bytes stand for themselves, the others are moved to 256 and above."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {chr(byte): byte for byte in printable}
    others = [byte for byte in range(256) if byte not in set(printable)]
    return table | {chr(256 + offset): byte for offset, byte in enumerate(others)}


def load_tokenizer(model: str, *, revision: str | None, cache_dir: str | None) -> tuple[Tokenizer, str]:
    """The tokenizer of a model, without its weights, and the model's fingerprint.

    Raises:
        LoadError: the model is refused.
    """
    from pathlib import Path

    from cluster.engine import model_loader

    source = model_loader.resolve_model(
        model, revision=revision, cache_dir=None if cache_dir is None else Path(cache_dir)
    )
    return cast(Tokenizer, model_loader.load_tokenizer(source)), source.fingerprint
