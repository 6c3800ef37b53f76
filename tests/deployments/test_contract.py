"""Schemathesis against the real app on a real socket: whatever is sent, no answer is an accident."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import schemathesis
import uvicorn
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error

from tests.deployments.conftest import _serve
from tests.deployments.fake_engine import FakeEngine


class _Server:
    """The app under uvicorn, in a thread with an event loop of its own."""

    def __init__(self) -> None:
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._started = threading.Event()
        self.port = 0

    def start(self) -> None:
        self._thread.start()
        assert self._started.wait(20)

    def stop(self) -> None:
        self._uvicorn.should_exit = True
        self._thread.join(20)

    async def _run(self) -> None:
        async with _serve(engine=FakeEngine(tokens_per_step=64)) as server:
            config = uvicorn.Config(server.app, host="127.0.0.1", port=0, log_level="error", lifespan="off")  # type: ignore[arg-type]
            self._uvicorn = uvicorn.Server(config)
            serving = asyncio.ensure_future(self._uvicorn.serve())
            while not self._uvicorn.started:  # noqa: ASYNC110 -- uvicorn has no event for it
                await asyncio.sleep(0.01)
            self.port = self._uvicorn.servers[0].sockets[0].getsockname()[1]
            self._started.set()
            await serving


@pytest.fixture(scope="module")
def api_schema() -> Iterator[Any]:
    server = _Server()
    server.start()
    yield schemathesis.openapi.from_url(f"http://127.0.0.1:{server.port}/openapi.json")
    server.stop()


@pytest.mark.engine
@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
def test_no_input_makes_a_server_error(api_schema: Any, mode: GenerationMode) -> None:
    statuses = set()
    for result in api_schema.get_all_operations():
        operation = result.ok()

        @settings(
            max_examples=25, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def check(case: Any) -> None:
            response = case.call(timeout=20)
            case.validate_response(response, checks=[not_a_server_error])
            statuses.add(response.status_code)
            if response.status_code >= 400:
                assert set(response.json()) == {"error"}

        with suppress(Unsatisfiable):  # routes without input have no wrong input
            check()
    assert 400 in statuses
    assert mode is GenerationMode.NEGATIVE or 200 in statuses
