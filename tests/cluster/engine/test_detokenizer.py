"""Incremental detokenisation against the tokenizer's own decoding of everything at once."""

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from cluster.engine.detokenizer import ByteLevelDetokenizer, WindowDetokenizer, build_detokenizer
from cluster.engine.model_loader import load_tokenizer
from cluster.engine.model_source import ModelSource
from tests.cluster.engine import toy_tokenizers

KINDS = [toy_tokenizers.byte_level, toy_tokenizers.nested_byte_level, toy_tokenizers.byte_fallback]
EMOJI = ["👩‍👩‍👧‍👦", "👍🏽", "🏳️‍🌈", "🇩🇪", "日本", "é", "\u0301", "\u200d", "𝔘", "the fox ", "\ufffd"]
Kind = Callable[[], PreTrainedTokenizerFast]

every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
texts = st.lists(st.one_of(st.sampled_from(EMOJI), st.text(max_size=4)), max_size=12).map("".join)
# Ids 0 and 1 are special, 330 is an added token; there are no ids above it.
token_ids = st.lists(st.one_of(st.sampled_from([0, 1, 330]), st.integers(0, 340)), max_size=40)


def deltas(tokenizer: PreTrainedTokenizerBase, ids: list[int], *, skip: bool = True) -> list[str]:
    detokenizer = build_detokenizer(tokenizer, skip_special_tokens=skip)
    return [*(detokenizer.append(token_id) for token_id in ids), detokenizer.flush()]


def decode(tokenizer: PreTrainedTokenizerBase, ids: list[int], *, skip: bool = True) -> str:
    return str(tokenizer.decode(ids, skip_special_tokens=skip, clean_up_tokenization_spaces=False))


def encode(tokenizer: PreTrainedTokenizerFast, text: str) -> list[int]:
    return list(tokenizer.encode(text, add_special_tokens=False))


@every_kind
@settings(max_examples=150, deadline=None, derandomize=True)
@given(ids=token_ids, skip=st.booleans())
def test_deltas_of_any_ids_join_to_the_full_decoding(kind: Kind, ids: list[int], skip: bool) -> None:
    tokenizer = kind()
    assert "".join(deltas(tokenizer, ids, skip=skip)) == decode(tokenizer, ids, skip=skip)


@every_kind
@settings(max_examples=150, deadline=None, derandomize=True)
@given(ids=st.lists(st.sampled_from(["f0", "9f", "91", "a9", "e2", "80", "8d", "ff", "61"]), max_size=40))
def test_deltas_of_broken_utf8_join_to_the_full_decoding(kind: Kind, ids: list[str]) -> None:
    tokenizer = kind()
    known = {byte: byte_token_id(tokenizer, int(byte, 16)) for byte in set(ids)}
    assert "".join(deltas(tokenizer, [known[byte] for byte in ids])) == decode(tokenizer, [known[b] for b in ids])


@every_kind
@settings(max_examples=150, deadline=None, derandomize=True)
@given(text=texts)
def test_deltas_of_valid_text_hold_no_replacement_character_and_join_to_it(kind: Kind, text: str) -> None:
    tokenizer = kind()
    ids = encode(tokenizer, text)
    parts = deltas(tokenizer, ids)
    assert "".join(parts) == decode(tokenizer, ids)
    assert "".join(parts).count("\ufffd") == text.count("\ufffd")


@settings(max_examples=100, deadline=None, derandomize=True)
@given(text=texts)
def test_a_byte_level_character_is_shown_with_its_last_byte(text: str) -> None:
    tokenizer = toy_tokenizers.byte_level()
    detokenizer = build_detokenizer(tokenizer, skip_special_tokens=True)
    ids = encode(tokenizer, text.replace("\ufffd", ""))
    shown = ""
    for count, token_id in enumerate(ids, start=1):
        shown += detokenizer.append(token_id)
        assert shown == decode(tokenizer, ids[:count]).rstrip("\ufffd")


@every_kind
def test_a_zwj_family_split_over_many_tokens_comes_out_whole(kind: Kind) -> None:
    # C10: the parts of a character lie in different tokens, wherever a block of accepted tokens ends.
    tokenizer = kind()
    text = "a 👩‍👩‍👧‍👦 b"
    ids = [byte_token_id(tokenizer, byte) for byte in text.encode()]
    parts = deltas(tokenizer, ids)
    assert "".join(parts) == text
    assert not any("\ufffd" in part for part in parts)


