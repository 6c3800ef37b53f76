import pytest

from cluster.errors import InvalidRequestError
from deployments.codec import LONG_TEXT_CHARS, TextCodec
from tests.deployments.fake_engine import EOS_ID, ByteTokenizer

pytestmark = pytest.mark.anyio


class ByteLevelTokenizer(ByteTokenizer):
    """GPT-2's alphabet: Ġ is a blank; id 0 is half of é."""

    pieces = ("Ã", "©", "Ġthe", "▁x", "<eos>")
    all_special_ids = (4,)

    def convert_ids_to_tokens(self, ids: int) -> str | None:
        return self.pieces[ids] if ids < len(self.pieces) else None

    def decode(self, token_ids: object, *, skip_special_tokens: bool) -> str:
        return "decoded"


def test_byte_level_pieces_show_their_bytes() -> None:
    codec = TextCodec(ByteLevelTokenizer(), 5)
    assert codec.token_text(2) == (" the", b" the")
    assert codec.token_text(0) == ("\ufffd", b"\xc3")
    assert codec.token_text(0)[1] + codec.token_text(1)[1] == "é".encode()


def test_other_pieces_and_special_tokens_go_through_the_tokenizer() -> None:
    codec = TextCodec(ByteLevelTokenizer(), 5)
    assert codec.token_text(3) == ("decoded", b"decoded")
    assert codec.token_text(4) == ("decoded", b"decoded")


def test_byte_fallback_pieces_and_ids_without_a_piece() -> None:
    codec = TextCodec(ByteTokenizer(), 300)
    assert codec.token_text(0x41) == ("A", b"A")
    assert codec.token_text(0xFF) == ("\ufffd", b"\xff")
    assert codec.token_text(EOS_ID) == ("", b"")
    assert TextCodec(ByteLevelTokenizer(), 3).token_text(99) == ("", b"")


async def test_long_texts_give_the_same_ids() -> None:
    codec = TextCodec(ByteTokenizer(), 257)
    text = "a" * (LONG_TEXT_CHARS + 1)
    assert await codec.encode(text) == list(text.encode())


def test_ids_at_the_vocabulary_size_are_refused() -> None:
    codec = TextCodec(ByteTokenizer(), 257)
    codec.check_ids([], "tokens")
    codec.check_ids([256], "tokens")
    with pytest.raises(InvalidRequestError):
        codec.check_ids([0, 257], "tokens")
