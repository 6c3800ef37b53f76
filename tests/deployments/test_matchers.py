"""Matchers are made off the loop and in time, before the engine hears of a request."""

import asyncio
import time
from dataclasses import replace

import pytest

from cluster.errors import GrammarError, UnavailableError
from cluster.grammar.compiler import GrammarCompiler
from cluster.grammar.limits import GrammarLimits
from cluster.grammar.source import choice_grammar, regex_grammar
from cluster.types import Request, SamplingParams
from deployments import wire
from deployments.matchers import MatcherMaker
from deployments.verifier import VerifierCore
from deployments.verifier_config import VerifierConfig
from deployments.worker_pool import MAX_COMPILES
from tests.cluster.grammar.grammar_toys import LIMITS
from tests.deployments.fake_engine import EOS_ID, ByteTokenizer, FakeEngine

pytestmark = pytest.mark.anyio

ITEM = Request(request_id="a", prompt_token_ids=(1,), sampling=SamplingParams(max_tokens=3, seed=1))
GRAMMAR = choice_grammar(["The quick"], LIMITS)


class SlowCompiler(GrammarCompiler):
    """Takes its time for what it does not know yet."""

    def check(self, grammar: str) -> None:
        time.sleep(0.2)
        super().check(grammar)


def compiler(kind: type[GrammarCompiler] = GrammarCompiler, **limits: float) -> GrammarCompiler:
    return kind(ByteTokenizer(), 257, frozenset([EOS_ID]), GrammarLimits(**limits))  # type: ignore[arg-type]


def items(*grammars: str) -> list[Request]:
    return [replace(ITEM, request_id=str(index), grammar=grammar) for index, grammar in enumerate(grammars)]


async def test_each_choice_has_a_matcher_of_its_own() -> None:
    maker = MatcherMaker(compiler())
    made = await maker.matchers(items(GRAMMAR, "", GRAMMAR))
    assert set(made) == {"0", "2"} and made["0"] is not made["2"]
    assert made["0"].accept(ord("T")) and made["2"].valid_prefix([ord("T")]) == 1
    maker.close()


async def test_the_loop_goes_on_while_a_grammar_compiles_and_a_slow_one_is_refused() -> None:
    maker = MatcherMaker(compiler(SlowCompiler, compile_timeout_s=0.05))
    num_ticks = 0

    async def tick() -> None:
        nonlocal num_ticks
        while True:
            await asyncio.sleep(0.001)
            num_ticks += 1

    ticking = asyncio.create_task(tick())
    with pytest.raises(GrammarError, match=r"longer than 0\.05 seconds"):
        await maker.matchers(items(GRAMMAR))
    assert num_ticks > 2
    others = [maker.matchers(items(regex_grammar(f"[a-z]{{{n}}}", LIMITS))) for n in range(1, MAX_COMPILES + 2)]
    results = await asyncio.gather(*others, return_exceptions=True)
    assert any(isinstance(result, UnavailableError) for result in results)
    ticking.cancel()
    maker.close()


async def test_a_grammar_reaches_the_engine_with_its_matcher_and_a_wrong_one_is_refused() -> None:
    engine = FakeEngine()
    core = VerifierCore(VerifierConfig(), lambda: engine)
    await core.start()
    try:
        batches = [wire.decode_batch(data) async for data in core.generate(_call(GRAMMAR))]
        assert batches[-1].failure is None and engine.seen[-1].grammar == GRAMMAR
        (refused,) = [wire.decode_batch(data) async for data in core.generate(_call(regex_grammar("(a", LIMITS)))]
        assert refused.failure is not None and refused.failure.status == 400
        assert "unclosed" in refused.failure.message and len(engine.seen) == 1
    finally:
        await core.stop()


def _call(grammar: str) -> bytes:
    return wire.encode(wire.GenerateCall(requests=(replace(ITEM, grammar=grammar),)))
