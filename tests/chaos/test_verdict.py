"""What the chaos harness calls right and wrong: it must not pass an answer that is not the undisturbed one."""

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.chaos.production.application import Sizes
from tests.chaos.production.balance import Balance
from tests.chaos.production.calls import CALLS, Call, Spoken, spoken, stable
from tests.chaos.production.clients import Outcome, _take_event
from tests.chaos.production.killer import Kill
from tests.chaos.production.report import NOTICED_S, Report
from tests.chaos.production.verdict import Answer, Result, Verdict, judge

CALL = next(call for call in CALLS if call.name == "sampled")
READY = next(call for call in CALLS if call.name == "ready")
USAGE = {"prompt_tokens": 3, "completion_tokens": 2}
ERROR = {"message": "no replica", "type": "unavailable", "param": None, "code": "no_replica"}


def whole(text: str = "ab", end: str | None = "length") -> dict[str, Any]:
    return {"choices": [{"index": 0, "text": text, "finish_reason": end, "stop_reason": None}], "usage": USAGE}


EXPECTED = stable(CALL, 200, whole())


def streamed(*events: str) -> Answer:
    answer = Answer(status=200, is_streamed=True)
    for event in events:
        _take_event(answer, event)
    return answer


def chunk(text: str, end: str | None = None) -> str:
    return json.dumps({"choices": [{"index": 0, "text": text, "finish_reason": end}]})


COUNTS = '{"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}'
EVENT = '{"error": {"message": "lost", "type": "unavailable", "param": null, "code": "no_replica"}}'
FULL = (chunk("a"), chunk("b", "length"), COUNTS, "[DONE]")


@pytest.mark.parametrize(
    ("events", "result"),
    [
        (FULL, Result.SAME),
        ((chunk("a"), EVENT, "[DONE]"), Result.ERROR),
        (FULL[:3], Result.CUT),
        ((), Result.CUT),
        ((chunk("x"), EVENT, "[DONE]"), Result.WRONG),
        ((chunk("a"), chunk("", "length"), COUNTS, "[DONE]"), Result.WRONG),
        ((chunk("a"), chunk("b", "stop"), COUNTS, "[DONE]"), Result.WRONG),
        ((chunk("a"), chunk("b", "length"), "[DONE]"), Result.WRONG),
        ((chunk("a"), chunk("a"), chunk("b", "length"), COUNTS, "[DONE]"), Result.WRONG),
        ((*FULL, chunk("c")), Result.WRONG),
        ((*FULL, "[DONE]"), Result.WRONG),
        ((chunk("a"), EVENT, EVENT, "[DONE]"), Result.WRONG),
    ],
)
def test_a_stream_is_the_same_or_ends_in_one_clear_error(events: tuple[str, ...], result: Result) -> None:
    assert judge(CALL, EXPECTED, streamed(*events)).result is result


@pytest.mark.parametrize(("text", "result"), [("a", Result.HUNG_UP), ("b", Result.WRONG)])
def test_what_a_client_had_before_it_left_must_be_right_as_well(text: str, result: Result) -> None:
    answer = streamed(chunk(text))
    answer.has_left = True
    assert judge(CALL, EXPECTED, answer).result is result


def test_a_broken_connection_does_not_excuse_a_wrong_beginning() -> None:
    answer = streamed(chunk("x"))
    answer.broken = "ReadError"
    assert judge(CALL, EXPECTED, answer).result is Result.WRONG


@pytest.mark.parametrize(
    ("call", "answer", "result"),
    [
        (CALL, Answer(status=200, form=EXPECTED), Result.SAME),
        (CALL, Answer(status=200, form=spoken([whole("ac")]), spoken=spoken([whole("ac")])), Result.WRONG),
        (CALL, Answer(status=503, errors=[ERROR]), Result.ERROR),
        (READY, Answer(status=503, errors=[ERROR]), Result.UNREADY),
        (READY, Answer(status=500, errors=[ERROR]), Result.ERROR),
        (CALL, Answer(status=503, errors=[{"message": "?"}]), Result.WRONG),
        (CALL, Answer(status=500, raw="Internal Server Error"), Result.CUT),
        (CALL, Answer(status=200, form=("another", "thing")), Result.WRONG),
    ],
)
def test_a_whole_answer_is_the_same_or_one_clear_error(call: Call, answer: Answer, result: Result) -> None:
    assert judge(call, EXPECTED, answer).result is result


