"""Token ids to text, one token at a time.

The text given out by `append` and `flush`, joined, equals `tokenizer.decode` of all ids at once
(`clean_up_tokenization_spaces=False`), for every sequence of ids, valid UTF-8 or not. A character is given out when its
last byte is there. Bytes that can no longer become a character come out as U+FFFD, as the tokenizer's own decoder shows
them.

`tokenizers.decoders.DecodeStream` is not used: it holds text back for as long as it ends in U+FFFD (for ever, at
growing cost, on a run of broken bytes), and what it holds cannot be flushed.
"""

import codecs
import json
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_REPLACEMENT = "\ufffd"
# An incomplete character has at most three bytes, and no decoder shows more than one U+FFFD for each.
_MAX_INCOMPLETE = 3
# Context kept inside a run of broken bytes: each token is at least a byte, so twice the longest character.
_BROKEN_CONTEXT = 8
_BYTE_TOKEN = re.compile(r"<0x[0-9A-Fa-f]{2}>")


class Detokenizer(Protocol):
    """Turns the tokens of one sequence into text."""

    def append(self, token_id: int) -> str:
        """Take the next token; return the text that is now final, maybe none."""
        ...

    def flush(self) -> str:
        """Return what is still held back, as the tokenizer's decoder shows it at the end of a text."""
        ...


def build_detokenizer(tokenizer: "PreTrainedTokenizerBase", *, skip_special_tokens: bool) -> Detokenizer:
    """The detokenizer that fits the tokenizer: exact bytes for byte-level BPE, a sliding window for all others."""
    if _vocabulary(tokenizer).is_byte_level:
        return ByteLevelDetokenizer(tokenizer, skip_special_tokens=skip_special_tokens)
    return WindowDetokenizer(tokenizer, skip_special_tokens=skip_special_tokens)


class ByteLevelDetokenizer:
    """Byte-level BPE (GPT-2, Llama 3, Qwen, SmolLM): every token is a fixed run of bytes, decoded incrementally.

    Constant cost for a token, whatever came before it. Python and the Rust decoder replace broken UTF-8 alike: one
    U+FFFD for each longest broken part.
    """

    def __init__(self, tokenizer: "PreTrainedTokenizerBase", *, skip_special_tokens: bool) -> None:
        vocabulary = _vocabulary(tokenizer)
        self._pieces = vocabulary.visible_pieces if skip_special_tokens else vocabulary.all_pieces
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def append(self, token_id: int) -> str:
        """Take the next token; return the characters that its bytes completed."""
        return self._decoder.decode(self._pieces[token_id])

    def flush(self) -> str:
        """Return U+FFFD if the bytes end inside a character."""
        return self._decoder.decode(b"", final=True)


class WindowDetokenizer:
    """Any tokenizer: decode a short window of tokens, and give out what it adds to the window's earlier text.

    The window starts with a token whose text was given out before, so that rules for the first token of a text (a
    leading space is dropped) do not act again. Skipped special tokens never enter the window: they would be no context.

    Byte-fallback tokens (`<0xE2>`) are held back until the run of them ends: the decoder shows a run as characters only
    if all of it is valid, so a later token can still change the earlier ones.
    """

    def __init__(self, tokenizer: "PreTrainedTokenizerBase", *, skip_special_tokens: bool) -> None:
        self._vocabulary = _vocabulary(tokenizer)
        self._hidden = self._vocabulary.special_ids if skip_special_tokens else frozenset()
        self._window: list[int] = []
        self._num_shown = 0  # characters of the window's text that were given out

    def append(self, token_id: int) -> str:
        """Take the next token; return the text that can no longer change."""
        vocabulary = self._vocabulary
        if token_id in self._hidden or vocabulary.is_unknown(token_id):
            return ""
        self._window.append(token_id)
        if vocabulary.is_byte_fallback(token_id):
            return ""
        text = vocabulary.decode(self._window)
        num_broken = len(text) - len(text.rstrip(_REPLACEMENT))
        num_held = min(num_broken, _MAX_INCOMPLETE)
        new = text[self._num_shown : len(text) - num_held]
        self._num_shown = max(self._num_shown, len(text) - num_held)
        if num_held == 0:
            self._shorten_window()
        elif len(self._window) > 2 * _BROKEN_CONTEXT:
            self._window = self._window[-_BROKEN_CONTEXT:]
            self._num_shown = len(vocabulary.decode(self._window)) - num_held
        return new

    def flush(self) -> str:
        """Return what is held back; broken characters as the tokenizer's decoder shows them."""
        text = self._vocabulary.decode(self._window)
        new = text[self._num_shown :]
        self._num_shown = len(text)
        return new

    def _shorten_window(self) -> None:
        """Keep the last token as context, or more while their text is empty (a dropped leading space)."""
        for start in range(len(self._window) - 1, -1, -1):
            context = self._window[start:]
            text = self._vocabulary.decode(context)
            if text:
                self._window, self._num_shown = context, len(text)
                return


