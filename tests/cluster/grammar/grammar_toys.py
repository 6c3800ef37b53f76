"""Compilers for small vocabularies, and texts drawn at random from what a matcher allows."""

import random
from functools import cache

import numpy as np

from cluster.engine.logits_processors import ids_of
from cluster.grammar.compiler import GrammarCompiler
from cluster.grammar.limits import GrammarLimits
from cluster.grammar.matcher import GrammarMatcher
from tests.cluster.engine.toy_tokenizers import pieces
from tests.tiny import EOS_TOKEN_ID, VOCAB_SIZE, build_tokenizer

LIMITS = GrammarLimits()
PIECES = [*"abcde,:", "ab", "bc", "abc", "cd", "a,b", "de", "eee"]
END_ID = len(PIECES) + 1
"""Of `toy_compiler`: the second of the two special tokens behind the pieces."""


@cache
def compiler() -> GrammarCompiler:
    """For the tiny model's tokenizer."""
    return GrammarCompiler(build_tokenizer(), VOCAB_SIZE, frozenset([EOS_TOKEN_ID]), LIMITS)


@cache
def toy_compiler() -> GrammarCompiler:
    """For a vocabulary of `PIECES`; its logits have more columns than there are tokens."""
    return GrammarCompiler(pieces(byte_strings=PIECES), len(PIECES) + 40, frozenset([END_ID]), LIMITS)


def allowed_ids(matcher: GrammarMatcher, drafts: tuple[int, ...] = (), *, vocab_size: int = VOCAB_SIZE) -> set[int]:
    return {int(token_id) for token_id in ids_of(matcher.allowed(drafts), vocab_size)}


def random_text(matcher: GrammarMatcher, seed: int, max_tokens: int) -> list[int]:
    """Tokens drawn evenly from what is allowed, and the end half of the times where it is."""
    generator, token_ids = random.Random(seed), list[int]()
    while len(token_ids) < max_tokens and not matcher.is_ended:
        ids = sorted(allowed_ids(matcher))
        can_end = EOS_TOKEN_ID in ids
        token_id = EOS_TOKEN_ID if can_end and generator.random() < 0.5 else generator.choice(ids)
        assert matcher.accept(token_id)
        token_ids.append(token_id)
    return token_ids


def is_same(mask_W: np.ndarray[tuple[int], np.dtype[np.uint32]], other_W: object) -> bool:
    return bool(np.array_equal(mask_W, other_W))  # type: ignore[arg-type]
