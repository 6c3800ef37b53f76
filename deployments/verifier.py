"""The verifier, without Ray: one engine, its queue and its metrics. The Serve replica is in `verifier_replica`."""

from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import msgspec

from autoscaling.types import ReplicaReport
from cluster.clock import Clock, MonotonicClock
from cluster.engine.step_time import StepTimes
from cluster.errors import EngineDeadError, OutriderError, OverloadedError, UnavailableError
from cluster.grammar.compiler import GrammarCompiler
from cluster.routing.types import Domain
from cluster.telemetry import names
from cluster.telemetry.cost_recorder import Allocation, CostRecorder
from cluster.telemetry.prometheus import EngineRecorder, MetricSet
from cluster.types import DrafterStats, Request, RequestOutput, Role, StepStats
from deployments import wire
from deployments.admission import Admission
from deployments.engine_loop import EngineLike, EngineLoop
from deployments.layout import LAYOUT_KINDS, Layout
from deployments.load_report import LoadMeter
from deployments.mailbox import Mailbox, stream_interval
from deployments.matchers import MatcherMaker, Matchers
from deployments.replica_resources import Holding
from deployments.tracing import choice_spans_for
from deployments.verifier_config import VerifierConfig

if TYPE_CHECKING:
    from cluster.telemetry.tracing import Tracing
    from deployments.choice_spans import ChoiceSpans

MAX_REMEMBERED_ABORTS = 1024
"""Aborts may overtake their calls; this many are remembered."""


