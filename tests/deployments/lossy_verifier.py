"""A gateway over one verifier in this process whose calls get lost, each in its own way."""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field

import httpx
import msgspec

from cluster.errors import OverloadedError, RequestError, UnavailableError
from cluster.types import Role
from deployments import wire
from deployments.auth import KeyRing
from deployments.client import LocalClient
from deployments.routes import build_http_app
from deployments.service import GatewaySettings, Service
from deployments.verifier import VerifierCore
from deployments.verifier_config import VerifierConfig
from tests.deployments.fake_engine import ByteTokenizer, FakeEngine

HANG = "hang"


def lost() -> RequestError:
    return UnavailableError("gone", code="replica_lost")


def busy() -> RequestError:
    return OverloadedError("full", retry_after_s=60.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """What becomes of one call: after so many items, of one token each, it fails, hangs, or (None) just ends."""

    num_items: int = 0
    end: RequestError | str | None = field(default_factory=lost)


async def tokens_of(stream: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """The stream with one token in each item, however the rounds were gathered; a token has one character here."""
    async with aclosing(stream):
        async for data in stream:
            batch = wire.decode_batch(data)
            if not batch.deltas:
                yield data
            for delta in batch.deltas:
                for i, token_id in enumerate(delta.token_ids):
                    is_last = i == len(delta.token_ids) - 1
                    part = msgspec.structs.replace(
                        delta,
                        text=delta.text[i],
                        token_ids=(token_id,),
                        logprobs=delta.logprobs[i : i + 1],
                        num_output_tokens=delta.num_output_tokens - len(delta.token_ids) + i + 1,
                        finish_reason=delta.finish_reason if is_last else None,
                        speculation=delta.speculation if is_last else None,
                        prompt_logprobs=None if i else delta.prompt_logprobs,
                    )
                    yield wire.encode(wire.Batch((part,)))


class LossyClient(LocalClient):
    """A verifier in this process whose calls have a fate each; those behind the last fate are left alone."""

    def __init__(self, core: VerifierCore, fates: list[Fate]) -> None:
        super().__init__(core)
        self._fates = fates
        self.calls: list[wire.GenerateCall] = []
        self.hanging: set[str] = set()
        self.can_tell = True

    async def generate(self, call: wire.GenerateCall, pool: Role | None = None) -> AsyncGenerator[bytes, None]:
        fate = self._fates[len(self.calls)] if len(self.calls) < len(self._fates) else Fate(num_items=1 << 30)
        self.calls.append(call)
        async with aclosing(tokens_of(super().generate(call, pool))) as stream:
            for _ in range(fate.num_items):
                item = await anext(stream, None)
                if item is None:
                    return
                yield item
        if isinstance(fate.end, RequestError):
            raise fate.end
        if fate.end == HANG:
            self.hanging.add(call.call_id)
            await asyncio.sleep(60)

    def has_lost(self, call_id: str) -> bool:
        return self.can_tell and call_id in self.hanging


@dataclass(slots=True, kw_only=True)
class Setting:
    http: httpx.AsyncClient
    engine: FakeEngine
    client: LossyClient
    service: Service

    def resumes(self) -> dict[tuple[str, str], float]:
        pattern = r'^outrider_resumes_total{.*reason="(\w+)",result="(\w+)"} (\S+)$'
        found = re.findall(pattern, self.service.metrics.render(), re.MULTILINE)
        return {(reason, result): float(value) for reason, result, value in found}


@asynccontextmanager
async def serving(
    *fates: Fate, engine: FakeEngine | None = None, max_resumes: int = 3, keep_alive_s: float = 15.0
) -> AsyncIterator[Setting]:
    fake = engine or FakeEngine()
    core = VerifierCore(VerifierConfig(stream_interval_s=0.0), lambda: fake)
    await core.start()
    client = LossyClient(core, list(fates))
    settings = GatewaySettings(max_resumes=max_resumes, keep_alive_s=keep_alive_s)
    service = Service(
        client=client, card=await client.card(), tokenizer=ByteTokenizer(), settings=settings, keys=KeyRing()
    )
    transport = httpx.ASGITransport(app=build_http_app(service))
    try:
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
            yield Setting(http=http, engine=fake, client=client, service=service)
        await core.ping()
        await core.ping()
        assert fake.requests == {}
        assert core._recorder.num_in_flight == core._load.num_in_flight == core._admission.num_requests == 0
    finally:
        service.shaper.close()
        await core.stop()
