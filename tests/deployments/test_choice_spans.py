from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from cluster.clock import ManualClock
from cluster.telemetry.tracing import Tracing, pack_context
from cluster.telemetry.tracing_config import TracingConfig
from cluster.types import GRAMMAR_FAILED, ChoiceRecord, FinishReason, Request, RequestOutput, Role, SamplingParams
from deployments.choice_spans import ChoiceSpans


class Traced:
    """A verifier's spans, kept in memory."""

    def __init__(self) -> None:
        self.clock, self._exporter = ManualClock(110.0), InMemorySpanExporter()
        config = TracingConfig(endpoint="http://unused:1", export_interval_s=60.0)
        self.tracing = Tracing(config, component="verifier", replica="v", clock=self.clock, exporter=self._exporter)
        self.spans = ChoiceSpans(self.tracing, model="m")

    def begin(self, *names: str) -> tuple[Request, ...]:
        sampling = SamplingParams(max_tokens=8, seed=1)
        requests = tuple(
            Request(request_id=name, prompt_token_ids=(1, 2), sampling=sampling, arrival_s=100.0) for name in names
        )
        return self.spans.begin(requests, pack_context(self.tracing.start("gateway")))

    def ended(self) -> list[ReadableSpan]:
        self.tracing.flush()
        return list(self._exporter.get_finished_spans())


@pytest.fixture
def traced() -> Iterator[Traced]:
    traced = Traced()
    yield traced
    traced.tracing.stop()


def test_the_phases_of_a_choice_are_events_with_their_times(traced: Traced) -> None:
    traced.begin("a")
    traced.spans.record_outputs([RequestOutput(request_id="a", token_ids=(5,))], 104.0, Role.SPECULATIVE)
    last = RequestOutput(
        request_id="a",
        token_ids=(6,),
        finish_reason=FinishReason.STOP,
        record=ChoiceRecord(first_scheduled_s=101.0, num_preemptions=2, draft_sources=("ngram", "drafter")),
    )
    traced.spans.record_outputs([last], 110.0, Role.BATCH)
    (span,) = traced.ended()
    assert span.attributes is not None and span.start_time is not None
    assert [(event.name, round((event.timestamp - span.start_time) / 1e9)) for event in span.events] == [
        ("outrider.queue", 0),
        ("outrider.prefill", 1),
        ("outrider.decode", 4),
    ]
    assert [span.attributes[f"outrider.{phase}_s"] for phase in ("queue", "prefill", "decode")] == [1.0, 3.0, 6.0]
    assert span.attributes["outrider.role"] == "batch"
    assert span.attributes["outrider.preemptions"] == 2
    assert span.attributes["outrider.spec.sources"] == ("ngram", "drafter")
    assert traced.spans.num_open == 0


def test_a_choice_whose_reader_left_ends_as_aborted_and_an_end_that_follows_is_ignored(traced: Traced) -> None:
    traced.begin("a")
    traced.spans.drop("a")
    traced.spans.drop("a")
    late = RequestOutput(request_id="a", finish_reason=FinishReason.ABORT)
    traced.spans.record_outputs([late], 101.0, Role.SPECULATIVE)
    (span,) = traced.ended()
    assert span.attributes is not None and span.attributes["outrider.finish_reason"] == "abort"
    assert span.status.is_unset


@pytest.mark.parametrize(("stop_reason", "kind"), [(None, "invalid_logits"), (GRAMMAR_FAILED, "grammar_failed")])
def test_a_choice_that_cannot_go_on_says_why(traced: Traced, stop_reason: str | None, kind: str) -> None:
    traced.begin("a")
    output = RequestOutput(request_id="a", finish_reason=FinishReason.ERROR, stop_reason=stop_reason)
    traced.spans.record_outputs([output], 101.0, Role.SPECULATIVE)
    (span,) = traced.ended()
    assert span.attributes is not None and span.attributes["error.type"] == kind


def test_an_error_of_the_call_ends_the_choices_that_are_in_flight(traced: Traced) -> None:
    requests = traced.begin("a", "b")
    last = RequestOutput(request_id="a", token_ids=(5,), finish_reason=FinishReason.LENGTH)
    traced.spans.record_outputs([last], 101.0, Role.SPECULATIVE)
    traced.spans.fail(requests, "EngineDeadError")
    done, failed = traced.ended()
    assert done.status.is_unset and not failed.status.is_ok and not failed.status.is_unset
    assert failed.attributes is not None and failed.attributes["error.type"] == "EngineDeadError"


def test_a_call_without_a_context_has_no_spans_and_stays_as_it_is(traced: Traced) -> None:
    requests = traced.begin("a")
    for trace in (b"", b"too short", b"\0" * 25):
        assert traced.spans.begin(requests, trace) is requests
    assert traced.spans.num_open == 1
