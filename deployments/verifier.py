"""The verifier: one engine, its queue, its metrics, and the Serve replica around them."""

import asyncio
import os
import sys
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from cluster.clock import Clock, MonotonicClock
from cluster.config import DraftConfig, EngineConfig
from cluster.errors import EngineDeadError, OutriderError, OverloadedError, UnavailableError
from cluster.telemetry import names
from cluster.telemetry.prometheus import EngineRecorder
from cluster.types import DrafterStats, Request, RequestOutput, StepStats
from deployments import wire
from deployments.admission import Admission, AdmissionConfig
from deployments.discovery import watch
from deployments.drafting import drafting_for
from deployments.engine_loop import EngineLike, EngineLoop
from deployments.layout import LAYOUT_KINDS, DrafterMode, Layout
from deployments.logs import configure_logging
from deployments.mailbox import Mailbox, stream_interval

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle

SWITCH_INTERVAL_S = 0.001
"""The engine's thread holds the interpreter most of the time; the default of 5 ms would delay each delivery as much."""

MAX_REMEMBERED_ABORTS = 1024
"""Aborts may overtake their calls; this many are remembered."""


class ServedEngine(EngineLike, Protocol):
    """An engine and the constants that clients are told."""

    model_id: str
    max_model_len: int
    vocab_size: int
    numerics: str
    dtype: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifierConfig:
    """Settings of a verifier replica.

    Attributes:
        engine: the engine's own.
        admission: bounds of the queue.
        stream_interval_s: longest time between two items of a stream, reached when many streams run.
        ping_timeout_s: a round that takes longer makes the replica unhealthy.
        drafter: who drafts; `auto` is measured at start-up.
        draft: the draft model, resolved: `draft.model` is None only where there is none.
        num_verifiers: replicas of this deployment, for sharing a node's cores.
        num_drafters: drafter replicas, for the same.
    """

    engine: EngineConfig = field(default_factory=EngineConfig)
    admission: AdmissionConfig = field(default_factory=AdmissionConfig)
    stream_interval_s: float = 0.3
    ping_timeout_s: float = 30.0
    drafter: DrafterMode = "ngram"
    draft: DraftConfig = field(default_factory=DraftConfig)
    num_verifiers: int = 1
    num_drafters: int = 1


class DraftingLike(Protocol):
    """What is told about who drafts."""

    @property
    def layout(self) -> Layout:
        """The layout in force; known once the engine is built."""
        ...

    def stats(self) -> DrafterStats | None:
        """What happened with drafter actors; None where none is used."""
        ...


