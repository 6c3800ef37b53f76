"""Where one choice stands in its grammar, and what may come next.

What may come next is a function of the committed tokens, the draft tokens assumed behind them, and the grammar: nothing
that was asked in between changes it. The parser underneath is moved ahead over drafts and back again as questions come,
so that those of one round, asked in order, cost one step each.

Legend: W words of 32 tokens.
"""

from collections.abc import Callable
from collections.abc import Sequence as Seq
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from llguidance import LLMatcher

from cluster.errors import OutriderError

Mask: TypeAlias = npt.NDArray[np.uint32]
"""Bit v % 32 of word v // 32 says whether token v may come next, uint32 [W]."""


class GrammarStateError(OutriderError):
    """A choice cannot follow its grammar any further: it took more work than allowed, or nothing may come next."""


class GrammarMatcher:
    """Follows one choice. Not thread safe.

    Args:
        prototype: a parser at the beginning; it is copied, but for its lexer, whose states all copies share and add to.
        vocab_size: ids are below this.
        eos_token_ids: ids that end a text.
        on_failure: told when the parser fails: where its lexer has too many states, that of all copies has.

    Attributes:
        error: why the grammar cannot be followed any further; empty while it can.
        is_ended: the committed tokens end with an id that ends a text.
    """

    def __init__(
        self,
        prototype: LLMatcher,
        vocab_size: int,
        eos_token_ids: frozenset[int],
        on_failure: Callable[[], None] = lambda: None,
    ) -> None:
        self.error, self.is_ended = "", False
        self._prototype, self._on_failure = prototype, on_failure
        self._parser, self._committed = prototype.deep_copy(), list[int]()
        self._vocab_size, self._eos_token_ids = vocab_size, eos_token_ids
        # Tokens behind the committed ones that the parser has taken as well. Those that end a text never reach it.
        self._ahead: list[int] = []
        # Drafts behind which the parser failed, and how: the choice's own error once they all are committed.
        self._failed: tuple[list[int], str] = [], ""

    @property
    def is_finished(self) -> bool:
        """True when nothing may follow the committed tokens but the end."""
        return self.is_ended or (not self.error and self._seek(()) == 0 and self._parser.is_stopped())

    @property
    def is_complete(self) -> bool:
        """True when nothing may follow at all, since the model knows no token that ends a text."""
        return not self._eos_token_ids and self.is_finished

    def accept(self, token_id: int) -> bool:
        """Take in a committed token; False when the grammar refuses it, and then nothing may follow any more."""
        try:
            follows = self._accept(token_id)
        except GrammarStateError as error:
            follows, self.error = False, str(error)
        if not follows:
            self.error = self.error or f"token {token_id} does not follow the grammar"
        return follows

    def allowed(self, drafts: Seq[int] = ()) -> Mask:
        """The tokens that may stand behind the committed ones and `drafts`; not to be written to.

        Args:
            drafts: may stand there themselves, as `valid_prefix` has found. Behind one that ends the text, only such
                tokens may follow.

        Raises:
            GrammarStateError: the grammar cannot be followed to there. Behind drafts that says nothing of the choice:
                they may be refused yet.
        """
        if self.error:
            raise GrammarStateError(self.error)
        if self.is_ended or (drafts and drafts[-1] in self._eos_token_ids):
            mask_W = self._nothing()
            self._set_ends(mask_W, can_end=True)
            return mask_W
        try:
            if self._seek(drafts) < len(drafts):
                raise GrammarStateError("the drafts do not follow the grammar")
            if self._eos_token_ids or not self._parser.is_stopped():
                return self._mask()
        except GrammarStateError as error:
            if not drafts:
                self.error = str(error)
            elif self._parser.is_error():
                self._failed = list(drafts), str(error)
                self._restore()
            raise
        raise GrammarStateError("the text is complete")

    def valid_prefix(self, token_ids: Seq[int]) -> int:
        """How many of these tokens could be emitted in turn behind the committed ones; any integers may be asked for.

        Where the grammar forces text, tokens that spell it differently than the tokenizer does are not told apart.
        """
        if self.error or self.is_ended:
            return 0
        end = next((i for i, token_id in enumerate(token_ids) if not self._is_text(token_id)), len(token_ids))
        try:
            count = self._seek(token_ids[:end])
            if count == end < len(token_ids) and token_ids[end] in self._eos_token_ids and self._can_end():
                return end + 1
        except GrammarStateError:
            return 0
        return count

    def forced_tokens(self, limit: int) -> tuple[int, ...]:
        """The tokens that must follow the committed ones, the end of the text included; at most `limit`."""
        forced: list[int] = []
        if self.error or self.is_ended:
            return ()
        try:
            while len(forced) < limit and self._seek(forced) == len(forced):
                if step := self._parser.compute_ff_tokens():
                    forced += step
                    continue
                if self._parser.is_stopped() and len(self._eos_token_ids) == 1:
                    forced += self._eos_token_ids
                break
        except GrammarStateError:
            return ()
        return tuple(forced[:limit])

    def _accept(self, token_id: int) -> bool:
        if self.error or self.is_ended:
            return False
        if token_id in self._eos_token_ids:
            self.is_ended = self._seek(()) == 0 and self._can_end()
            return self.is_ended
        if not self._is_text(token_id):
            return False
        if not (self._ahead and self._ahead[0] == token_id) and self._seek((token_id,)) == 0:
            return False
        del self._ahead[0]
        self._committed.append(token_id)
        drafts, error = self._failed
        self._failed = (drafts[1:], error) if drafts and drafts[0] == token_id else ([], "")
        if error and drafts == [token_id]:
            self.error = error
        return True

    def _mask(self) -> Mask:
        known_W = np.frombuffer(self._parser.compute_bitmask(), np.uint32)
        self._check()
        mask_W = self._nothing()  # Logits may have more columns than there are tokens, or fewer.
        num_words = min(len(known_W), len(mask_W))
        mask_W[:num_words] = known_W[:num_words]
        self._set_ends(mask_W, can_end=self._can_end())
        if not mask_W.any():
            raise GrammarStateError("no token may come next")
        return mask_W

    def _is_text(self, token_id: int) -> bool:
        return 0 <= token_id < self._vocab_size and token_id not in self._eos_token_ids

    def _seek(self, token_ids: Seq[int]) -> int:
        """Let the parser stand behind the committed tokens and these, or as many as it can take; returns how many."""
        self._check()
        common = 0
        for known, wanted in zip(self._ahead, token_ids, strict=False):
            if known != wanted:
                break
            common += 1
        if common < len(self._ahead):
            self._parser.rollback(len(self._ahead) - common)
            del self._ahead[common:]
        if common < len(token_ids) and not self._parser.is_stopped():
            rest = list(token_ids[common:])
            self._ahead += rest[: self._parser.try_consume_tokens(rest)]
        self._check()
        return len(self._ahead)

    def _restore(self) -> None:
        """Go back behind the committed tokens with a new parser: one that has failed takes no step back."""
        self._parser, self._ahead = self._prototype.deep_copy(), []
        self._parser.try_consume_tokens(self._committed)

    def _can_end(self) -> bool:
        return self._parser.is_stopped() or self._parser.is_accepting()

    def _nothing(self) -> Mask:
        return np.zeros(-(-self._vocab_size // 32), np.uint32)

    def _set_ends(self, mask_W: Mask, *, can_end: bool) -> None:
        """Set or clear the ids that end a text: which ones there are is known here, not below."""
        for token_id in self._eos_token_ids:
            bit = np.uint32(1 << token_id % 32)
            if can_end:
                mask_W[token_id // 32] |= bit
            else:
                mask_W[token_id // 32] &= ~bit

    def _check(self) -> None:
        if self._parser.is_error():
            self._on_failure()
            raise GrammarStateError(self._parser.get_error() or self._parser.stop_reason())