class ServedEngine(EngineLike, Protocol):
    """An engine and the constants that clients are told."""

    model_id: str
    fingerprint: str
    max_model_len: int
    vocab_size: int
    numerics: str
    dtype: str
    grammars: GrammarCompiler

    @property
    def kv_tax_tokens(self) -> int:
        """KV capacity in tokens that is withheld for speculation now."""
        ...

    @property
    def step_times(self) -> StepTimes | None:
        """How long rounds take, fitted while serving; None before the first fit."""
        ...


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
        holding: what the replica is paid for, from now on.
        tracing: makes spans of the choices of traced requests; None for none.
        on_death: called once the engine has stopped by an error, and every open call was told.
    """

    def __init__(
        self,
        config: VerifierConfig,
        build_engine: Callable[[], ServedEngine],
        *,
        replica: str = "0",
        clock: Clock | None = None,
        drafting: DraftingLike | None = None,
        holding: Holding | None = None,
        tracing: "Tracing | None" = None,
        on_death: Callable[[], None] | None = None,
    ) -> None:
        self._drafting, self._tracing = drafting, tracing
        self._spans: ChoiceSpans | None = None
        self._config, self._build_engine, self._replica = config, build_engine, replica
        self._clock = clock or MonotonicClock()
        holding = holding or Holding()
        self._allocation = Allocation(config.cost, holding.resources, self._clock.now_s(), holding.energy)
        self._admission, self._load = Admission(config.admission, self._clock), LoadMeter()
        self._loop = EngineLoop(self._build, self._on_step, on_death)
        self._role = Role.SPECULATIVE
        self._flip_s: float | None = None
        self._calls: dict[str, tuple[tuple[Request, ...], Mailbox]] = {}
        self._aborted: OrderedDict[str, None] = OrderedDict()

    async def start(self) -> None:
        """Build the engine and start its loop."""
        await self._loop.start()
        self._matchers = MatcherMaker(self._engine.grammars)
        self._recorder = EngineRecorder(model_name="_".join(self._engine.model_id.split()), engine=self._replica)
        self._costs = CostRecorder(self._recorder.metrics, [domain.value for domain in Domain])
        self._spans = choice_spans_for(self._tracing, self._engine.model_id)
        if self._drafting is not None:
            _record_layout(self._recorder, self._drafting.layout)
        self._recorder.record_role(self._role)

    async def stop(self) -> None:
        """End the loop; open calls fail."""
        await self._loop.stop()

    @property
    def role(self) -> Role:
        """What this verifier does now; it starts speculative."""
        return self._role

    async def set_role(self, role: Role) -> float:
        """Work in another role; returns once it is in force, before the engine's next round.

        Requests that came before are not affected: what runs keeps running, and texts stay what they are.

        Returns:
            Seconds from the call to the effect: the rest of the round in progress, and the change itself.

        Raises:
            EngineDeadError: the engine stopped.
        """
        started_s = self._clock.now_s()
        await self._loop.set_role(role, max_num_seqs=self._config.max_num_seqs(role))
        taken_s = self._clock.now_s() - started_s
        if role is not self._role:
            self._record_spent()
            self._role, self._flip_s = role, taken_s
            self._recorder.record_flip(role, taken_s)
        return taken_s

    def configure(self, config: VerifierConfig) -> None:
        """Take other settings; of them, admission and the interval of streams can change while the engine runs."""
        self._config = config
        self._admission.config = config.admission

    def report(self) -> ReplicaReport:
        """How this verifier does."""
        return self._load.report(
            self._replica,
            self._role,
            self._clock.now_s(),
            step_times=self._engine.step_times,
            kv_tax_tokens=self._engine.kv_tax_tokens,
            flip_s=self._flip_s,
        )

    def card(self) -> bytes:
        """The engine's card, encoded."""
        engine = self._engine
        card = wire.EngineCard(
            model_id=engine.model_id,
            fingerprint=engine.fingerprint,
            max_model_len=engine.max_model_len,
            vocab_size=engine.vocab_size,
            numerics=engine.numerics,
            acceptance=self._config.engine.acceptance,
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
        return "".join(metrics.render() for metrics in self.metric_sets())

    def metric_sets(self) -> tuple[MetricSet, ...]:
        """What the scrape is made of, brought up to date."""
        metrics = self._recorder.metrics
        self._record_spent()
        metrics.set(names.QUEUED_REQUESTS, self._admission.num_requests)
        metrics.set(names.QUEUED_TOKENS, self._admission.num_tokens)
        metrics.set(names.KV_TAX_TOKENS, self._engine.kv_tax_tokens)
        if self._drafting is not None and (stats := self._drafting.stats()) is not None:
            self._recorder.record_drafter(stats)
        return (metrics,) if self._tracing is None else (metrics, self._tracing.metrics)

    async def generate(self, data: bytes) -> AsyncGenerator[bytes, None]:
        """Serve one call: stream items until every choice is finished, or one failure.

        Closing the iterator aborts what still runs, before the next round.
        """
        try:
            call = wire.decode_call(data)
            self._loop.check_alive()
            self._check_model(call)
            requests = self._stamp(call)
            self._admission.admit({r.request_id: len(r.prompt_token_ids) + len(r.output_token_ids) for r in requests})
        except OutriderError as error:
            if isinstance(error, OverloadedError):
                self._recorder.metrics.add(names.ADMISSION_REJECTIONS, 1, error.param or "")
            yield wire.encode(wire.Batch((), wire.refusal_of(error)))
            return
        try:
            if self._spans is not None:
                requests = self._spans.begin(requests, call.trace)
            mailbox = self._open(call.call_id, requests, await self._matchers.matchers(requests))
            while deltas := await mailbox.take():
                yield wire.encode(wire.Batch(deltas))
        except OutriderError as error:
            if self._spans is not None:
                self._spans.fail(requests, type(error).__name__)
            yield wire.encode(wire.Batch((), wire.failure_of(error)))
        finally:
            self._end(call.call_id, requests)

    def _check_model(self, call: wire.GenerateCall) -> None:
        """Refuse tokens of another model: while an application changes its model, gateways and verifiers differ."""
        if call.model not in ("", self._engine.fingerprint):
            raise UnavailableError("gateway and verifier differ in their model; try again", code="model_mismatch")

    def abort(self, call_id: str) -> None:
        """End a call before the next round; an unknown id is remembered, and its call ends when it comes."""
        self._aborted[call_id] = None
        if len(self._aborted) > MAX_REMEMBERED_ABORTS:
            self._aborted.popitem(last=False)
        if call_id in self._calls:
            self._end(call_id, self._calls[call_id][0])

    def _open(self, call_id: str, requests: tuple[Request, ...], matchers: Matchers) -> Mailbox:
        if call_id in self._aborted:
            raise UnavailableError("the request was aborted", code="aborted")
        mailbox = self._loop.submit(requests, self._interval_s, matchers)
        self._calls[call_id] = (requests, mailbox)
        for request in requests:
            self._recorder.record_arrival(request.request_id, request.arrival_s)
            self._load.record_arrival(request)
        return mailbox

    def _end(self, call_id: str, requests: tuple[Request, ...]) -> None:
        """Clear the books of a call; what still runs is aborted. May be called twice."""
        call = self._calls.pop(call_id, None)
        if call is not None:
            self._loop.close(*call)
        for request_id in (request.request_id for request in requests):
            for book in (self._admission.drop, self._recorder.record_drop, self._load.record_drop):
                book(request_id)
            if self._spans is not None:
                self._spans.drop(request_id)

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
        now_s = self._clock.now_s()
        self._recorder.record_step(stats)
        self._costs.record_step(stats, self._role, self._engine.step_times)
        self._recorder.record_outputs(outputs, now_s)
        self._load.record_step(stats, now_s)
        self._load.record_outputs(outputs, now_s)
        if self._spans is not None:
            self._spans.record_outputs(outputs, now_s, self._role)
        for output in outputs:
            if output.token_ids or output.finish_reason is not None:
                self._admission.start(output.request_id)

    def _record_spent(self) -> None:
        self._costs.record_spent(self._allocation.take(self._clock.now_s()), self._role)


def _record_layout(recorder: EngineRecorder, layout: Layout) -> None:
    for kind in LAYOUT_KINDS:
        recorder.metrics.set(names.LAYOUT, kind == layout.kind, kind)
    for kind, tokens_per_s in layout.tokens_per_s:
        recorder.metrics.set(names.LAYOUT_TOKENS_PER_S, tokens_per_s, kind)
