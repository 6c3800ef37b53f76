"""Compiles grammars for one tokenizer, and remembers the last ones."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from copy import copy
from typing import Any, Protocol, TypeVar

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from cluster.errors import GrammarError
from cluster.grammar.limits import GrammarLimits
from cluster.grammar.matcher import GrammarMatcher

STACK_BYTES = 256 << 20
"""Of the thread that compiles: ten times what the deepest grammar took that `source` lets pass."""

_MAX_MESSAGE_CHARS = 400
_STACK_LOCK = threading.Lock()
_T = TypeVar("_T")


class FastTokenizer(Protocol):
    """The part of a transformers tokenizer that is used here."""

    @property
    def backend_tokenizer(self) -> Any:
        """The tokenizer of the `tokenizers` library behind it."""
        ...


def _reason(parser: LLMatcher) -> str:
    """Why a grammar was not compiled, in the compiler's words where it has any."""
    message = " ".join(parser.get_error().replace("<non-verbose/>", "").split())
    if message in ("", "NoExtensionBias"):
        return "no text follows the grammar"
    return message[:_MAX_MESSAGE_CHARS]


def on_large_stack(work: Callable[[], _T]) -> _T:
    """Run work in a thread of its own with `STACK_BYTES` of stack, and wait for it; memory is taken as it is touched.

    The compiler follows rules and references by recursion; at the end of a stack, the whole process would die.
    """
    outcome: Future[_T] = Future()

    def run() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:  # noqa: BLE001 -- it is raised where it is waited for
            outcome.set_exception(error)

    with _STACK_LOCK:  # The size is the whole process's: it holds for the threads that are started meanwhile.
        before = threading.stack_size(STACK_BYTES)
        try:
            thread = threading.Thread(target=run, name="grammar-compiler", daemon=True)
            thread.start()
        finally:
            threading.stack_size(before)
    return outcome.result()


class GrammarCompiler:
    """Makes matchers. Thread safe; compiling is left to threads that may wait.

    The vocabulary is read when the first grammar comes, which takes a moment.

    Args:
        tokenizer: the target's.
        vocab_size: columns of its logits.
        eos_token_ids: ids that end a text.
        limits: bounds of what a grammar may cost.
    """

    def __init__(
        self, tokenizer: object, vocab_size: int, eos_token_ids: frozenset[int], limits: GrammarLimits | None = None
    ) -> None:
        self.limits = limits or GrammarLimits()
        self._tokenizer, self._vocab_size, self._eos_token_ids = tokenizer, vocab_size, eos_token_ids
        self._vocabulary: LLTokenizer | None = None
        self._compiled: OrderedDict[str, LLMatcher] = OrderedDict()
        self._lock, self._vocabulary_lock = threading.Lock(), threading.Lock()

    @property
    def num_compiled(self) -> int:
        """Grammars that are remembered."""
        return len(self._compiled)

    def warm_up(self) -> None:
        """Read the vocabulary now; that takes most of a second for a large one, and no other thread runs meanwhile.

        A tokenizer that no grammar can be followed with is left for the first grammar to find out.
        """
        with suppress(GrammarError):
            self._known_vocabulary()

    def knows(self, grammar: str) -> bool:
        """True when `matcher` is quick for this grammar."""
        return grammar in self._compiled

    def check(self, grammar: str) -> None:
        """Compile a grammar.

        Args:
            grammar: from `source`.

        Raises:
            GrammarError: it cannot be compiled within the limits, or no text follows it.
        """
        self._prototype(grammar)

    def matcher(self, grammar: str) -> GrammarMatcher:
        """A matcher at the beginning of a grammar; quick where `check` has seen it not long ago.

        Raises:
            GrammarError: as `check`.
        """
        prototype = self._prototype(grammar)
        return GrammarMatcher(
            prototype, self._vocab_size, self._eos_token_ids, on_failure=lambda: self._forget(grammar, prototype)
        )

    def _forget(self, grammar: str, prototype: LLMatcher) -> None:
        """Compile a grammar anew for those who come, since what one choice did to its lexer holds for all."""
        with self._lock:
            if self._compiled.get(grammar) is prototype:
                del self._compiled[grammar]

    def _prototype(self, grammar: str) -> LLMatcher:
        with self._lock:
            known = self._compiled.get(grammar)
            if known is not None:
                self._compiled.move_to_end(grammar)
                return known
        compiled = on_large_stack(lambda: self._compile(grammar))
        with self._lock:
            self._compiled[grammar] = compiled
            while len(self._compiled) > self.limits.max_compiled:
                self._compiled.popitem(last=False)
        return compiled

    def _compile(self, grammar: str) -> LLMatcher:
        limits = self.limits
        parser = LLMatcher(
            self._known_vocabulary(),
            grammar,
            log_level=0,
            limits=LLParserLimits(
                initial_lexer_fuel=limits.compile_fuel,
                step_lexer_fuel=limits.step_fuel,
                step_max_items=limits.step_items,
                max_lexer_states=limits.max_lexer_states,
                max_grammar_size=limits.max_symbols,
                verbose_errors=False,
            ),
        )
        if not parser.is_error():
            parser.compute_bitmask()  # A grammar that allows no text fails only here.
        if parser.is_error():
            raise GrammarError(_reason(parser))
        return parser

    def _known_vocabulary(self) -> LLTokenizer:
        with self._vocabulary_lock:
            if self._vocabulary is None:
                self._vocabulary = self._read_vocabulary()
            return self._vocabulary

    def _read_vocabulary(self) -> LLTokenizer:
        backend = getattr(self._tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise GrammarError("this model's tokenizer has no fast form: its answers cannot follow a grammar")
        if backend.truncation is not None or backend.padding is not None:
            backend = copy(backend)  # The text between two tokens must not depend on how prompts are cut.
            backend.no_truncation()
            backend.no_padding()
        num_tokens = backend.get_vocab_size(with_added_tokens=True)
        ends = [token_id for token_id in sorted(self._eos_token_ids) if token_id < num_tokens]
        return LLTokenizer(backend.to_str(), eos_token=ends or None)