@every_kind
def test_an_incomplete_character_is_flushed_as_the_decoder_shows_it(kind: Kind) -> None:
    tokenizer = kind()
    ids = [*encode(tokenizer, "ab"), *(byte_token_id(tokenizer, byte) for byte in "👍".encode()[:3])]
    *parts, last = deltas(tokenizer, ids)
    assert "".join(parts) == "ab"
    assert last == decode(tokenizer, ids)[2:]
    assert set(last) == {"\ufffd"}


@every_kind
def test_a_skipped_special_token_does_not_swallow_the_space_behind_it(kind: Kind) -> None:
    tokenizer = kind()
    end = tokenizer.get_vocab()["<|im_end|>"]
    ids = [token_id for visible in encode(tokenizer, "ab the") for token_id in (visible, end, end)]
    assert "".join(deltas(tokenizer, ids)) == "ab the"


@every_kind
def test_special_tokens_are_shown_on_request(kind: Kind) -> None:
    tokenizer = kind()
    end = tokenizer.get_vocab()["<|im_end|>"]
    assert "".join(deltas(tokenizer, [end], skip=False)) == "<|im_end|>"
    assert "".join(deltas(tokenizer, [end], skip=True)) == ""


def test_an_added_token_that_is_not_special_is_always_shown() -> None:
    tokenizer = toy_tokenizers.byte_level()
    tool = tokenizer.get_vocab()["<tool 工具>"]
    assert "".join(deltas(tokenizer, [tool], skip=True)) == "<tool 工具>"


def test_a_token_without_text_is_no_context_for_the_space_behind_it() -> None:
    tokenizer = toy_tokenizers.byte_fallback()
    vocab = tokenizer.get_vocab()
    ids = [vocab["a"], vocab[""], vocab["▁the"]]
    assert "".join(deltas(tokenizer, ids)) == decode(tokenizer, ids) == "a the"


@every_kind
def test_ids_of_padded_embedding_rows_have_no_text(kind: Kind) -> None:
    tokenizer = kind()
    first, *rest = encode(tokenizer, "ab the")
    assert "".join(deltas(tokenizer, [first, 99_999, *rest])) == "ab the"


def test_byte_level_tokenizers_take_the_exact_path() -> None:
    exact = build_detokenizer(toy_tokenizers.byte_level(), skip_special_tokens=True)
    window = build_detokenizer(toy_tokenizers.byte_fallback(), skip_special_tokens=True)
    assert isinstance(exact, ByteLevelDetokenizer)
    assert isinstance(window, WindowDetokenizer)


def test_the_window_stays_short_on_an_endless_run_of_broken_bytes() -> None:
    tokenizer = toy_tokenizers.nested_byte_level()
    detokenizer = WindowDetokenizer(tokenizer, skip_special_tokens=True)
    ids = [byte_token_id(tokenizer, 0xE6)] * 300
    text = ""
    for token_id in ids:
        text += detokenizer.append(token_id)
        assert len(detokenizer._window) <= 17
    assert text + detokenizer.flush() == decode(tokenizer, ids)


def byte_token_id(tokenizer: PreTrainedTokenizerFast, byte: int) -> int:
    """The token of one byte, in either style of vocabulary."""
    vocab = tokenizer.get_vocab()
    if (token_id := vocab.get(f"<0x{byte:02X}>")) is not None:
        return int(token_id)
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [other for other in range(256) if other not in printable]
    return int(vocab[chr(byte) if byte in printable else chr(0x100 + others.index(byte))])


@pytest.mark.engine
def test_the_bundled_tokenizer_streams_every_text_exactly(bundled_source: ModelSource) -> None:
    tokenizer = load_tokenizer(bundled_source)
    assert isinstance(build_detokenizer(tokenizer, skip_special_tokens=True), ByteLevelDetokenizer)
    text = " ".join([*EMOJI, *toy_tokenizers.TEXTS])
    ids = list(tokenizer.encode(text, add_special_tokens=False))
    assert "".join(deltas(tokenizer, ids)) == text
    rng = random.Random(0)
    for skip in (True, False):
        ids = [rng.choice([rng.randrange(20), rng.randrange(49_152)]) for _ in range(3000)]
        assert "".join(deltas(tokenizer, ids, skip=skip)) == decode(tokenizer, ids, skip=skip)