class VerifierCore:
    """Everything a verifier does, without Ray.

    Args:
        config: settings.
        build_engine: makes the engine, in the engine's thread.
        replica: label of this replica in metrics.
        clock: drives deadlines and latencies; the engine must use one with the same origin.
        drafting: who drafts, for the card and metrics.
    """

    def __init__(
        self,
        config: VerifierConfig,
        build_engine: Callable[[], ServedEngine],
        *,
        replica: str = "0",
        clock: Clock | None = None,
        drafting: DraftingLike | None = None,
    ) -> None:
        self._drafting = drafting
        self._config, self._build_engine, self._replica = config, build_engine, replica
        self._clock = clock or MonotonicClock()
        self._admission = Admission(config.admission, self._clock)
        self._loop = EngineLoop(self._build, self._on_step)
        self._calls: dict[str, tuple[tuple[Request, ...], Mailbox]] = {}
        self._aborted: OrderedDict[str, None] = OrderedDict()

    async def start(self) -> None:
        """Build the engine and start its loop."""
        await self._loop.start()
        self._recorder = EngineRecorder(model_name="_".join(self._engine.model_id.split()), engine=self._replica)
        if self._drafting is not None:
            _record_layout(self._recorder, self._drafting.layout)

    async def stop(self) -> None:
        """End the loop; open calls fail."""
        await self._loop.stop()

    def card(self) -> bytes:
        """The engine's card, encoded."""
        engine = self._engine
        card = wire.EngineCard(
            model_id=engine.model_id,
            max_model_len=engine.max_model_len,
            vocab_size=engine.vocab_size,
            numerics=engine.numerics,
            dtype=engine.dtype,
            num_speculative_tokens=self._config.engine.num_speculative_tokens,
        )
        if self._drafting is not None:
            layout = self._drafting.layout
            card = msgspec.structs.replace(card, layout=layout.kind, layout_reason=layout.reason)
        return wire.encode(card)

    async def ping(self, timeout_s: float | None = None) -> None:
        """Wait for a live engine round.

        Raises:
            EngineDeadError: the engine stopped or hangs.
        """
        try:
            await self._loop.ping(timeout_s or self._config.ping_timeout_s)
        except TimeoutError:
            raise EngineDeadError("the engine loop hangs") from None

    def metrics(self) -> str:
        """This replica's scrape."""
        metrics = self._recorder.metrics
        metrics.set(names.QUEUED_REQUESTS, self._admission.num_requests)
        metrics.set(names.QUEUED_TOKENS, self._admission.num_tokens)
        if self._drafting is not None and (stats := self._drafting.stats()) is not None:
            self._recorder.record_drafter(stats)
        return metrics.render()

    async def generate(self, data: bytes) -> AsyncGenerator[bytes, None]:
        """Serve one call: stream items until every choice is finished, or one failure.

        Closing the iterator aborts what still runs, before the next round.
        """
        try:
            call = wire.decode_call(data)
            requests = self._stamp(call)
            self._admission.admit({r.request_id: len(r.prompt_token_ids) for r in requests})
        except OutriderError as error:
            if isinstance(error, OverloadedError):
                self._recorder.metrics.add(names.ADMISSION_REJECTIONS, 1, error.param or "")
            yield wire.encode(wire.Batch((), wire.failure_of(error)))
            return
        try:
            mailbox = self._open(call.call_id, requests)
            while deltas := await mailbox.take():
                yield wire.encode(wire.Batch(deltas))
        except OutriderError as error:
            yield wire.encode(wire.Batch((), wire.failure_of(error)))
        finally:
            self._end(call.call_id, requests)

    def abort(self, call_id: str) -> None:
        """End a call before the next round; an unknown id is remembered, and its call ends when it comes."""
        self._aborted[call_id] = None
        if len(self._aborted) > MAX_REMEMBERED_ABORTS:
            self._aborted.popitem(last=False)
        if call_id in self._calls:
            self._end(call_id, self._calls[call_id][0])

    def _open(self, call_id: str, requests: tuple[Request, ...]) -> Mailbox:
        if call_id in self._aborted:
            raise UnavailableError("the request was aborted", code="aborted")
        mailbox = self._loop.submit(requests, self._interval_s)
        self._calls[call_id] = (requests, mailbox)
        for request in requests:
            self._recorder.record_arrival(request.request_id, request.arrival_s)
        return mailbox

    def _end(self, call_id: str, requests: tuple[Request, ...]) -> None:
        """Clear the books of a call; what still runs is aborted. May be called twice."""
        call = self._calls.pop(call_id, None)
        if call is not None:
            self._loop.close(*call)
        for request in requests:
            self._admission.drop(request.request_id)
            self._recorder.record_drop(request.request_id)

    def _interval_s(self) -> float:
        return stream_interval(self._loop.num_streams, self._config.stream_interval_s)

    def _stamp(self, call: wire.GenerateCall) -> tuple[Request, ...]:
        now_s = self._clock.now_s()
        deadline_s = None if call.timeout_s is None else now_s + call.timeout_s
        return tuple(replace(request, arrival_s=now_s, deadline_s=deadline_s) for request in call.requests)

    def _build(self) -> ServedEngine:
        self._engine = self._build_engine()
        return self._engine

    def _on_step(self, stats: StepStats, outputs: Sequence[RequestOutput]) -> None:
        self._recorder.record_step(stats)
        self._recorder.record_outputs(outputs, self._clock.now_s())
        for output in outputs:
            if output.token_ids or output.finish_reason is not None:
                self._admission.start(output.request_id)


class VerifierReplica:
    """The Serve deployment around `VerifierCore`.

    Args:
        config: settings.
        drafter: handle to the drafter deployment; None where there is none.
    """

    async def __init__(  # type: ignore[misc]  # Serve awaits it
        self, config: VerifierConfig, drafter: "DeploymentHandle[Any] | None" = None
    ) -> None:
        from ray import serve

        configure_logging()
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        # Ray starts an actor with OMP_NUM_THREADS = its num_cpus, which is an accounting number here.
        os.environ["OMP_NUM_THREADS"] = str(config.engine.num_threads or len(os.sched_getaffinity(0)))
        replica = serve.get_replica_context().replica_id.unique_id
        self._drafting = await drafting_for(config, drafter, name=replica)
        self._core = VerifierCore(config, self._drafting.build_engine, replica=replica, drafting=self._drafting)
        await self._core.start()
        # Only where an actor is used: an unused one hears nothing, and so does nothing.
        if drafter is not None and self._drafting.layout.kind == "actor":
            self._watch = asyncio.create_task(watch(drafter, self._drafting.set_drafters))

    async def generate(self, data: bytes) -> AsyncIterator[bytes]:
        """Serve one call; see `VerifierCore.generate`."""
        async with aclosing(self._core.generate(data)) as stream:
            async for item in stream:
                yield item

    async def abort(self, call_id: str) -> None:
        """End a call; see `VerifierCore.abort`."""
        self._core.abort(call_id)

    async def card(self) -> bytes:
        """The engine's card, encoded."""
        return self._core.card()

    async def ping(self, timeout_s: float) -> None:
        """Wait for a live engine round."""
        await self._core.ping(timeout_s)

    async def metrics(self) -> str:
        """This replica's scrape."""
        return self._core.metrics()

    async def check_health(self) -> None:
        """Raise when the engine cannot serve; Serve then replaces this replica."""
        await self._core.ping()


def _record_layout(recorder: EngineRecorder, layout: Layout) -> None:
    for kind in LAYOUT_KINDS:
        recorder.metrics.set(names.LAYOUT, kind == layout.kind, kind)
    for kind, tokens_per_s in layout.tokens_per_s:
        recorder.metrics.set(names.LAYOUT_TOKENS_PER_S, tokens_per_s, kind)
