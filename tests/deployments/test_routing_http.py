import math
from collections.abc import AsyncGenerator

import pytest

from cluster.types import Role
from deployments import cli_explain, wire
from deployments.auth import KeyRing
from deployments.client import LocalClient
from deployments.routing import Router
from deployments.service import GatewaySettings
from tests.deployments.conftest import Serve, Server
from tests.deployments.http_helpers import MESSAGES
from tests.deployments.test_routing import POOLS

pytestmark = pytest.mark.anyio

CHAT, COMPLETIONS, SEED = "/v1/chat/completions", "/v1/completions", "/v1/chat/speculative-completions"
SNAPSHOT = "/v1/routing/snapshot"


class _WatchedClient(LocalClient):
    """Remembers the pool of each call."""

    pools: list[Role | None]

    async def generate(self, call: wire.GenerateCall, pool: Role | None = None) -> AsyncGenerator[bytes, None]:
        self.pools.append(pool)
        async for item in super().generate(call, pool):
            yield item


def _watch(server: Server) -> list[Role | None]:
    client = _WatchedClient(server.core)
    client.pools = []
    server.service.client = client
    return client.pools


async def test_the_wanted_pool_goes_along_with_the_call_and_into_the_headers(serve: Serve) -> None:
    async with serve() as server:
        server.service.router = Router("learned", 512, lambda: POOLS)
        pools = _watch(server)
        for domain, pool in (("structured_json", Role.SPECULATIVE), ("creative_writing", Role.BATCH)):
            body = {"messages": MESSAGES, "max_tokens": 3, "domain": domain}
            for stream in (False, True):
                answer = await server.http.post(CHAT, json=body | {"stream": stream})
                assert answer.headers["x-outrider-pool"] == pool.value
                assert answer.headers["x-outrider-routing-reason"] == "goodput"
                assert pools.pop() is pool
        seen = server.engine.seen
        assert [request.domain for request in seen] == ["structured_json"] * 2 + ["creative_writing"] * 2
        assert {request.speculation.mode.value for request in seen} == {"auto"}
        scrape = (await server.http.get("/metrics")).text
    assert 'outrider_route_decisions_total{gateway="0",pool="batch",reason="goodput"} 2.0' in scrape


async def test_the_readiness_probe_goes_to_any_pool(serve: Serve) -> None:
    async with serve() as server:
        pools = _watch(server)
        assert (await server.http.get("/ready")).status_code == 200
    assert pools == [None]


async def test_the_policy_of_the_settings_rules_the_openai_routes_and_the_seed_service_keeps_its_own(
    serve: Serve,
) -> None:
    for policy, reason in (("learned", "no_choice"), ("rules", "high_entropy_domain")):
        async with serve(settings=GatewaySettings(routing=policy)) as server:  # type: ignore[arg-type]
            body = {"prompt": "a", "max_tokens": 3, "domain": "creative_writing", "temperature": 1.0}
            answer = await server.http.post(COMPLETIONS, json=body)
            assert answer.headers["x-outrider-routing-reason"] == reason
            seeded = await server.http.post(SEED, json=body)
            assert seeded.json()["routing_reason"] == "high_entropy_domain"
            assert seeded.json()["tokens_proposed"] == 0


async def test_the_snapshot_shows_what_requests_are_routed_by(serve: Serve) -> None:
    async with serve(settings=GatewaySettings(routing="rules")) as server:
        fresh = cli_explain._parse((await server.http.get(SNAPSHOT)).text, "--url", "x")
        assert (fresh.policy, fresh.snapshot.age_s, fresh.snapshot.pools) == ("rules", math.inf, {})
        server.service.router = Router("rules", 512, lambda: POOLS)
        await server.http.post(SEED, json={"prompt": "a", "max_tokens": 9, "domain": "rag_summary"})
        with server.service.active():
            known = cli_explain._parse((await server.http.get(SNAPSHOT)).text, "--url", "x")
    assert known.snapshot == server.service.router.snapshot(1)
    assert (known.snapshot.num_active, known.snapshot.acceptance_rate, known.snapshot.age_s) == (1, 0.5, 0.0)


async def test_the_snapshot_needs_a_key_where_there_are_keys(serve: Serve) -> None:
    async with serve(keys=KeyRing.of(["secret-key"])) as server:
        assert (await server.http.get(SNAPSHOT)).status_code == 401
        headers = {"Authorization": "Bearer secret-key"}
        assert (await server.http.get(SNAPSHOT, headers=headers)).status_code == 200
