import asyncio
import json
import logging
from typing import Any

import pytest

from deployments.auth import KeyRing
from deployments.limits import Limits
from deployments.service import GatewaySettings
from tests.deployments.conftest import Serve, Server
from tests.deployments.fake_engine import FakeEngine
from tests.deployments.http_helpers import MESSAGES, error_of

pytestmark = pytest.mark.anyio

CHAT = "/v1/chat/completions"


class HangingUpClient:
    """Speaks ASGI to the app, and hangs up when told to."""

    def __init__(self, server: Server, body: dict[str, Any]) -> None:
        self._app: Any = server.app
        self._body = json.dumps(body).encode()
        self._sent_body = False
        self.hang_up = asyncio.Event()
        self.chunks: list[bytes] = []
        self.status: int | None = None

    async def run(self) -> None:
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": "POST",
            "path": CHAT,
            "raw_path": CHAT.encode(),
            "query_string": b"",
            "root_path": "",
            "scheme": "http",
            "headers": [(b"content-type", b"application/json")],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 2),
        }
        await self._app(scope, self._receive, self._send)

    async def _receive(self) -> dict[str, Any]:
        if not self._sent_body:
            self._sent_body = True
            return {"type": "http.request", "body": self._body, "more_body": False}
        await self.hang_up.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        elif message.get("body"):
            self.chunks.append(message["body"])


