import pytest

from cluster.errors import RequestError
from cluster.types import GRAMMAR_FAILED, FinishReason, RequestOutput, SpeculationStats
from deployments.responses import Choice, speculative_decoding
from deployments.wire import delta
from tests.deployments.conftest import Serve
from tests.deployments.fake_engine import FakeEngine
from tests.deployments.http_helpers import MESSAGES, events_of

pytestmark = pytest.mark.anyio


def read_as_aiperf(body: dict[str, object]) -> dict[int, int] | None:
    """Check `metrics.speculative_decoding` as AIPerf's record does; the sparse histogram, or None without a payload."""
    metrics = body.get("metrics")
    payload = metrics.get("speculative_decoding") if isinstance(metrics, dict) else None
    if payload is None:
        return None
    histogram = payload["acceptance_histogram"]
    assert len(histogram) == payload["num_spec_tokens"] + 1
    assert sum(histogram) == payload["num_spec_steps"] > 0
    accepted = sum(count * steps for count, steps in enumerate(histogram))
    assert accepted == payload["num_accepted_draft_tokens"] <= payload["num_draft_tokens"]
    assert payload["mean_acceptance_length"] == pytest.approx(1 + accepted / payload["num_spec_steps"])
    assert payload["draft_acceptance_rate"] == pytest.approx(accepted / payload["num_draft_tokens"])
    return {count: steps for count, steps in enumerate(histogram) if steps}


async def test_aiperf_reads_acceptance_from_whole_answers_and_from_the_usage_chunk(serve: Serve) -> None:
    body = {"messages": MESSAGES, "max_tokens": 9}
    stream = {"stream": True, "stream_options": {"include_usage": True}}
    async with serve() as server:
        whole = (await server.http.post("/v1/chat/completions", json=body)).json()
        events = events_of(await server.http.post("/v1/chat/completions", json=body | stream))
    assert read_as_aiperf(whole) == read_as_aiperf(events[-1]) == {2: 3}
    assert [read_as_aiperf(event) for event in events[:-1]] == [None] * (len(events) - 1)


async def test_timing_siblings_are_consistent(serve: Serve) -> None:
    async with serve(engine=FakeEngine(step_s=0.01)) as server:
        body = {"messages": MESSAGES, "max_tokens": 12}
        metrics = (await server.http.post("/v1/chat/completions", json=body)).json()["metrics"]
    assert metrics["time_to_first_token_ms"] >= 10
    assert metrics["generation_time_ms"] >= 20
    assert metrics["mean_itl_ms"] == pytest.approx(metrics["generation_time_ms"] / 11, abs=0.01)
    assert 0 < metrics["tokens_per_second"] < 12 / 0.03


async def test_a_request_that_never_drafted_has_timing_but_no_speculation_payload(serve: Serve) -> None:
    async with serve() as server:
        body = {"messages": MESSAGES, "max_tokens": 9, "speculation": {"mode": "off"}}
        answer = (await server.http.post("/v1/chat/completions", json=body)).json()
    assert read_as_aiperf(answer) is None
    assert answer["metrics"]["tokens_per_second"] > 0


def test_the_histogram_is_padded_to_the_limit_in_force() -> None:
    stats = SpeculationStats(
        num_rounds=4, num_drafts=3, num_draft_tokens=6, num_accepted_tokens=3, accepted_per_draft=(1, 1, 1)
    )
    payload = speculative_decoding(stats, 7)
    assert payload["acceptance_histogram"] == [1, 1, 1, 0, 0, 0, 0, 0]
    assert read_as_aiperf({"metrics": {"speculative_decoding": payload}}) == {0: 1, 1: 1, 2: 1}


def test_a_form_that_cannot_be_followed_any_further_is_the_requests_fault() -> None:
    output = RequestOutput(request_id="r", finish_reason=FinishReason.ERROR, stop_reason=GRAMMAR_FAILED)
    with pytest.raises(RequestError) as caught:
        Choice(0).add(delta(0, [output]))
    assert (caught.value.status, caught.value.code) == (400, GRAMMAR_FAILED)


@pytest.mark.parametrize(
    ("reason", "status"), [(FinishReason.ERROR, 500), (FinishReason.ABORT, 503), (FinishReason.DEADLINE, 408)]
)
def test_an_answer_that_did_not_finish_has_the_status_of_its_reason(reason: FinishReason, status: int) -> None:
    with pytest.raises(RequestError) as caught:
        Choice(0).add(delta(0, [RequestOutput(request_id="r", finish_reason=reason)]))
    assert caught.value.status == status
