import pytest

from cluster.errors import (
    DeadlineError,
    EngineDeadError,
    InvalidRequestError,
    OutriderError,
    OverloadedError,
    RequestError,
    UnavailableError,
)
from cluster.types import (
    FinishReason,
    Request,
    RequestOutput,
    SamplingParams,
    SpeculationParams,
    SpeculationStats,
    TokenLogprobs,
)
from deployments import wire


def test_a_call_comes_back_as_it_was() -> None:
    sampling = SamplingParams(max_tokens=5, seed=2**64 - 1, logit_bias=((3, -1.5),), bad_words=((1, 2),), stop=("x",))
    request = Request(
        request_id="r-0",
        prompt_token_ids=tuple(range(300)),
        sampling=sampling,
        speculation=SpeculationParams(num_speculative_tokens=0),
        cache_salt="t|s",
    )
    call = wire.GenerateCall(requests=(request, request), timeout_s=1.5)
    assert wire.decode_call(wire.encode(call)) == call


def test_a_call_of_another_version_is_refused() -> None:
    with pytest.raises(UnavailableError):
        wire.decode_call(wire.encode(wire.GenerateCall(requests=(), version=99)))


def test_outputs_of_a_choice_come_back_as_one_delta() -> None:
    logprobs = TokenLogprobs(token_id=7, logprob=-0.25, rank=2, top=((7, -0.25), (8, -1.0)))
    stats = SpeculationStats(num_rounds=3, num_drafts=2, num_draft_tokens=6, accepted_per_draft=(1, 1))
    outputs = [
        RequestOutput(request_id="r", text="a", token_ids=(7,), logprobs=(logprobs,), prompt_logprobs=(None, logprobs)),
        RequestOutput(
            request_id="r", text="ж", token_ids=(8, 9), num_output_tokens=3, finish_reason=FinishReason.STOP,
            stop_reason="s", speculation=stats, num_cached_tokens=4, num_prompt_tokens=5,
        ),
    ]  # fmt: skip
    batch = wire.Batch((wire.delta(3, outputs),))
    (delta,) = wire.decode_batch(wire.encode(batch)).deltas
    assert (delta.index, delta.text, delta.token_ids, delta.num_output_tokens) == (3, "aж", (7, 8, 9), 3)
    assert (delta.finish_reason, delta.stop_reason, delta.speculation) == (FinishReason.STOP, "s", stats)
    assert [wire.unpack_logprobs(entry) for entry in delta.logprobs] == [logprobs]
    assert delta.prompt_logprobs is not None
    assert delta.prompt_logprobs[0] is None


def test_a_plain_delta_is_small() -> None:
    output = RequestOutput(request_id="chatcmpl-" + "x" * 40, text=" the", token_ids=(262,), num_output_tokens=5)
    assert len(wire.encode(wire.Batch((wire.delta(0, [output]),)))) < 40


@pytest.mark.parametrize(
    ("error", "kind", "status"),
    [
        (InvalidRequestError("bad", param="n", code="c"), InvalidRequestError, 400),
        (DeadlineError("late"), DeadlineError, 408),
        (OverloadedError("full", retry_after_s=7.5), OverloadedError, 429),
        (UnavailableError("gone"), UnavailableError, 503),
        (EngineDeadError("secret"), UnavailableError, 503),
        (OutriderError("secret"), RequestError, 500),
    ],
)
def test_errors_arrive_as_what_they_were(error: OutriderError, kind: type[RequestError], status: int) -> None:
    back = wire.error_of(wire.failure_of(error))
    assert type(back) is kind
    assert back.status == status
    assert "secret" not in back.message
    if isinstance(error, RequestError):
        assert (back.message, back.param, back.code) == (error.message, error.param, error.code)
    if isinstance(back, OverloadedError):
        assert back.retry_after_s == 7.5
