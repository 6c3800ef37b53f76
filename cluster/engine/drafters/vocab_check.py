"""Whether a draft model speaks the target's language: the same text behind every token id. Pure; no torch."""

import hashlib
from typing import Protocol

from cluster.errors import LoadError


class Vocabulary(Protocol):
    """What is needed of a tokenizer."""

    def get_vocab(self) -> dict[str, int]:
        """Token ids by text, added tokens included."""
        ...


def vocabulary_hash(tokenizer: Vocabulary) -> str:
    """SHA-256 over ids and texts of all tokens, in hex: equal for tokenizers whose ids mean the same.

    How text is split into tokens does not matter: drafters see ids only.
    """
    digest = hashlib.sha256()
    for token_id, text in _texts(tokenizer).items():
        digest.update(f"{token_id}\t{text}\n".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def check_vocabulary(
    target_tokenizer: Vocabulary, draft_tokenizer: Vocabulary, target_vocab_size: int, draft_vocab_size: int
) -> int:
    """Compare two vocabularies id by id.

    Models pad their embeddings to different sizes: ids that neither tokenizer knows may be missing in one of them.

    Args:
        target_tokenizer: of the target.
        draft_tokenizer: of the draft model.
        target_vocab_size: ids that the target has a row for.
        draft_vocab_size: ids that the draft model has a row for.

    Returns:
        Number of leading ids that both models know; the draft model's further columns must be masked.

    Raises:
        LoadError: an id has two meanings, or only one of the two knows it; names the lowest one and both texts.
    """
    target, draft = _texts(target_tokenizer), _texts(draft_tokenizer)
    for token_id in sorted(target.keys() | draft.keys()):
        if target.get(token_id) != draft.get(token_id):
            raise LoadError(
                f"the draft model has another vocabulary: token {token_id} is {_name(target, token_id)} in the target "
                f"and {_name(draft, token_id)} in the draft model"
            )
        if draft_vocab_size <= token_id < target_vocab_size:
            raise LoadError(
                f"the draft model has no row for token {token_id} ({target[token_id]!r}): its embedding has "
                f"{draft_vocab_size} rows, the target's {target_vocab_size}"
            )
    return min(target_vocab_size, draft_vocab_size)


def _texts(tokenizer: Vocabulary) -> dict[int, str]:
    """Texts by id, ids rising. Of several texts of one id the last one counts, in order of text."""
    return {token_id: text for text, token_id in sorted(tokenizer.get_vocab().items(), key=lambda item: item[::-1])}


def _name(texts: dict[int, str], token_id: int) -> str:
    return repr(texts[token_id]) if token_id in texts else "unknown"
