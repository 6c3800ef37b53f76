"""A gateway over a verifier in this process, with the fake engine behind it."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

import httpx
import pytest

from cluster.grammar.limits import GrammarLimits
from deployments.auth import KeyRing
from deployments.client import LocalClient
from deployments.routes import build_http_app
from deployments.service import GatewaySettings, Service
from deployments.verifier import VerifierCore
from deployments.verifier_config import VerifierConfig
from tests.deployments.fake_engine import ByteTokenizer, FakeEngine


@dataclass(slots=True, kw_only=True)
class Server:
    """What a test may touch."""

    http: httpx.AsyncClient
    engine: FakeEngine
    core: VerifierCore
    service: Service
    app: object


def _serve(
    *,
    engine: FakeEngine | None = None,
    verifier: VerifierConfig | None = None,
    settings: GatewaySettings | None = None,
    keys: KeyRing | None = None,
    tokenizer: ByteTokenizer | None = None,
    grammar: GrammarLimits | None = None,
) -> AbstractAsyncContextManager[Server]:
    @asynccontextmanager
    async def run() -> AsyncIterator[Server]:
        fake = engine or FakeEngine()
        core = VerifierCore(verifier or VerifierConfig(), lambda: fake)
        await core.start()
        client = LocalClient(core)
        service = Service(
            client=client,
            card=await client.card(),
            tokenizer=tokenizer or ByteTokenizer(),
            # A lone verifier in this process does not come back.
            settings=settings or GatewaySettings(max_resumes=0),
            keys=keys or KeyRing(),
            grammar=grammar,
        )
        app = build_http_app(service)
        transport = httpx.ASGITransport(app=app)
        try:
            async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
                yield Server(http=http, engine=fake, core=core, service=service, app=app)
        finally:
            service.shaper.close()
            await core.stop()

    return run()


Serve = Callable[..., AbstractAsyncContextManager[Server]]


@pytest.fixture
def serve() -> Serve:
    return _serve


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