def test_a_refusal_has_to_be_the_same_refusal() -> None:
    call = next(call for call in CALLS if call.name == "n = 17")
    refused = Answer(status=400, form=(400, "max_n"), errors=[ERROR | {"code": "max_n"}])
    assert judge(call, (400, "max_n"), refused).result is Result.SAME
    assert judge(call, (400, "other"), refused).result is Result.ERROR


def test_pieces_and_whole_answers_have_one_form() -> None:
    assert streamed(*FULL).spoken == EXPECTED
    assert isinstance(EXPECTED, Spoken)
    assert not spoken([{"choices": [{"index": 1, "text": ""}]}]).is_beginning_of(EXPECTED)


SIZES = Sizes(num_drafters=1, num_verifiers=1, num_gateways=1)
CALM = Balance(
    num_processes={"drafter": 1, "verifier": 1, "controller": 1, "gateway": 1},
    rss_bytes={1: 100 << 20}, num_files={1: 10}, kinds={1: "verifier"}, not_zero={},
)  # fmt: skip


def outcome(result: Result, ended_s: float) -> Outcome:
    verdict = Verdict(result=result, cause="" if result is Result.SAME else "a cause")
    return Outcome(call=CALL, is_streamed=True, began_s=ended_s - 1, ended_s=ended_s, verdict=verdict)


def report(*outcomes: Outcome, after: Balance = CALM, **fields: Any) -> Report:
    values: dict[str, Any] = {
        "title": "t", "command": "c", "about": {}, "sizes": SIZES, "kills": [Kill(kind="gateway", at_s=10.0)],
        "resumes": {}, "not_whole": [], "before": CALM, "left_over": [],
    }  # fmt: skip
    return Report(outcomes=outcomes, after=after, **(values | fields))


@pytest.mark.parametrize(
    ("result", "ended_s", "num_problems"),
    [
        (Result.SAME, 10.5, 0),
        (Result.HUNG_UP, 10.5, 0),
        (Result.UNREADY, 10.5, 0),
        (Result.CUT, 10.5, 0),
        (Result.CUT, 9.5, 1),
        (Result.CUT, 10.5 + NOTICED_S, 1),
        (Result.ERROR, 10.5, 1),
        (Result.WRONG, 10.5, 1),
    ],
)
def test_only_connections_that_broke_with_a_gateway_are_excused(
    result: Result, ended_s: float, num_problems: int
) -> None:
    assert len(report(outcome(result, ended_s)).problems()) == num_problems


def test_a_verifiers_death_excuses_nothing() -> None:
    seen = report(outcome(Result.CUT, 10.5), kills=[Kill(kind="verifier", at_s=10.0)])
    (problem,) = seen.problems()
    assert "dead meanwhile: verifier" in problem


@pytest.mark.parametrize(
    ("after", "what"),
    [
        (replace(CALM, not_zero={"vllm:kv_cache_usage_perc": 0.1}), "vllm:kv_cache_usage_perc stays at 0.1"),
        (replace(CALM, rss_bytes={1: 400 << 20}), "verifier grew by 300 MiB"),
        (replace(CALM, num_files={1: 60}), "verifier has 50 open files more than before"),
        (replace(CALM, num_processes={**CALM.num_processes, "verifier": 2}), "2 processes of kind verifier"),
        (replace(CALM, num_processes={**CALM.num_processes, "ray: idle": 9}), "9 processes more than before"),
    ],
)
def test_leaks_are_problems_and_stand_in_the_report(after: Balance, what: str) -> None:
    seen = report(after=after)
    (problem,) = seen.problems()
    assert problem.startswith(what)
    assert what in seen.markdown()


def test_replicas_that_do_not_come_back_and_processes_left_over_are_problems() -> None:
    assert len(report(not_whole=["verifier"], left_over=["raylet"]).problems()) == 2
