"""Matchers for the requests of a call, made before the engine hears of them: no round ever waits for a compiler."""

from collections.abc import Sequence
from typing import TypeAlias

from cluster.errors import GrammarError
from cluster.grammar.compiler import GrammarCompiler
from cluster.grammar.matcher import GrammarMatcher
from cluster.types import Request
from deployments.worker_pool import grammar_workers

Matchers: TypeAlias = dict[str, GrammarMatcher]
"""By request id."""


class MatcherMaker:
    """Makes matchers in threads of its own. Belongs to one event loop.

    Args:
        compiler: the engine's.
    """

    def __init__(self, compiler: GrammarCompiler) -> None:
        self._compiler = compiler
        self._workers = grammar_workers()

    async def matchers(self, requests: Sequence[Request]) -> Matchers:
        """A matcher for each request with a grammar, by request id.

        Raises:
            GrammarError: a grammar cannot be compiled, or not in time.
            UnavailableError: too many grammars are being compiled.
        """
        return {request.request_id: await self._matcher(request.grammar) for request in requests if request.grammar}

    def close(self) -> None:
        """Let the threads go."""
        self._workers.close()

    async def _matcher(self, grammar: str) -> GrammarMatcher:
        timeout_s = self._compiler.limits.compile_timeout_s
        if not self._compiler.knows(grammar):
            try:
                await self._workers.run(lambda: self._compiler.check(grammar), timeout_s)
            except TimeoutError:
                raise GrammarError(f"the grammar takes longer than {timeout_s:g} seconds to compile") from None
        return self._compiler.matcher(grammar)
