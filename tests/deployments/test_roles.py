"""Changes of role from the event loop: in order with other commands, idle or busy, counted, and never left hanging."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from cluster.clock import MonotonicClock
from cluster.config import EngineConfig
from cluster.errors import ConfigError, EngineDeadError
from cluster.types import Request, Role, SamplingParams
from deployments import wire
from deployments.engine_loop import EngineLoop
from deployments.verifier import VerifierCore
from deployments.verifier_config import RoleSeats, VerifierConfig
from tests.cluster.engine.engine_harness import make_engine, random_prompt, request, run_alone
from tests.deployments.fake_engine import SCRIPT, FakeEngine

pytestmark = pytest.mark.anyio

SEATS = RoleSeats(speculative=4, batch=32)


@asynccontextmanager
async def _running(engine: FakeEngine) -> AsyncIterator[EngineLoop]:
    loop = EngineLoop(lambda: engine, lambda *_: None)
    await loop.start()
    try:
        yield loop
    finally:
        await loop.stop()


@asynccontextmanager
async def _core(engine: Any, config: VerifierConfig | None = None) -> AsyncIterator[VerifierCore]:
    core = VerifierCore(config or VerifierConfig(max_num_seqs_by_role=SEATS), lambda: engine)
    await core.start()
    try:
        yield core
    finally:
        await core.stop()


def _request(name: str, max_tokens: int = 30) -> Request:
    return Request(
        request_id=name, prompt_token_ids=(1, 2), sampling=SamplingParams(max_tokens=max_tokens, seed=0), arrival_s=-5.0
    )


async def test_an_idle_engine_takes_another_role_at_once_and_without_a_step() -> None:
    engine = FakeEngine()
    async with _running(engine) as loop:
        await asyncio.wait_for(loop.set_role(Role.BATCH, max_num_seqs=32), 5)
        assert engine.roles == [(Role.BATCH, 32, 0)]
        assert engine.num_steps == 0


async def test_a_change_of_role_keeps_its_place_among_submitted_and_closed_calls() -> None:
    engine = FakeEngine(step_s=0.05)
    async with _running(engine) as loop:
        first = loop.submit([_request("first", 400)], lambda: 0.0)
        await first.take()
        # All during one round: they are applied in this order before the next one.
        second = loop.submit([_request("second", 400)], lambda: 0.0)
        two = loop.set_role(Role.BATCH, max_num_seqs=32)
        loop.close([_request("first")], first)
        loop.close([_request("second")], second)
        none = loop.set_role(Role.SPECULATIVE, max_num_seqs=4)
        third = loop.submit([_request("third", 3)], lambda: 0.0)
        await asyncio.gather(two, none)
        assert engine.roles == [(Role.BATCH, 32, 2), (Role.SPECULATIVE, 4, 0)]
        assert await third.take()


async def test_a_role_that_the_engine_refuses_is_told_to_who_asked_and_harms_nobody() -> None:
    engine = FakeEngine()
    async with _running(engine) as loop:
        with pytest.raises(ConfigError, match="max_num_seqs"):
            await loop.set_role(Role.BATCH, max_num_seqs=5000)
        mailbox = loop.submit([_request("r", 3)], lambda: 0.0)
        assert await mailbox.take()


async def test_nobody_waits_for_ever_for_an_engine_that_dies_or_stops() -> None:
    async with _running(FakeEngine(crash_at_step=1, step_s=0.1)) as loop:
        loop.submit([_request("r")], lambda: 0.0)
        await asyncio.sleep(0.02)
        waiting = [loop.set_role(Role.BATCH, max_num_seqs=32) for _ in range(2)]
        results = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 5)
        assert [type(result) for result in results] == [EngineDeadError] * 2
        with pytest.raises(EngineDeadError):
            loop.set_role(Role.BATCH, max_num_seqs=32)
    async with _running(FakeEngine(step_s=0.1)) as loop:
        loop.submit([_request("r")], lambda: 0.0)
        await asyncio.sleep(0.02)
        stopping = asyncio.ensure_future(loop.stop())
        await asyncio.sleep(0)
        late = loop.set_role(Role.BATCH, max_num_seqs=32)
        await stopping
        with pytest.raises(EngineDeadError):
            await asyncio.wait_for(late, 5)


async def test_an_engine_that_breaks_while_it_changes_its_role_is_dead_and_says_so() -> None:
    class Breaking(FakeEngine):
        def set_role(self, role: Role, *, max_num_seqs: int) -> None:
            raise ZeroDivisionError("secret internals")

    async with _running(Breaking()) as loop:
        with pytest.raises(EngineDeadError):
            await asyncio.wait_for(loop.set_role(Role.BATCH, max_num_seqs=32), 5)
        with pytest.raises(EngineDeadError):
            loop.check_alive()


async def test_a_verifier_starts_speculative_and_takes_the_seats_of_each_role() -> None:
    engine = FakeEngine()
    async with _core(engine) as core:
        roles = [core.role]
        taken_s = await core.set_role(Role.BATCH)
        assert 0 <= taken_s < 1
        roles.append(core.role)
        await core.set_role(Role.SPECULATIVE)
        assert roles == [Role.SPECULATIVE, Role.BATCH]
        assert engine.roles == [(Role.BATCH, 32, 0), (Role.SPECULATIVE, 4, 0)]


async def test_without_seats_by_role_both_roles_have_the_engines() -> None:
    engine = FakeEngine()
    async with _core(engine, VerifierConfig(engine=EngineConfig(max_num_seqs=48))) as core:
        await core.set_role(Role.BATCH)
        await core.set_role(Role.SPECULATIVE)
    assert [seats for _, seats, _ in engine.roles] == [48, 48]


async def test_role_flips_and_tax_are_in_the_scrape() -> None:
    async with _core(FakeEngine()) as core:
        labels = 'engine="0",model_name="fake/bytes"'

        def scraped(name: str, *, role: str = "") -> float:
            wanted = f"{name}{{{labels}{f',role={chr(34)}{role}{chr(34)}' if role else ''}}} "
            return next(float(line.split()[-1]) for line in core.metrics().splitlines() if line.startswith(wanted))

        assert (scraped("outrider_role", role="speculative"), scraped("outrider_role", role="batch")) == (1, 0)
        assert (scraped("outrider_role_flips_total"), scraped("outrider_kv_tax_tokens")) == (0, 64)
        await core.set_role(Role.BATCH)
        await core.set_role(Role.BATCH)
        assert (scraped("outrider_role", role="speculative"), scraped("outrider_role", role="batch")) == (0, 1)
        assert (scraped("outrider_role_flips_total"), scraped("outrider_kv_tax_tokens")) == (1, 0)
        assert scraped("outrider_role_flip_seconds_count") == 1


async def test_many_flips_under_load_cut_no_stream() -> None:
    engine = FakeEngine(step_s=0.001, tokens_per_step=1)
    async with _core(engine) as core:

        async def one(name: str) -> str:
            call = wire.GenerateCall(requests=(_request(name, 60),), timeout_s=None)
            batches = [wire.decode_batch(item) async for item in core.generate(wire.encode(call))]
            assert all(batch.failure is None for batch in batches)
            return "".join(delta.text for batch in batches for delta in batch.deltas)

        readers = [asyncio.ensure_future(one(f"r{i}")) for i in range(20)]
        for number in range(40):
            await core.set_role(Role.BATCH if number % 2 == 0 else Role.SPECULATIVE)
            await asyncio.sleep(0.002)
        assert await asyncio.gather(*readers) == [(SCRIPT * 2)[:60]] * 20


@pytest.mark.engine
@pytest.mark.parametrize("temperature", [0.0, 0.7])
async def test_a_real_engine_flips_quickly_and_writes_what_it_would_have_written(temperature: float) -> None:
    engine: Any = make_engine(num_blocks=512, clock=MonotonicClock(), max_num_seqs=4, kv_tax_tokens=4 * 7)
    requests = [
        request(f"r{i}", random_prompt(i, 8) * 3, max_tokens=60, seed=i, temperature=temperature, ignore_eos=True)
        for i in range(12)
    ]
    async with _core(engine) as core:

        async def one(item: Request) -> list[int]:
            call = wire.GenerateCall(requests=(item,), timeout_s=None)
            batches = [wire.decode_batch(data) async for data in core.generate(wire.encode(call))]
            assert all(batch.failure is None for batch in batches)
            return [token_id for batch in batches for delta in batch.deltas for token_id in delta.token_ids]

        readers = [asyncio.ensure_future(one(item)) for item in requests]
        taken_s: list[float] = []
        while not all(reader.done() for reader in readers):
            await asyncio.sleep(0.005)
            taken_s.append(await core.set_role(Role.BATCH if len(taken_s) % 2 == 0 else Role.SPECULATIVE))
        texts = await asyncio.gather(*readers)
        await core.set_role(Role.SPECULATIVE)
        engine.check_integrity()
        assert engine._pool.num_used_blocks == 0
    assert len(taken_s) > 3
    assert max(taken_s) < 1
    assert texts == [run_alone(item).token_ids for item in requests]


@pytest.mark.parametrize(
    ("speculative", "batch", "named"),
    [(0, 8, "role speculative"), (8, 0, "role batch"), (16, 256, "engine.max_num_batched_tokens")],
)
def test_seats_out_of_range_are_refused_by_name(speculative: int, batch: int, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        VerifierConfig(
            engine=EngineConfig(max_num_batched_tokens=128),
            max_num_seqs_by_role=RoleSeats(speculative=speculative, batch=batch),
        )
