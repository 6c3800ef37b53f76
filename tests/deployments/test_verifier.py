import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

import msgspec
import pytest

from cluster.types import Request, SamplingParams
from deployments import wire
from deployments.verifier import VerifierCore
from deployments.verifier_config import VerifierConfig
from tests.deployments.fake_engine import FakeEngine

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def _core(engine: FakeEngine) -> AsyncIterator[VerifierCore]:
    core = VerifierCore(VerifierConfig(), lambda: engine)
    await core.start()
    try:
        yield core
    finally:
        await core.stop()


def _call(name: str = "r", max_tokens: int = 400, timeout_s: float | None = None) -> wire.GenerateCall:
    request = Request(
        request_id=name, prompt_token_ids=(1, 2), sampling=SamplingParams(max_tokens=max_tokens, seed=0), arrival_s=-5.0
    )
    return wire.GenerateCall(requests=(request,), timeout_s=timeout_s)


async def _drain(core: VerifierCore, call: wire.GenerateCall) -> list[wire.Batch]:
    return [wire.decode_batch(item) async for item in core.generate(wire.encode(call))]


async def test_times_of_a_call_are_the_verifiers_own() -> None:
    engine = FakeEngine()
    async with _core(engine) as core:
        await _drain(core, _call(max_tokens=1, timeout_s=9.0))
    (request,) = engine.seen
    assert request.deadline_s is not None
    assert request.deadline_s - request.arrival_s == pytest.approx(9.0)
    assert request.arrival_s != -5.0


async def test_an_abort_ends_a_call_even_while_nobody_reads_its_stream() -> None:
    engine = FakeEngine(step_s=0.002, tokens_per_step=1)
    async with _core(engine) as core, aclosing(core.generate(wire.encode(_call()))) as stream:
        await anext(stream)
        core.abort("r")  # the generator is suspended at its yield, as Serve may leave it
        await core.ping()
        await core.ping()
        assert engine.requests == {}
        assert core._loop.num_streams == 0
        assert core._recorder.num_in_flight == 0
        assert [item async for item in stream] == []


async def test_an_abort_wakes_a_waiting_reader() -> None:
    engine = FakeEngine(step_s=0.2, tokens_per_step=1)
    async with _core(engine) as core:
        reader = asyncio.ensure_future(_drain(core, _call()))
        await asyncio.sleep(0.05)
        core.abort("r")
        assert await asyncio.wait_for(reader, 5) == []


async def test_an_abort_that_overtakes_its_call_still_ends_it() -> None:
    engine = FakeEngine()
    async with _core(engine) as core:
        core.abort("r")
        (batch,) = await _drain(core, _call())
        assert batch.failure is not None
        assert engine.seen == []
        assert core._admission.num_requests == 0


async def test_tokens_of_another_model_are_refused_and_never_reach_the_engine() -> None:
    engine = FakeEngine()
    async with _core(engine) as core:
        (batch,) = await _drain(core, msgspec.structs.replace(_call(), model="other"))
        assert batch.failure is not None
        assert (batch.failure.status, batch.failure.code) == (503, "model_mismatch")
        assert engine.seen == []
        assert await _drain(core, msgspec.structs.replace(_call(max_tokens=1), model=engine.fingerprint))
    assert len(engine.seen) == 1


async def test_remembered_aborts_are_bounded() -> None:
    async with _core(FakeEngine()) as core:
        for number in range(5000):
            core.abort(f"x{number}")
        assert len(core._aborted) == 1024


async def test_an_abort_of_an_ended_call_counts_nothing() -> None:
    async with _core(FakeEngine()) as core:
        await _drain(core, _call(max_tokens=3))
        core.abort("r")
        assert 'finished_reason="abort",model_name="fake/bytes"} 0.0' in core.metrics()
