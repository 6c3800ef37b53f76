"""How the gateway reaches verifiers: a small protocol, one side over Serve handles, one in the same process."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Protocol

from cluster.errors import EngineDeadError, UnavailableError
from cluster.routing.prefix import prefix_keys
from cluster.routing.types import RouteSnapshot
from cluster.telemetry.prometheus import MetricSet
from cluster.types import Role
from deployments import wire
from deployments.pool_view import VIEW, RouterRecorder

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle

    from deployments.verifier import VerifierCore
    from deployments.verifier_replica import VerifierReplica

logger = logging.getLogger(__name__)

METRICS_TIMEOUT_S = 5.0
ABORT_TIMEOUT_S = 10.0


class VerifierClient(Protocol):
    """What the gateway asks of verifiers."""

    def generate(self, call: wire.GenerateCall, pool: Role | None = None) -> AsyncGenerator[bytes, None]:
        """Encoded stream items of one call; closing the generator aborts it.

        Args:
            call: what to generate.
            pool: where it should go; another one takes it where that one is empty. None for any.
        """
        ...

    def has_lost(self, call_id: str) -> bool:
        """True when the replica that a call went to seems to hang."""
        ...

    async def card(self) -> wire.EngineCard:
        """Constants of the engine."""
        ...

    async def ping(self, timeout_s: float) -> None:
        """Wait for a live engine round.

        Raises:
            UnavailableError: there is none.
        """
        ...

    async def metrics(self) -> list[str]:
        """The scrape of every replica."""
        ...


class LocalClient:
    """A verifier in this process.

    Args:
        core: the verifier; started.
    """

    def __init__(self, core: "VerifierCore") -> None:
        self._core = core

    async def generate(self, call: wire.GenerateCall, pool: Role | None = None) -> AsyncGenerator[bytes, None]:
        """Encoded stream items of one call; there is one verifier, whatever the pool."""
        async with aclosing(self._core.generate(wire.encode(call))) as stream:
            async for item in stream:
                yield item

    def has_lost(self, call_id: str) -> bool:
        """False: there is no other one to go to."""
        return False

    async def card(self) -> wire.EngineCard:
        """Constants of the engine."""
        return wire.decode_card(self._core.card())

    async def ping(self, timeout_s: float) -> None:
        """Wait for a live engine round."""
        try:
            await self._core.ping(timeout_s)
        except EngineDeadError as error:
            raise UnavailableError("no live engine") from error

    async def metrics(self) -> list[str]:
        """The scrape of the one replica."""
        return [self._core.metrics()]


class ServeClient:
    """Verifiers behind a Serve handle.

    Args:
        handle: of the verifier deployment.
        others: of other deployments, whose metrics are scraped as well.
        replica: label of this gateway in the router's metrics.
    """

    def __init__(
        self,
        handle: "DeploymentHandle[VerifierReplica]",
        others: Sequence["DeploymentHandle[Any]"] = (),
        replica: str = "0",
    ) -> None:
        self._others, self._router = tuple(others), RouterRecorder(VIEW, replica)
        # Each configured handle costs the controller a long poll: make them once.
        self._handle = handle
        self._generate = handle.options(method_name="generate", stream=True)
        self._card = handle.options(method_name="card")
        self._ping = handle.options(method_name="ping")
        self._aborts: set[asyncio.Task[object]] = set()

    async def generate(self, call: wire.GenerateCall, pool: Role | None = None) -> AsyncGenerator[bytes, None]:
        """Encoded stream items of one call, from the replica that `VerifierRouter` ranks first."""
        stream: Any = self._generate.remote(
            wire.encode(call),
            pool=None if pool is None else pool.value,
            prefix=prefix_keys(call.requests[0].prompt_token_ids, call.requests[0].cache_salt),
            num_tokens=sum(len(each.prompt_token_ids) + each.sampling.max_tokens for each in call.requests),
            call_id=call.call_id,
        )
        finished = failed = False
        try:
            async for item in stream:
                yield item
            finished = True
        except Exception as error:
            failed = True
            raise _failure(error) from error
        finally:
            VIEW.forget(call.call_id)
            if not finished and not failed:
                stream.cancel()
            if not finished:  # Also where the replica is lost: it may only be out of reach.
                self._abort(call.call_id)

    def has_lost(self, call_id: str) -> bool:
        """True when the replica that a call went to has said nothing for long, while another one speaks."""
        return VIEW.has_lost(call_id)

    def _abort(self, call_id: str) -> None:
        """Tell every replica that a call is over.

        Serve's own cancellation misses a replica whose stream is between two items: the user's generator then runs on
        (Ray 2.60, `call_user_generator` is left suspended at its yield). A broadcast passes no queue.
        """
        task = asyncio.ensure_future(_told(self._handle.broadcast("abort", call_id)))
        self._aborts.add(task)
        task.add_done_callback(self._aborts.discard)

    async def card(self) -> wire.EngineCard:
        """Constants of the engine; waits for a replica."""
        return wire.decode_card(await self._card.remote())

    async def ping(self, timeout_s: float) -> None:
        """Wait for a live round of one replica."""
        try:
            await asyncio.wait_for(_awaited(self._ping.remote(timeout_s)), timeout_s)
        except Exception as error:
            raise UnavailableError("no live engine") from error

    async def metrics(self) -> list[str]:
        """The scrapes of the replicas that answer in time, and the router's."""
        scrapes = await asyncio.gather(*map(scrape, (self._handle, *self._others)))
        return [text for texts in scrapes for text in texts] + [self._router.render()]

    def router_metrics(self) -> MetricSet:
        """The router's metrics, brought up to date."""
        return self._router.refresh()

    def snapshot(self) -> RouteSnapshot:
        """The pools, as this process's router knows them."""
        return VIEW.snapshot()


async def scrape(handle: "DeploymentHandle[Any]", *args: object) -> list[str]:
    """What the replicas of one deployment answer to `metrics` in time; nothing while none runs."""
    try:
        response = handle.broadcast("metrics", *args)
        results = await response.results_async(timeout_s=METRICS_TIMEOUT_S, return_exceptions=True)
    except Exception as error:  # noqa: BLE001 -- one deployment without replicas must not hide the other's metrics
        logger.debug("no metrics: %s", error)
        return []
    return [result for result in results if isinstance(result, str) and result]


def _failure(error: Exception) -> UnavailableError:
    """What a failed call means for its request."""
    from ray.serve.exceptions import DeploymentUnavailableError

    if isinstance(error, DeploymentUnavailableError):
        return UnavailableError("no replica can take the request; try again", code="no_replica")
    logger.warning("a verifier was lost: %s", error)
    return UnavailableError("no replica could finish the request; try again", code="replica_lost")


async def _told(response: Any) -> None:
    """Wait until a broadcast has reached those that live."""
    try:
        await response.results_async(timeout_s=ABORT_TIMEOUT_S, return_exceptions=True)
    except Exception as error:  # noqa: BLE001 -- a replica that hangs, or is gone, hears of it in no other way either
        logger.debug("an abort did not reach every replica: %s", error)


async def _awaited(response: Any) -> None:
    await response