class _Vocabulary:
    """What the detokenizers know about one tokenizer; shared by all of its sequences."""

    def __init__(self, tokenizer: "PreTrainedTokenizerBase") -> None:
        self._tokenizer = tokenizer
        backend = getattr(tokenizer, "backend_tokenizer", None)
        decoder = {} if backend is None or backend.decoder is None else json.loads(backend.decoder.__getstate__())
        self._backend = backend
        self._byte_fallback = backend is None or '"ByteFallback"' in json.dumps(decoder)
        self.is_byte_level = decoder.get("type") == "ByteLevel"
        # The Rust decoder goes by the flag of the added token, a Python tokenizer by its list of special ids.
        added = {token_id for token_id, token in tokenizer.added_tokens_decoder.items() if token.special}
        self.special_ids = frozenset(added if backend is not None else tokenizer.all_special_ids)
        self.all_pieces = _Pieces(tokenizer, hidden=frozenset())
        self.visible_pieces = _Pieces(tokenizer, hidden=self.special_ids)

    def is_unknown(self, token_id: int) -> bool:
        """True for ids without a token, such as padded rows of the embedding; decoders leave them out."""
        return _token(self._tokenizer, token_id) is None

    def is_byte_fallback(self, token_id: int) -> bool:
        """True if the token stands for one byte of a character that the vocabulary lacks."""
        return self._byte_fallback and _BYTE_TOKEN.fullmatch(_token(self._tokenizer, token_id) or "") is not None

    def decode(self, token_ids: list[int]) -> str:
        """The text of the ids taken alone; special tokens are shown."""
        if self._backend is not None:  # a third of the time of the wrapper's own method
            return str(self._backend.decode(token_ids, skip_special_tokens=False))
        return str(self._tokenizer.decode(token_ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))


class _Pieces(dict[int, bytes]):
    """Bytes by token id of a byte-level vocabulary, filled when first asked for."""

    def __init__(self, tokenizer: "PreTrainedTokenizerBase", *, hidden: frozenset[int]) -> None:
        super().__init__()
        self._tokenizer, self._hidden = tokenizer, hidden

    def __missing__(self, token_id: int) -> bytes:
        """Look the token up, and keep its bytes."""
        token = None if token_id in self._hidden else _token(self._tokenizer, token_id)
        piece = self[token_id] = b"" if token is None else _token_bytes(token)
        return piece


@lru_cache(maxsize=4)
def _vocabulary(tokenizer: "PreTrainedTokenizerBase") -> _Vocabulary:
    return _Vocabulary(tokenizer)


def _token(tokenizer: "PreTrainedTokenizerBase", token_id: int) -> str | None:
    try:
        token = tokenizer.convert_ids_to_tokens(token_id)
    except IndexError:  # sentencepiece, for padded rows of the embedding
        return None
    return token if isinstance(token, str) else None


def _token_bytes(token: str) -> bytes:
    """Bytes behind a token of a byte-level vocabulary; an added token with other characters stands for itself."""
    alphabet = _byte_alphabet()
    try:
        return bytes([alphabet[char] for char in token])
    except KeyError:
        return token.encode()


@lru_cache(maxsize=1)
def _byte_alphabet() -> dict[str, int]:
    """GPT-2's character for each byte: printable Latin-1 stands for itself, the rest follows from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + i): byte for i, byte in enumerate(others)}
