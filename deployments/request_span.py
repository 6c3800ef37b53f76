"""The gateway's span of a request: begun at the edge, told about on the way, and the parent of the verifiers' spans."""

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from opentelemetry.trace import Span, SpanKind, StatusCode
from starlette.datastructures import Headers
from starlette.types import Scope

from cluster.errors import RequestError
from cluster.telemetry import tracing_attributes as attr
from cluster.telemetry.tracing import (
    MAX_TEXT_CHARS,
    Attributes,
    Tracing,
    context_from_headers,
    pack_context,
    traceparent_of,
)
from deployments.prepare import Job
from deployments.responses import Choice, Timing, usage

if TYPE_CHECKING:
    from deployments.edge import RequestContext

OPERATIONS = {
    "/v1/chat/completions": "chat",
    "/v1/chat/speculative-completions": "chat",
    "/v1/completions": "text_completion",
}
"""Paths that get a span, and their `gen_ai.operation.name`."""

CLIENT_GONE = 499


class RequestTracer:
    """Begins spans.

    Args:
        tracing: the gateway's.
        model: name that clients use.

    Attributes:
        metrics: what became of the spans.
    """

    def __init__(self, tracing: Tracing, model: str) -> None:
        self._tracing, self._model = tracing, model
        self.metrics = tracing.metrics

    def begin(self, scope: Scope, context: "RequestContext") -> "RequestSpan | None":
        """The span of a request that has just passed the edge; None on paths without one.

        What the client decided about sampling in its `traceparent` holds.
        """
        operation = OPERATIONS.get(scope["path"])
        if operation is None:
            return None
        headers = Headers(scope=scope)
        span = self._tracing.start(
            f"{operation} {self._model}",
            parent=context_from_headers(headers.get("traceparent"), ",".join(headers.getlist("tracestate"))),
            kind=SpanKind.SERVER,
            start_s=context.start_s,
            attributes={
                attr.OPERATION: operation,
                attr.PROVIDER_NAME: attr.PROVIDER,
                attr.REQUEST_MODEL: self._model,
                attr.REQUEST_ID: context.request_id,
                attr.TENANT: context.tenant,
                attr.HTTP_METHOD: scope["method"],
                attr.URL_PATH: scope["path"],
                attr.URL_SCHEME: scope["scheme"],
            },
        )
        return RequestSpan(span, captures_content=self._tracing.config.capture_content)


