"""Who wants padding gets it: the request first, then the server's setting."""

import pytest

from deployments.service import GatewaySettings
from tests.deployments.conftest import Serve
from tests.deployments.fake_engine import FakeEngine
from tests.deployments.http_helpers import MESSAGES, events_of

pytestmark = pytest.mark.anyio

BODIES = {
    "/v1/chat/completions": {"messages": MESSAGES, "max_tokens": 40, "stream": True},
    "/v1/completions": {"prompt": "a", "max_tokens": 40, "stream": True},
}


@pytest.mark.parametrize("path", list(BODIES))
@pytest.mark.parametrize(
    ("default", "wish", "is_padded"),
    [(False, None, False), (False, True, True), (True, None, True), (True, False, False)],
)
async def test_the_request_decides_and_else_the_server(
    serve: Serve, path: str, default: bool, wish: bool | None, is_padded: bool
) -> None:
    options = {"include_usage": True} if wish is None else {"include_usage": True, "include_obfuscation": wish}
    async with serve(settings=GatewaySettings(stream_obfuscation=default)) as server:
        events = events_of(await server.http.post(path, json=BODIES[path] | {"stream_options": options}))
    assert {"obfuscation" in event for event in events} == {is_padded}


async def test_sizes_do_not_tell_how_many_tokens_a_round_accepted(serve: Serve) -> None:
    async def sizes(tokens_per_step: int) -> set[int]:
        body = BODIES["/v1/completions"] | {"stream_options": {"include_obfuscation": True}, "max_tokens": 3 * 40}
        async with serve(engine=FakeEngine(step_s=0.002, tokens_per_step=tokens_per_step)) as server:
            answer = await server.http.post("/v1/completions", json=body, headers={"x-request-id": "same-length"})
        # The last chunk carries the request's metrics as well.
        return {len(event) for event in answer.text.split("\n\n")[:-3]}

    assert await sizes(1) == await sizes(3) == await sizes(12)
    assert len(await sizes(3)) == 1