async def _until(condition: Any, timeout_s: float = 5.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 -- conditions come from another thread
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_hangs_up_frees_its_choices_within_a_round(serve: Serve, stream: bool) -> None:
    engine = FakeEngine(step_s=0.01, tokens_per_step=1)
    async with serve(engine=engine) as server:
        client = HangingUpClient(server, {"messages": MESSAGES, "n": 3, "max_tokens": 450, "stream": stream})
        task = asyncio.ensure_future(client.run())
        await _until(lambda: client.chunks if stream else engine.num_steps > 3)
        client.hang_up.set()
        await asyncio.wait_for(task, 5)
        before = engine.num_steps
        await server.core.ping()
        await server.core.ping()
        assert engine.requests == {}
        assert engine.num_steps - before <= 3
        metrics = (await server.http.get("/metrics")).text
        assert 'vllm:request_success_total{engine="0",finished_reason="abort",model_name="fake/bytes"} 3.0' in metrics
        assert 'vllm:num_requests_running{engine="0",model_name="fake/bytes"} 0.0' in metrics
        assert 'outrider_http_active_requests{gateway="0"} 0.0' in metrics
        assert 'outrider_queued_requests{engine="0",model_name="fake/bytes"} 0.0' in metrics


@pytest.mark.parametrize("stream", [True, False])
async def test_cancelling_the_request_task_aborts_too(serve: Serve, stream: bool) -> None:
    engine = FakeEngine(step_s=0.01, tokens_per_step=1)
    async with serve(engine=engine) as server:
        client = HangingUpClient(server, {"messages": MESSAGES, "max_tokens": 450, "stream": stream})
        task = asyncio.ensure_future(client.run())
        await _until(lambda: engine.num_steps > 3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.core.ping()
        assert engine.requests == {}


async def test_a_client_that_hangs_up_while_queued_leaves_the_queue(serve: Serve) -> None:
    engine = FakeEngine(step_s=0.01, tokens_per_step=1, max_num_seqs=1)
    async with serve(engine=engine) as server:
        first = asyncio.ensure_future(server.http.post(CHAT, json={"messages": MESSAGES, "max_tokens": 60}))
        await _until(lambda: engine.requests)
        client = HangingUpClient(server, {"messages": MESSAGES, "max_tokens": 450, "stream": True})
        task = asyncio.ensure_future(client.run())
        await _until(lambda: len(engine.requests) == 2)
        client.hang_up.set()
        await task
        await server.core.ping()
        assert len(engine.requests) <= 1
        assert (await first).status_code == 200


@pytest.mark.parametrize("path", ["/metrics", "/ready", "/version", "/v1/models", "/openapi.json", "/docs", "/nothing"])
async def test_with_keys_everything_but_health_needs_one(serve: Serve, path: str) -> None:
    async with serve(keys=KeyRing.of(["correct-key"])) as server:
        assert (await server.http.get("/health")).status_code == 200
        refused = await server.http.get(path)
        wrong = await server.http.get(path, headers={"authorization": "Bearer wrong-key"})
        good = await server.http.get(path, headers={"authorization": "Bearer correct-key"})
    for answer in (refused, wrong):
        assert answer.status_code == 401
        assert error_of(answer)["type"] == "authentication_error"
    assert good.status_code == (404 if path == "/nothing" else 200)


async def test_tenants_and_client_salts_get_prefix_cache_namespaces_of_their_own(serve: Serve) -> None:
    async with serve(keys=KeyRing.of(["key-number-1", "key-number-2"])) as server:
        for key in ("key-number-1", "key-number-2"):
            for salt in ({}, {"cache_salt": "s"}):
                headers = {"authorization": f"Bearer {key}"}
                await server.http.post(CHAT, json={"messages": MESSAGES, "max_tokens": 1} | salt, headers=headers)
        salts = [request.cache_salt for request in server.engine.seen]
    assert len(set(salts)) == 4
    assert not any("key-number" in salt for salt in salts)


async def test_request_ids_come_back_and_name_the_answer(serve: Serve) -> None:
    async with serve() as server:
        body = {"messages": MESSAGES, "max_tokens": 1}
        given = await server.http.post(CHAT, json=body, headers={"x-request-id": "abc-1"})
        again = await server.http.post(CHAT, json=body, headers={"x-request-id": "abc-1"})
        strange = await server.http.post(CHAT, json=body, headers={"x-request-id": "a b" * 200})
        engine_ids = {request.request_id for request in server.engine.seen}
    assert given.headers["x-request-id"] == "abc-1"
    assert given.json()["id"] == again.json()["id"] == "chatcmpl-abc-1"
    assert len(strange.headers["x-request-id"]) == 32
    assert len(engine_ids) == 3


async def test_too_many_or_too_large_headers_are_413(serve: Serve) -> None:
    async with serve(settings=GatewaySettings(limits=Limits(max_headers=20, max_header_bytes=1000))) as server:
        many = await server.http.get("/version", headers={f"x-{n}": "1" for n in range(30)})
        large = await server.http.get("/version", headers={"x-large": "x" * 1000})
        fine = await server.http.get("/version")
    assert [many.status_code, large.status_code, fine.status_code] == [413, 413, 200]
    assert error_of(many)["code"] == "max_headers"


async def test_an_accident_is_a_500_without_its_reason(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    async with serve() as server:

        async def broken() -> list[str]:
            raise RuntimeError("secret path /etc/x")

        server.service.client.metrics = broken  # type: ignore[method-assign]
        answer = await server.http.get("/metrics")
    assert answer.status_code == 500
    assert error_of(answer)["message"] == "internal error"
    assert "secret" in caplog.text


async def test_the_access_log_has_ids_and_counts_but_no_prompt(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="deployments")
    async with serve() as server:
        body = {"messages": [{"role": "user", "content": "my-secret-prompt"}], "max_tokens": 4}
        for stream in (False, True):
            await server.http.post(CHAT, json=body | {"stream": stream}, headers={"x-request-id": "log-1"})
    lines = [record.__dict__["fields"] for record in caplog.records if record.message == "request"]
    assert [line["request_id"] for line in lines] == ["log-1", "log-1"]
    for line in lines:
        assert line["route"] == CHAT
        assert line["status"] == 200
        assert line["completion_tokens"] == 4
    assert "my-secret-prompt" not in caplog.text + str(lines)
    assert "The quick" not in caplog.text + str(lines)


async def test_metric_labels_of_unknown_paths_do_not_grow(serve: Serve) -> None:
    async with serve() as server:
        for number in range(5):
            await server.http.get(f"/x{number}")
        text = (await server.http.get("/metrics")).text
    assert 'outrider_http_requests_total{gateway="0",route="unmatched",status="404"} 5.0' in text