class RequestSpan:
    """One request. Of one that is not sampled nothing is kept.

    Args:
        span: begun.
        captures_content: keep texts.

    Attributes:
        captures: texts are kept.
        traceparent: the header that tells a client which span this was.
        trace: context for verifiers; empty where nothing is recorded.
    """

    def __init__(self, span: Span, *, captures_content: bool) -> None:
        self._span, self._is_recorded = span, span.is_recording()
        self.captures = captures_content and self._is_recorded
        self.traceparent, self.trace = traceparent_of(span), pack_context(span)
        self._texts: dict[int, list[str]] = {}
        self._num_chars = 0
        self._has_failed = False

    def note_job(self, job: Job) -> None:
        """What is asked for, and where it goes."""
        if self._is_recorded:
            self._span.set_attributes(_job_attributes(job))
            if self.captures and job.requests[0].sampling.stop:
                self._span.set_attribute(attr.REQUEST_STOP, job.requests[0].sampling.stop)

    def note_input(self, messages: Iterable[tuple[str, str]]) -> None:
        """The role and text of each message; only where contents are captured."""
        if self.captures:
            self._span.set_attribute(attr.INPUT_MESSAGES, _as_messages(messages))

    def note_text(self, index: int, text: str) -> None:
        """A piece of a choice's answer; only where contents are captured."""
        if self.captures and text and self._num_chars < MAX_TEXT_CHARS:
            self._num_chars += len(text)
            self._texts.setdefault(index, []).append(text)

    def note_resume(self, reason: str, result: str) -> None:
        """The stream from a verifier broke; the request goes on at another one, or not."""
        self._span.add_event(attr.RESUME_EVENT, {attr.RESUME_REASON: reason, attr.RESUME_RESULT: result})

    def note_answer(self, job: Job, choices: Sequence[Choice], timing: Timing) -> None:
        """What the answer came to, complete or not."""
        if not self._is_recorded:
            return
        counts = usage(job, choices)
        found: dict[str, str | int | float | Sequence[str]] = {
            attr.RESPONSE_FINISH_REASONS: [each.finish_reason.value for each in choices if each.finish_reason],
            attr.USAGE_INPUT_TOKENS: counts["prompt_tokens"],
            attr.USAGE_OUTPUT_TOKENS: counts["completion_tokens"],
            attr.USAGE_CACHED_TOKENS: counts["prompt_tokens_details"]["cached_tokens"],
        }
        if job.stream and timing.first_s is not None:
            found[attr.RESPONSE_FIRST_CHUNK_S] = timing.first_s - timing.start_s
        if self.captures:
            found[attr.OUTPUT_MESSAGES] = json.dumps([self._output(choice) for choice in choices], ensure_ascii=False)
        self._span.set_attributes(found)

    def note_error(self, error: RequestError) -> None:
        """The request failed, perhaps in the middle of its answer."""
        self._fail(error.code or str(error.status), is_ours=error.status >= 500)

    def end(self, *, route: str, status: int) -> None:
        """The request is over.

        Args:
            route: as the framework knows it.
            status: of the answer; 499 where the client hung up.
        """
        self._span.set_attribute(attr.HTTP_ROUTE, route)
        if status == CLIENT_GONE:
            self._fail("client_gone", is_ours=False)
        else:
            self._span.set_attribute(attr.HTTP_STATUS, status)
            if status >= 400:
                self._fail(str(status), is_ours=status >= 500)
        self._span.end()

    def _output(self, choice: Choice) -> dict[str, object]:
        text = "".join(self._texts.get(choice.index, ()) or choice.texts)
        reason = choice.finish_reason.value if choice.finish_reason else ""
        return {**_message("assistant", text), "finish_reason": reason}

    def _fail(self, kind: str, *, is_ours: bool) -> None:
        if self._has_failed:
            return
        self._has_failed = True
        self._span.set_attribute(attr.ERROR_TYPE, kind)
        if is_ours:  # What a client did wrong is no error of the server's.
            self._span.set_status(StatusCode.ERROR)


def _job_attributes(job: Job) -> Attributes:
    first = job.requests[0]
    sampling = first.sampling
    found: dict[str, str | bool | int | float | Sequence[str]] = {
        attr.REQUEST_MODEL: job.model,
        attr.RESPONSE_MODEL: job.model,
        attr.RESPONSE_ID: job.response_id,
        attr.REQUEST_STREAM: job.stream,
        attr.REQUEST_MAX_TOKENS: sampling.max_tokens,
        attr.REQUEST_TEMPERATURE: sampling.temperature,
        attr.REQUEST_TOP_P: sampling.top_p,
        attr.REQUEST_SEED: _signed(sampling.seed),
        attr.POOL: job.route.pool.value,
        attr.ROUTING_REASON: job.route.reason.value,
        attr.DOMAIN: first.domain,
    }
    if sampling.top_k:
        found[attr.REQUEST_TOP_K] = sampling.top_k
    if sampling.frequency_penalty:
        found[attr.REQUEST_FREQUENCY_PENALTY] = sampling.frequency_penalty
    if sampling.presence_penalty:
        found[attr.REQUEST_PRESENCE_PENALTY] = sampling.presence_penalty
    if job.choices_per_prompt != 1:
        found[attr.REQUEST_CHOICES] = job.choices_per_prompt
    return found


def _signed(seed: int) -> int:
    """A 64-bit seed as spans hold integers; sent as it stands in the span it gives the same text again."""
    return seed - (1 << 64) if seed >= 1 << 63 else seed


def _as_messages(messages: Iterable[tuple[str, str]]) -> str:
    """Messages in the conventions' form, cut where their texts together become too long."""
    left, shown = MAX_TEXT_CHARS, []
    for role, text in messages:
        shown.append(_message(role, text[:left]))
        left -= min(left, len(text))
    return json.dumps(shown, ensure_ascii=False)


def _message(role: str, text: str) -> dict[str, object]:
    return {"role": role, "parts": [{"type": "text", "content": text}]}
