"""A gateway that is about to go: what it says, what it finishes, and how the rest ends."""

import asyncio
import re
from collections.abc import Callable

import pytest

from cluster.clock import ManualClock
from cluster.telemetry import names
from cluster.telemetry.prometheus import MetricSet
from deployments.draining import Drain, DrainingError
from deployments.gateway_members import Members, Membership
from tests.deployments.conftest import Serve, Server
from tests.deployments.fake_engine import FakeEngine
from tests.deployments.http_helpers import error_of, events_of

pytestmark = pytest.mark.anyio

BODY = {"prompt": "ab", "max_tokens": 6}
SLOW = {"prompt": "ab", "max_tokens": 500, "ignore_eos": True}
"""Two seconds or more, of an engine whose rounds take this long."""
STEP_S = 0.015


async def until(holds: Callable[[], bool]) -> None:
    for _ in range(5000):
        if holds():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it never came true")


async def until_active(server: Server, count: int) -> None:
    await until(lambda: server.service.num_active == count)


def is_idle(server: Server) -> bool:
    """The verifier has nothing left of the calls that were cut."""
    running = re.findall(r"^vllm:num_requests_running{.*} (\S+)$", server.core.metrics(), re.MULTILINE)
    return [float(value) for value in running] == [0.0]


async def test_a_gateway_that_goes_is_alive_but_not_ready_and_says_so_in_its_scrape(serve: Serve) -> None:
    async with serve() as server:
        assert (await server.http.get("/ready")).status_code == 200
        assert 'outrider_gateway_draining{gateway="0"} 0' in (await server.http.get("/metrics")).text
        server.service.drain.begin(30, refuse=False)
        answer = await server.http.get("/ready")
        assert (answer.status_code, error_of(answer)["code"]) == (503, "draining")
        assert 29 <= int(answer.headers["retry-after"]) <= 30
        assert (await server.http.get("/health")).status_code == 200
        assert 'outrider_gateway_draining{gateway="0"} 1' in (await server.http.get("/metrics")).text
        server.service.drain.revoke()
        assert (await server.http.get("/ready")).status_code == 200


@pytest.mark.parametrize("stream", [True, False])
async def test_where_others_take_new_work_a_latecomer_is_served(serve: Serve, stream: bool) -> None:
    async with serve() as server:
        server.service.drain.begin(30, refuse=False)
        assert (await server.http.post("/v1/completions", json=BODY | {"stream": stream})).status_code == 200


@pytest.mark.parametrize("stream", [True, False])
async def test_where_nobody_else_does_new_work_is_refused_and_told_when_to_return(serve: Serve, stream: bool) -> None:
    async with serve() as server:
        server.service.drain.begin(7, refuse=True)
        answer = await server.http.post("/v1/completions", json=BODY | {"stream": stream})
        assert (answer.status_code, error_of(answer)["code"]) == (503, "draining")
        assert 6 <= int(answer.headers["retry-after"]) <= 7


async def test_what_was_open_finishes_within_the_grace_time(serve: Serve) -> None:
    async with serve(engine=FakeEngine(step_s=0.002)) as server:
        whole = (await server.http.post("/v1/completions", json=BODY | {"max_tokens": 300})).json()["choices"][0]
        work = asyncio.create_task(server.http.post("/v1/completions", json=BODY | {"max_tokens": 300, "stream": True}))
        await until_active(server, 1)
        server.service.drain.begin(30, refuse=True)
        chunks = events_of(await work)
        assert "".join(choice["text"] for chunk in chunks for choice in chunk["choices"]) == whole["text"]


async def test_a_stream_that_is_open_at_the_end_of_the_grace_time_ends_with_one_error(serve: Serve) -> None:
    async with serve(engine=FakeEngine(step_s=STEP_S)) as server:
        work = asyncio.create_task(server.http.post("/v1/completions", json=SLOW | {"stream": True}))
        await until_active(server, 1)
        server.service.drain.begin(0.05, refuse=True)
        chunks = events_of(await work)
        assert [chunk["error"]["code"] for chunk in chunks if "error" in chunk] == ["draining"]
        assert "error" in chunks[-1]
        assert server.service.num_active == 0
        await until(lambda: is_idle(server))


async def test_a_whole_answer_that_is_not_there_by_then_is_a_503(serve: Serve) -> None:
    async with serve(engine=FakeEngine(step_s=STEP_S)) as server:
        work = asyncio.create_task(server.http.post("/v1/completions", json=SLOW))
        await until_active(server, 1)
        server.service.drain.begin(0.05, refuse=True)
        answer = await work
        assert (answer.status_code, error_of(answer)["code"]) == (503, "draining")
        await until(lambda: is_idle(server))


@pytest.fixture
def drain() -> Drain:
    return Drain(MetricSet(names.GATEWAY_METRICS, {"gateway": "a"}), ManualClock())


async def test_work_that_is_cut_has_ended_when_the_error_is_raised(drain: Drain) -> None:
    ended = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    drain.begin(0.0, refuse=False)
    with pytest.raises(DrainingError):
        await drain.bounded(work())
    assert ended == [True]


async def test_a_gateway_goes_when_serve_counts_it_no_more_and_stays_when_it_is_back(drain: Drain) -> None:
    membership = Membership("a", drain, drain_timeout_s=60)
    membership.hear(frozenset())  # It has just started.
    assert not drain.is_draining
    membership.hear(frozenset({"a", "b"}))
    membership.hear(frozenset({"b"}))
    assert drain.is_draining
    assert not drain.refuses
    membership.hear(frozenset({"a", "b"}))
    assert not drain.is_draining


async def test_a_server_that_was_told_to_end_stays_so_whatever_serve_says(drain: Drain) -> None:
    membership = Membership("a", drain, drain_timeout_s=60)
    drain.begin(5, refuse=True)
    membership.hear(frozenset({"a"}))
    assert drain.refuses


def test_a_watcher_of_the_members_hears_what_was_known_and_every_change() -> None:
    members, heard = Members(), list[frozenset[str]]()
    members.publish(frozenset({"a"}))
    members.watch(heard.append)
    members.publish(frozenset({"b"}))
    assert heard == [frozenset({"a"}), frozenset({"b"})]
