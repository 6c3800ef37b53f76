"""The whole path from HTTP to KV blocks and back, on a real engine with a small random model."""

import asyncio
import random
from typing import Any

import pytest

from cluster.clock import MonotonicClock
from deployments.admission import AdmissionConfig
from deployments.verifier_config import VerifierConfig
from tests.cluster.engine.engine_harness import make_engine, tokenizer
from tests.deployments.conftest import Serve
from tests.deployments.test_edge import HangingUpClient

pytestmark = [pytest.mark.anyio, pytest.mark.engine]

NUM_REQUESTS, NUM_AT_ONCE = 2000, 50
GAUGES = (
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:kv_cache_usage_perc",
    "outrider_queued_requests",
    "outrider_queued_tokens",
)


async def test_two_thousand_requests_with_random_aborts_leave_every_block_free_and_every_gauge_at_zero(
    serve: Serve,
) -> None:
    rng = random.Random(11)
    # A pool small enough that requests preempt each other as well.
    engine: Any = make_engine(num_blocks=40, max_num_seqs=32, clock=MonotonicClock())
    words: Any = tokenizer()
    verifier = VerifierConfig(admission=AdmissionConfig(max_queued_requests=4 * NUM_AT_ONCE))
    async with serve(engine=engine, tokenizer=words, verifier=verifier) as server:

        async def one() -> int | None:
            body = {
                "messages": [{"role": "user", "content": "word " * rng.randint(1, 20)}],
                "max_tokens": rng.randint(1, 24),
                "n": rng.choice((1, 1, 1, 2)),
                "stream": rng.random() < 0.7,
            }
            client = HangingUpClient(server, body)
            task = asyncio.ensure_future(client.run())
            if rng.random() < 0.5:
                await asyncio.sleep(rng.random() * 0.1)
                client.hang_up.set()
            await asyncio.wait({task})
            return client.status

        statuses: list[int | None] = []
        for _ in range(NUM_REQUESTS // NUM_AT_ONCE):
            statuses += await asyncio.gather(*(one() for _ in range(NUM_AT_ONCE)))
        await server.core.ping()
        await server.core.ping()
        metrics = (await server.http.get("/metrics")).text
        engine.check_integrity()
        assert engine._pool.num_free_blocks == engine._pool.num_blocks
        assert set(statuses) <= {200, 499, None}  # 499: the client had gone
        assert statuses.count(200) > NUM_REQUESTS / 3
        for gauge in GAUGES:
            assert f'{gauge}{{engine="0",model_name="tiny"}} 0.0' in metrics, gauge


@pytest.mark.parametrize(
    "settings",
    [
        {"repetition_penalty": 0.01},
        {"repetition_penalty": 100},
        {"temperature": 5e-324},
        {"temperature": 2, "top_p": 5e-324, "min_p": 1},
        {"frequency_penalty": -2, "presence_penalty": 2, "logit_bias": {"3": 100, "4": -100}},
    ],
)
async def test_settings_at_the_ends_of_their_ranges_are_served(serve: Serve, settings: dict[str, Any]) -> None:
    engine: Any = make_engine(clock=MonotonicClock())
    words: Any = tokenizer()
    async with serve(engine=engine, tokenizer=words) as server:
        body = {"messages": [{"role": "user", "content": ""}], "max_tokens": 8, **settings}
        answer = await server.http.post("/v1/chat/completions", json=body)
        assert answer.status_code == 200, answer.text
