"""What an answer under attack is worth: the same as undisturbed, one clear error, a broken connection, or wrong."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from tests.chaos.production.calls import Call, Spoken


class Result(StrEnum):
    """Of one request.

    - same: as undisturbed.
    - hung_up: the client left, and what it had was the beginning of the right text.
    - unready: a probe said that no work can be taken; that is its job.
    - error: one clear error, and nothing wrong before it.
    - cut: the connection broke, or the proxy answered for a gateway that was gone.
    - wrong: everything else; this is what must never happen.
    """

    SAME = "same"
    HUNG_UP = "hung_up"
    UNREADY = "unready"
    ERROR = "error"
    CUT = "cut"
    WRONG = "wrong"


@dataclass(slots=True, kw_only=True)
class Answer:
    """What a client saw.

    Attributes:
        status: HTTP status; None where none came.
        form: of a whole answer, from `stable`.
        spoken: what came of a stream.
        errors: error bodies, in a stream or as the whole answer.
        num_done: how often a stream said `[DONE]`.
        is_streamed: it was asked for in pieces.
        has_left: the client hung up.
        broken: how the connection ended, where it did not end well.
        raw: an answer that is not in our form.
    """

    status: int | None = None
    form: object = None
    spoken: Spoken = field(default_factory=Spoken)
    errors: list[Mapping[str, Any]] = field(default_factory=list)
    num_done: int = 0
    is_streamed: bool = False
    has_left: bool = False
    broken: str | None = None
    raw: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What became of one request.

    Attributes:
        result: the judgement.
        cause: of anything but a full answer; requests of one cause count together.
        detail: for whoever looks into it.
    """

    result: Result
    cause: str = ""
    detail: str = ""


def judge(call: Call, expected: object, answer: Answer) -> Verdict:
    """What the answer to a call is worth.

    Args:
        call: what was asked for.
        expected: `stable` of the undisturbed answer.
        answer: what the client saw.
    """
    if isinstance(expected, Spoken) and not answer.spoken.is_beginning_of(expected):
        return Verdict(result=Result.WRONG, cause="another text", detail=_difference(expected, answer.spoken))
    if answer.has_left:
        return Verdict(result=Result.HUNG_UP)
    if answer.broken is not None or answer.raw is not None:
        cause = answer.broken or f"{answer.status} of the proxy"
        return Verdict(result=Result.CUT, cause=cause, detail=answer.raw or "")
    if answer.is_streamed and answer.status == 200:
        return _judge_stream(expected, answer)
    return _judge_whole(call, expected, answer)


def _judge_whole(call: Call, expected: object, answer: Answer) -> Verdict:
    if answer.form == expected:
        return Verdict(result=Result.SAME)
    if answer.errors:
        return _clear(call, answer)
    return Verdict(result=Result.WRONG, cause="another answer", detail=f"{answer.form!r:.300}")


def _judge_stream(expected: object, answer: Answer) -> Verdict:
    if answer.num_done > 1 or len(answer.errors) > 1:
        return Verdict(result=Result.WRONG, cause="something after the end", detail=f"{answer.errors!r:.300}")
    if answer.num_done == 0:
        return Verdict(result=Result.CUT, cause="a stream ended without [DONE]")
    if answer.errors:
        code = answer.errors[0].get("code")
        return Verdict(result=Result.ERROR, cause=f"event: {code}", detail=str(answer.errors[0].get("message")))
    if answer.spoken != expected:
        assert isinstance(expected, Spoken)
        return Verdict(result=Result.WRONG, cause="another ending", detail=_difference(expected, answer.spoken))
    return Verdict(result=Result.SAME)


def _clear(call: Call, answer: Answer) -> Verdict:
    error = answer.errors[0]
    if not {"message", "type", "code"} <= error.keys() or (answer.status or 0) < 400:
        return Verdict(result=Result.WRONG, cause="an error of another form", detail=f"{error!r:.300}")
    cause, detail = f"{answer.status}: {error['code']}", str(error["message"])
    is_probe = call.is_probe and answer.status == 503
    return Verdict(result=Result.UNREADY if is_probe else Result.ERROR, cause=cause, detail=detail)


def _difference(expected: Spoken, got: Spoken) -> str:
    """Where two answers part."""
    for index, said in sorted(got.choices.items()):
        wanted = expected.choices.get(index)
        if wanted is None:
            return f"choice {index} was not asked for"
        if wanted != said:
            at = next((i for i, (a, b) in enumerate(zip(wanted.text, said.text, strict=False)) if a != b), None)
            if at is None:
                return f"choice {index}: {len(said.text)} of {len(wanted.text)} characters, end {said.end}"
            return f"choice {index} at {at}: {said.text[at : at + 40]!r} instead of {wanted.text[at : at + 40]!r}"
    return f"choices {sorted(got.choices)}, counts {got.counts} instead of {expected.counts}"
