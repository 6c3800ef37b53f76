"""Overload and random aborts: nothing is lost, nothing leaks."""

import asyncio
import json
import random

import pytest

from deployments.admission import AdmissionConfig
from deployments.verifier_config import VerifierConfig
from tests.deployments.conftest import Serve
from tests.deployments.fake_engine import FakeEngine
from tests.deployments.http_helpers import error_of
from tests.deployments.test_edge import HangingUpClient

pytestmark = pytest.mark.anyio


async def test_a_full_queue_answers_429_with_a_finite_retry_after(serve: Serve) -> None:
    verifier = VerifierConfig(admission=AdmissionConfig(max_queued_requests=4))
    async with serve(engine=FakeEngine(max_num_seqs=1, step_s=0.005), verifier=verifier) as server:
        bodies = [{"prompt": "a", "max_tokens": 6, "stream": n % 2 == 0} for n in range(20)]
        answers = await asyncio.gather(*(server.http.post("/v1/completions", json=body) for body in bodies))
        refused = [answer for answer in answers if answer.status_code == 429]
        assert {answer.status_code for answer in answers} == {200, 429}
        for answer in refused:
            assert 1 <= int(answer.headers["retry-after"]) <= 60
            assert error_of(answer)["type"] == "overloaded_error"
        metrics = (await server.http.get("/metrics")).text
        name = 'outrider_admission_rejections_total{engine="0",model_name="fake/bytes",reason="max_queued_requests"}'
        assert f"{name} {float(len(refused))}" in metrics
        # The queue drains, and work is taken again.
        assert (await server.http.post("/v1/completions", json=bodies[0])).status_code == 200


async def test_random_aborts_leave_every_gauge_at_zero(serve: Serve) -> None:
    rng = random.Random(7)
    engine = FakeEngine(step_s=0.0005, max_num_seqs=8)
    async with serve(engine=engine) as server:

        async def one() -> None:
            body = {
                "messages": [{"role": "user", "content": "x"}],
                "n": rng.randint(1, 3),
                "max_tokens": rng.randint(1, 60),
            }
            client = HangingUpClient(server, body | {"stream": rng.random() < 0.7})
            task = asyncio.ensure_future(client.run())
            if rng.random() < 0.5:
                await asyncio.sleep(rng.random() * 0.05)
                if rng.random() < 0.5:
                    client.hang_up.set()
                else:
                    task.cancel()
            await asyncio.wait({task})

        for _ in range(10):
            await asyncio.gather(*(one() for _ in range(20)))
        await server.core.ping()
        await server.core.ping()
        metrics = (await server.http.get("/metrics")).text
        assert engine.requests == {}
        assert server.core._loop.num_streams == 0
        assert server.core._recorder.num_in_flight == 0
        for gauge in (
            "vllm:num_requests_running",
            "vllm:num_requests_waiting",
            "outrider_queued_requests",
            "outrider_queued_tokens",
            "vllm:kv_cache_usage_perc",
        ):
            assert f'{gauge}{{engine="0",model_name="fake/bytes"}} 0.0' in metrics, gauge
        assert 'outrider_http_active_requests{gateway="0"} 0.0' in metrics


async def test_d12_under_many_streams_events_are_coalesced_and_the_text_stays_whole(serve: Serve) -> None:
    engine = FakeEngine(step_s=0.002, tokens_per_step=1)
    async with serve(engine=engine, verifier=VerifierConfig(stream_interval_s=0.1)) as server:
        body = {"prompt": "a", "max_tokens": 100, "stream": True}
        alone = (await server.http.post("/v1/completions", json=body)).text
        crowd = await asyncio.gather(*(server.http.post("/v1/completions", json=body) for _ in range(32)))
    texts = {"".join(json.loads(e[6:])["choices"][0]["text"] for e in a.text.split("\n\n")[:-2]) for a in crowd}
    assert len(texts) == 1
    assert len(texts.pop()) == 100
    assert alone.count("data: ") > 50
    assert max(answer.text.count("data: ") for answer in crowd) < alone.count("data: ") / 2
