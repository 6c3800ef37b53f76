"""Bounds of a grammar: what a client may send, and what following it may cost."""

from dataclasses import dataclass

from cluster.errors import check_range


@dataclass(frozen=True, slots=True, kw_only=True)
class GrammarLimits:
    """What a grammar may cost. Beyond any of these the request is refused, or its choice ends with an error.

    Attributes:
        max_bytes: longest schema, pattern, grammar or list of choices, UTF-8 encoded.
        max_depth: deepest nesting of a schema, or of brackets in a pattern or grammar.
        max_choices: most choices of a `choice` grammar.
        compile_timeout_s: longest time to compile one, in seconds.
        max_compiled: compiled grammars that are remembered; the one used longest ago goes first.
        max_symbols: most symbols in the rules of a compiled grammar.
        max_lexer_states: most states of its lexer, about 1 to 2 kB each; all choices under a grammar share them.
        compile_fuel: work to build the lexer, about 50,000 units a millisecond.
        step_fuel: work of the lexer for one position's mask, about 14,000 units a millisecond.
        step_items: items of the parser for one position's mask, about 20,000 a millisecond.
    """

    max_bytes: int = 65_536
    max_depth: int = 64
    max_choices: int = 1_000
    compile_timeout_s: float = 2.0
    max_compiled: int = 32
    max_symbols: int = 100_000
    max_lexer_states: int = 20_000
    compile_fuel: int = 1_000_000
    step_fuel: int = 200_000
    step_items: int = 50_000

    def __post_init__(self) -> None:
        """Refuse values out of range, naming field, value and range."""
        check_range("grammar.max_bytes", self.max_bytes, 16, 1 << 22)
        check_range("grammar.max_depth", self.max_depth, 1, 100)
        check_range("grammar.max_choices", self.max_choices, 1, 100_000)
        check_range("grammar.compile_timeout_s", self.compile_timeout_s, 0.01, 60, kind="seconds")
        check_range("grammar.max_compiled", self.max_compiled, 1, 4096)
        check_range("grammar.max_symbols", self.max_symbols, 100, 1 << 24)
        check_range("grammar.max_lexer_states", self.max_lexer_states, 100, 1 << 24)
        check_range("grammar.compile_fuel", self.compile_fuel, 1_000, 1 << 30)
        check_range("grammar.step_fuel", self.step_fuel, 1_000, 1 << 30)
        check_range("grammar.step_items", self.step_items, 100, 1 << 24)
