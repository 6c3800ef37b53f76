import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from cluster.errors import EngineDeadError, InvalidRequestError
from cluster.types import FinishReason, Request, RequestOutput, SamplingParams, StepStats
from deployments.engine_loop import EngineLoop
from deployments.mailbox import Mailbox
from tests.deployments.fake_engine import SCRIPT, FakeEngine

pytestmark = pytest.mark.anyio


def _request(name: str = "r", max_tokens: int = 10, **sampling: object) -> Request:
    params = SamplingParams(max_tokens=max_tokens, seed=0, **sampling)  # type: ignore[arg-type]
    return Request(request_id=name, prompt_token_ids=(1, 2), sampling=params)


@asynccontextmanager
async def _running(engine: FakeEngine, steps: list[StepStats] | None = None) -> AsyncIterator[EngineLoop]:
    def on_step(stats: StepStats, _: Sequence[RequestOutput]) -> None:
        if steps is not None:
            steps.append(stats)

    loop = EngineLoop(lambda: engine, on_step)
    await loop.start()
    try:
        yield loop
    finally:
        await loop.stop()


async def _read(mailbox: Mailbox) -> str:
    text = ""
    while deltas := await mailbox.take():
        text += "".join(delta.text for delta in deltas)
    return text


async def test_text_arrives_whole_and_in_order() -> None:
    async with _running(FakeEngine()) as loop:
        mailbox = loop.submit([_request(max_tokens=200)], lambda: 0.0)
        assert await _read(mailbox) == (SCRIPT * 5)[:200]
        assert loop.num_streams == 0


async def test_many_streams_do_not_mix() -> None:
    async with _running(FakeEngine()) as loop:
        boxes = [loop.submit([_request(f"r{n}", max_tokens=n)], lambda: 0.0) for n in range(1, 40)]
        texts = await asyncio.gather(*map(_read, boxes))
        assert texts == [SCRIPT[:n] for n in range(1, 40)]


async def test_the_engine_runs_in_a_thread_of_its_own() -> None:
    built: list[str] = []

    def build() -> FakeEngine:
        built.append(threading.current_thread().name)
        return FakeEngine()

    loop = EngineLoop(build, lambda *_: None)
    await loop.start()
    await loop.stop()
    assert built == ["engine"]


async def test_an_idle_engine_takes_no_steps() -> None:
    engine = FakeEngine()
    async with _running(engine) as loop:
        await loop.ping(5)
        await asyncio.sleep(0.05)
        assert engine.num_steps == 0


async def test_one_event_loop_call_delivers_a_whole_round() -> None:
    steps: list[StepStats] = []
    engine = FakeEngine(step_s=0.005)
    async with _running(engine, steps) as loop:
        boxes = [loop.submit([_request(f"r{n}", max_tokens=9)], lambda: 0.0) for n in range(20)]
        await asyncio.gather(*map(_read, boxes))
    assert len(steps) == engine.num_steps


async def test_closing_a_call_aborts_it_before_the_next_round_and_updates_the_gauges() -> None:
    steps: list[StepStats] = []
    engine = FakeEngine(step_s=0.005)
    async with _running(engine, steps) as loop:
        requests = [_request("a", max_tokens=400), _request("b", max_tokens=400)]
        mailbox = loop.submit(requests, lambda: 0.0)
        await mailbox.take()
        before = engine.num_steps
        assert set(loop.close(requests, mailbox)) == {"a", "b"}
        await loop.ping(5)
        await loop.ping(5)
        assert engine.requests == {}
        assert engine.num_steps - before <= 3
    assert steps[-1].num_running == 0


async def test_a_refused_choice_fails_its_call_and_aborts_its_siblings_only() -> None:
    engine = FakeEngine(step_s=0.002)
    async with _running(engine) as loop:
        other = loop.submit([_request("other", max_tokens=60)], lambda: 0.0)
        mailbox = loop.submit([_request("good", max_tokens=400), _request("bad", bad_words=((1,),))], lambda: 0.0)
        with pytest.raises(InvalidRequestError):
            await _read(mailbox)
        assert len(await _read(other)) == 60
        await loop.ping(5)
        assert engine.requests == {}


async def test_a_dead_engine_fails_every_open_call_every_later_one_and_health() -> None:
    async with _running(FakeEngine(crash_at_step=3, step_s=0.002)) as loop:
        boxes = [loop.submit([_request(f"r{n}", max_tokens=100)], lambda: 0.0) for n in range(3)]
        results = await asyncio.gather(*map(_read, boxes), return_exceptions=True)
        assert [type(result) for result in results] == [EngineDeadError] * 3
        with pytest.raises(EngineDeadError):
            loop.submit([_request("late")], lambda: 0.0)
        with pytest.raises(EngineDeadError):
            await loop.ping(5)


async def test_a_ping_waits_for_the_round_in_progress_and_times_out_on_a_hang() -> None:
    engine = FakeEngine(step_s=0.3)
    async with _running(engine) as loop:
        mailbox = loop.submit([_request(max_tokens=3)], lambda: 0.0)
        await asyncio.sleep(0.05)
        with pytest.raises(TimeoutError):
            await loop.ping(0.05)
        assert await _read(mailbox)
        await loop.ping(5)


async def test_a_failure_to_build_the_engine_is_raised_by_start() -> None:
    def build() -> FakeEngine:
        raise ValueError("no such model")

    loop = EngineLoop(build, lambda *_: None)
    with pytest.raises(ValueError, match="no such model"):
        await loop.start()
    with pytest.raises(EngineDeadError):
        loop.check_alive()


async def test_stopping_fails_open_calls() -> None:
    async with _running(FakeEngine(step_s=0.005)) as loop:
        mailbox = loop.submit([_request(max_tokens=500)], lambda: 0.0)
        await mailbox.take()
    with pytest.raises(EngineDeadError):
        await _read(mailbox)


async def test_a_finished_choice_carries_its_reason() -> None:
    async with _running(FakeEngine()) as loop:
        mailbox = loop.submit([_request(max_tokens=3)], lambda: 0.0)
        (delta,) = await mailbox.take()
        assert delta.finish_reason is FinishReason.LENGTH
