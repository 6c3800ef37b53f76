"""The verifier's spans: one for each choice of a traced request, with the time of its phases and what drafts did."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from opentelemetry.trace import Span, StatusCode

from cluster.telemetry import tracing_attributes as attr
from cluster.telemetry.tracing import Attributes, Tracing, pack_context, unpack_context
from cluster.types import (
    GRAMMAR_FAILED,
    ChoiceRecord,
    FinishReason,
    Request,
    RequestOutput,
    Role,
    SpeculationStats,
)


@dataclass(slots=True, kw_only=True)
class _Open:
    """A choice in flight."""

    span: Span
    arrival_s: float
    first_token_s: float | None = None


class ChoiceSpans:
    """The spans of one verifier. Bounded by what is in flight; not thread safe.

    Args:
        tracing: the verifier's.
        model: name of the target.
    """

    def __init__(self, tracing: Tracing, *, model: str) -> None:
        self._tracing, self._model = tracing, model
        self._open: dict[str, _Open] = {}

    @property
    def num_open(self) -> int:
        """Spans that have not ended."""
        return len(self._open)

    def begin(self, requests: tuple[Request, ...], trace: bytes) -> tuple[Request, ...]:
        """Begin a span for each choice of a call.

        Args:
            requests: stamped with their arrival.
            trace: context of the gateway's span; empty for none.

        Returns:
            The requests, each with the context of its own span for drafters.
        """
        parent = unpack_context(trace)
        if parent is None:
            return requests
        traced = []
        for request in requests:
            span = self._tracing.start(
                attr.VERIFIER_SPAN,
                parent=parent,
                start_s=request.arrival_s,
                attributes={
                    attr.REQUEST_ID: request.request_id,
                    attr.REQUEST_MODEL: self._model,
                    attr.PROMPT_TOKENS: len(request.prompt_token_ids),
                    attr.RESUMED_TOKENS: len(request.output_token_ids),
                    attr.DOMAIN: request.domain,
                },
            )
            self._open[request.request_id] = _Open(span=span, arrival_s=request.arrival_s)
            traced.append(replace(request, trace=pack_context(span)))
        return tuple(traced)

    def record_outputs(self, outputs: Iterable[RequestOutput], now_s: float, role: Role) -> None:
        """What a round emitted; choices without a span are ignored."""
        if not self._open:
            return
        for output in outputs:
            choice = self._open.get(output.request_id)
            if choice is None:
                continue
            if output.token_ids and choice.first_token_s is None:
                choice.first_token_s = now_s
            if output.finish_reason is not None:
                del self._open[output.request_id]
                self._end(choice, output, now_s, role)

    def fail(self, requests: Sequence[Request], kind: str) -> None:
        """A call ends with an error: so do its choices that are in flight."""
        for request in requests:
            choice = self._open.pop(request.request_id, None)
            if choice is not None:
                choice.span.set_attribute(attr.ERROR_TYPE, kind)
                choice.span.set_status(StatusCode.ERROR)
                choice.span.end()

    def drop(self, request_id: str) -> None:
        """The reader of a choice is gone; unknown ids are ignored."""
        choice = self._open.pop(request_id, None)
        if choice is not None:
            choice.span.set_attribute(attr.FINISH_REASON, FinishReason.ABORT.value)
            choice.span.end()

    def _end(self, choice: _Open, output: RequestOutput, now_s: float, role: Role) -> None:
        span, record = choice.span, output.record or ChoiceRecord()
        phases = (
            (attr.QUEUE_EVENT, attr.QUEUE_S, choice.arrival_s),
            (attr.PREFILL_EVENT, attr.PREFILL_S, record.first_scheduled_s),
            (attr.DECODE_EVENT, attr.DECODE_S, choice.first_token_s),
        )
        ends = (*(begin_s for _, _, begin_s in phases[1:]), now_s)
        for (event, name, begin_s), end_s in zip(phases, ends, strict=True):
            if begin_s is not None:
                span.add_event(event, timestamp=self._tracing.wall_ns(begin_s))
                span.set_attribute(name, (now_s if end_s is None else end_s) - begin_s)
        span.set_attributes(_end_attributes(output, record, role))
        if output.finish_reason is FinishReason.ERROR:
            failed = output.stop_reason == GRAMMAR_FAILED
            span.set_attribute(attr.ERROR_TYPE, GRAMMAR_FAILED if failed else "invalid_logits")
            span.set_status(StatusCode.ERROR)
        span.end(self._tracing.wall_ns(now_s))


def _end_attributes(output: RequestOutput, record: ChoiceRecord, role: Role) -> Attributes:
    assert output.finish_reason is not None
    stats = output.speculation or SpeculationStats()
    return {
        attr.FINISH_REASON: output.finish_reason.value,
        attr.OUTPUT_TOKENS: output.num_output_tokens,
        attr.CACHED_TOKENS: output.num_cached_tokens,
        attr.ROLE: role.value,
        attr.PREEMPTIONS: record.num_preemptions,
        attr.SPEC_ROUNDS: stats.num_rounds,
        attr.SPEC_DRAFTS: stats.num_drafts,
        attr.SPEC_DRAFT_TOKENS: stats.num_draft_tokens,
        attr.SPEC_ACCEPTED_TOKENS: stats.num_accepted_tokens,
        attr.SPEC_SOURCES: record.draft_sources,
    }
