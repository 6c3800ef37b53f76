"""What an answer has to be: gateway and engine in this process, undisturbed, without Ray and without drafts."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import httpx

from cluster.clock import MonotonicClock
from cluster.config import EngineConfig
from cluster.engine.engine import Engine
from deployments.auth import KeyRing
from deployments.client import LocalClient
from deployments.codec import load_tokenizer
from deployments.routes import build_http_app
from deployments.service import GatewaySettings, Service
from deployments.verifier import VerifierCore
from deployments.verifier_config import VerifierConfig

Dtype = Literal["bfloat16", "float32"]

Call = tuple[str, Mapping[str, Any] | None]
"""Path, and the body of a POST; None for a GET."""


def undisturbed(model: Path, calls: Mapping[str, Call], *, dtype: Dtype = "float32") -> dict[str, httpx.Response]:
    """Whole answers, one call after the other; far quicker than another server.

    Args:
        model: folder.
        calls: by name.
        dtype: as the server has it.
    """
    return asyncio.run(_answer(model, calls, dtype))


async def _answer(model: Path, calls: Mapping[str, Call], dtype: Dtype) -> dict[str, httpx.Response]:
    config = EngineConfig(
        model=str(model), dtype=dtype, num_threads=1, kv_cache_tokens=16_384, num_speculative_tokens=0
    )
    async with _serving(config) as http:
        return {
            name: await (http.get(path) if body is None else http.post(path, json=dict(body)))
            for name, (path, body) in calls.items()
        }


@asynccontextmanager
async def _serving(config: EngineConfig) -> AsyncIterator[httpx.AsyncClient]:
    def build() -> Engine:
        return Engine.from_config(config, clock=MonotonicClock())

    core = VerifierCore(VerifierConfig(engine=config, drafter="off"), build)
    await core.start()
    client = LocalClient(core)
    tokenizer, _ = load_tokenizer(config.model, revision=None, cache_dir=None)
    service = Service(
        client=client, card=await client.card(), tokenizer=tokenizer, settings=GatewaySettings(), keys=KeyRing()
    )
    transport = httpx.ASGITransport(app=build_http_app(service))
    try:
        async with httpx.AsyncClient(transport=transport, base_url="http://reference", timeout=None) as http:
            yield http
    finally:
        service.shaper.close()
        await core.stop()
