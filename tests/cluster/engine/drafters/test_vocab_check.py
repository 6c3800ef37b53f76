"""Which draft models speak the target's language."""

import pytest

from cluster.engine.drafters.vocab_check import Vocabulary, check_vocabulary, vocabulary_hash
from cluster.errors import LoadError
from tests.cluster.engine.toy_tokenizers import byte_fallback, byte_level, nested_byte_level


class Texts:
    """A vocabulary of these texts, by index; None leaves an id out."""

    def __init__(self, *texts: str | None) -> None:
        self._texts = texts

    def get_vocab(self) -> dict[str, int]:
        return {text: token_id for token_id, text in enumerate(self._texts) if text is not None}


def test_the_hash_sees_ids_and_texts_and_nothing_else() -> None:
    assert vocabulary_hash(byte_level()) == vocabulary_hash(nested_byte_level())
    different: list[Vocabulary] = [
        byte_level(),
        byte_fallback(),
        Texts("a", "b"),
        Texts("b", "a"),
        Texts("a", None, "b"),
        Texts("a"),
    ]
    assert len({vocabulary_hash(vocabulary) for vocabulary in different}) == len(different)


def test_the_hash_is_the_same_for_ever() -> None:
    """It stands in draft model folders that were written by earlier versions."""
    assert vocabulary_hash(Texts("a", "Ġb", None, "\ud800"))[:16] == "cbf1c12f5c9c8a4a"


def test_equal_vocabularies_pass() -> None:
    size = len(byte_level())
    assert check_vocabulary(byte_level(), nested_byte_level(), size, size) == size


@pytest.mark.parametrize(("target_size", "draft_size"), [(128, 160), (160, 128), (2, 128)])
def test_padded_tails_may_differ_and_only_common_ids_are_drafted(target_size: int, draft_size: int) -> None:
    assert check_vocabulary(Texts("a", "b"), Texts("a", "b"), target_size, draft_size) == min(target_size, draft_size)


@pytest.mark.parametrize(
    ("target", "draft", "message"),
    [
        (Texts("a", "b", "c"), Texts("a", "x", "y"), "token 1 is 'b' in the target and 'x' in the draft model"),
        (Texts("a", "b"), Texts("a", "b", "c"), "token 2 is unknown in the target and 'c' in the draft model"),
        (Texts("a", "b", "c"), Texts("a", None, "c"), "token 1 is 'b' in the target and unknown in the draft model"),
    ],
)
def test_the_lowest_differing_token_is_named_with_both_texts(target: Texts, draft: Texts, message: str) -> None:
    with pytest.raises(LoadError, match=message):
        check_vocabulary(target, draft, 8, 8)


def test_a_real_token_without_a_row_in_the_draft_model_is_named() -> None:
    with pytest.raises(LoadError, match=r"no row for token 2 \('c'\): its embedding has 2 rows, the target's 3"):
        check_vocabulary(Texts("a", "b", "c"), Texts("a", "b", "c"), 3, 2)
