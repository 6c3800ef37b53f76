"""A gateway whose verifiers get lost: what clients see, and what the verifiers are asked for."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from cluster.errors import RequestError, UnavailableError
from deployments import resume
from tests.deployments.fake_engine import SCRIPT, FakeEngine
from tests.deployments.http_helpers import MESSAGES, error_of, events_of
from tests.deployments.lossy_verifier import HANG, Fate, busy, serving

pytestmark = pytest.mark.anyio

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resume, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(resume, "LONGEST_PAUSE_S", 0.01)
    monkeypatch.setattr(resume, "CHECK_S", 0.02)
    monkeypatch.setattr(resume, "DEADLINE_GRACE_S", 0.1)


def without_ids(value: Any) -> Any:
    """An answer without what differs between two runs: ids and times."""
    if isinstance(value, dict):
        return {key: without_ids(each) for key, each in value.items() if key not in ("id", "created", "metrics")}
    return [without_ids(each) for each in value] if isinstance(value, list) else value


def joined(events: list[dict[str, Any]]) -> dict[Any, Any]:
    """What a stream says, however it is cut."""
    found: dict[Any, Any] = {"usage": [event["usage"] for event in events if event.get("usage")][-1:]}
    for event in events:
        for choice in event["choices"]:
            known = found.setdefault(choice["index"], {"text": "", "ids": [], "logprobs": [], "ends": []})
            known["text"] += choice["text"]
            known["ids"] += choice.get("token_ids", [])
            known["logprobs"] += (choice["logprobs"] or {}).get("token_logprobs", [])
            known["offsets"] = known.get("offsets", []) + (choice["logprobs"] or {}).get("text_offset", [])
            known["ends"] += [choice["finish_reason"]] * (choice["finish_reason"] is not None)
    return found


WHOLE: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": (CHAT, {"messages": MESSAGES, "max_tokens": 20, "n": 3, "logprobs": True, "top_logprobs": 2}),
    "completion": (COMPLETIONS, {"prompt": ["a", "bc"], "max_tokens": 20, "n": 2, "return_token_ids": True}),
    "echo": (COMPLETIONS, {"prompt": "abc", "max_tokens": 20, "echo": True, "logprobs": 1}),
    "prompt logprobs": (COMPLETIONS, {"prompt": "abc", "max_tokens": 20, "prompt_logprobs": 2}),
}


@pytest.mark.parametrize("name", WHOLE)
async def test_a_whole_answer_is_the_same_wherever_its_verifier_is_lost(name: str) -> None:
    path, body = WHOLE[name]
    async with serving() as setting:
        undisturbed = await setting.http.post(path, json=body)
    assert undisturbed.status_code == 200
    for num_items in (0, 1, 5, 14, 17):
        async with serving(Fate(num_items=num_items), Fate(num_items=1)) as setting:
            answer = await setting.http.post(path, json=body)
            assert answer.status_code == 200
            assert without_ids(answer.json()) == without_ids(undisturbed.json())
            assert len(setting.client.calls) == 3
            # The second attempt brought an item, so that two replicas were lost, and not one twice.
            assert setting.resumes() == {("replica_lost", "resumed"): 2}


async def test_a_stream_is_the_same_wherever_its_verifier_is_lost() -> None:
    body = {
        "prompt": ["ab", "c"], "max_tokens": 14, "n": 2, "logprobs": 2, "stream": True, "return_token_ids": True,
        "stream_options": {"include_usage": True},
    }  # fmt: skip
    async with serving() as setting:
        undisturbed = joined(events_of(await setting.http.post(COMPLETIONS, json=body)))
    assert undisturbed[3]["text"] == SCRIPT[:14]
    for num_items in (0, 1, 2, 3, 7, 13, 25, 41, 52, 55):
        async with serving(Fate(num_items=num_items)) as setting:
            answer = await setting.http.post(COMPLETIONS, json=body)
            assert joined(events_of(answer)) == undisturbed
            assert len(setting.client.calls) == 2


async def test_choices_that_have_ended_are_not_asked_for_again() -> None:
    engine = FakeEngine(tokens_per_step=6, max_num_seqs=1)  # one choice after the other
    async with serving(Fate(num_items=18), engine=engine) as setting:
        body = {"prompt": "a", "max_tokens": 12, "n": 3, "stream": True}
        events = events_of(await setting.http.post(COMPLETIONS, json=body))
    first, second = setting.client.calls
    assert len(first.requests) == 3
    assert [len(request.output_token_ids) for request in second.requests] == [6, 0]
    assert [request.sampling.seed for request in second.requests] == [r.sampling.seed for r in first.requests[1:]]
    assert [joined(events)[index]["text"] for index in range(3)] == [SCRIPT[:12]] * 3


async def test_another_attempt_has_other_ids_so_that_a_late_abort_does_not_hit_it() -> None:
    async with serving(Fate(num_items=1), Fate(num_items=1)) as setting:
        await setting.http.post(COMPLETIONS, json={"prompt": "a", "max_tokens": 12, "n": 2})
    ids = [request.request_id for call in setting.client.calls for request in call.requests]
    assert len(ids) == len(set(ids)) == 6


@pytest.mark.parametrize(("num_items", "again"), [(0, True), (1, False)])
async def test_prompt_logprobs_are_asked_for_until_they_came(num_items: int, again: bool) -> None:
    async with serving(Fate(num_items=num_items)) as setting:
        await setting.http.post(COMPLETIONS, json={"prompt": "abc", "max_tokens": 12, "prompt_logprobs": 1})
    assert (setting.client.calls[1].requests[0].sampling.prompt_logprobs is not None) is again


async def test_a_request_that_loses_too_many_verifiers_ends_with_one_clear_error() -> None:
    fates = [Fate(num_items=1)] * 3
    async with serving(*fates, max_resumes=2) as setting:
        stream = await setting.http.post(COMPLETIONS, json={"prompt": "a", "max_tokens": 50, "stream": True})
        assert setting.resumes() == {("replica_lost", "resumed"): 2, ("replica_lost", "gave_up"): 1}
    events = events_of(stream)
    assert [event for event in events if "error" in event] == events[-1:]
    assert events[-1]["error"]["code"] == "replica_lost"
    async with serving(*fates, max_resumes=2) as setting:
        whole = await setting.http.post(COMPLETIONS, json={"prompt": "a", "max_tokens": 50})
    assert whole.status_code == 503
    assert error_of(whole)["code"] == "replica_lost"


async def test_a_request_that_breaks_every_verifier_gets_no_more_than_the_limit() -> None:
    """Each loss counts, also of those that brought nothing."""
    async with serving(*[Fate()] * 9, max_resumes=3) as setting:
        answer = await setting.http.post(COMPLETIONS, json={"prompt": "a"})
        assert setting.resumes() == {("replica_lost", "gave_up"): 1}
    assert answer.status_code == 503
    assert len(setting.client.calls) == 4


async def test_resuming_can_be_switched_off() -> None:
    async with serving(Fate(num_items=1), max_resumes=0) as setting:
        answer = await setting.http.post(COMPLETIONS, json={"prompt": "a"})
    assert (answer.status_code, len(setting.client.calls)) == (503, 1)


async def test_a_refusal_is_passed_on_at_first_and_waited_out_after_a_loss() -> None:
    async with serving(Fate(end=busy())) as setting:
        refused = await setting.http.post(COMPLETIONS, json={"prompt": "a"})
        assert setting.resumes() == {}
    assert refused.status_code == 429
    fates = [Fate(num_items=1), *[Fate(end=busy())] * 4, *[Fate(end=UnavailableError("none", code="no_replica"))] * 4]
    async with serving(*fates, max_resumes=1) as setting:
        answer = await setting.http.post(COMPLETIONS, json={"prompt": "a", "max_tokens": 12})
        assert setting.resumes() == {("replica_lost", "resumed"): 1}
    assert answer.json()["choices"][0]["text"] == SCRIPT[:12]
    assert len(setting.client.calls) == 10


@pytest.mark.parametrize("code", ["no_engine", "version_mismatch", "model_mismatch"])
async def test_a_replica_that_can_serve_nobody_is_not_a_loss(code: str) -> None:
    async with serving(*[Fate(end=UnavailableError("no", code=code))] * 6, max_resumes=1) as setting:
        answer = await setting.http.post(COMPLETIONS, json={"prompt": "a", "max_tokens": 12})
        assert setting.resumes() == {(code, "resumed"): 1}
    assert answer.json()["choices"][0]["text"] == SCRIPT[:12]


async def test_errors_of_the_request_itself_are_not_tried_again() -> None:
    async with serving() as setting:
        answer = await setting.http.post(COMPLETIONS, json={"prompt": "a", "bad_words": ["x"]})
    assert (answer.status_code, len(setting.client.calls)) == (400, 1)


async def test_waiting_for_another_replica_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resume, "RESUME_WAIT_S", 0.1)
    for end in (busy(), HANG):
        async with serving(Fate(num_items=1), *[Fate(end=end)] * 1000) as setting:
            setting.client.can_tell = False  # What a lone verifier that hangs looks like.
            answer = await setting.http.post(COMPLETIONS, json={"prompt": "a", "max_tokens": 50, "stream": True})
            assert setting.resumes() == {("replica_lost", "gave_up"): 1}
        events = events_of(answer)
        assert [event for event in events if "error" in event] == events[-1:]


@pytest.mark.parametrize("end", [busy(), HANG])
async def test_the_deadline_holds_across_attempts(end: RequestError | str) -> None:
    headers = {"x-request-timeout-seconds": "0.3"}
    async with serving(Fate(num_items=1), *[Fate(end=end)] * 1000) as setting:
        setting.client.can_tell = False
        body = {"prompt": "a", "max_tokens": 50}
        answer = await asyncio.wait_for(setting.http.post(COMPLETIONS, json=body, headers=headers), 10)
    assert answer.status_code == 408
    first, second = setting.client.calls[:2]
    assert first.timeout_s is not None and second.timeout_s is not None
    assert second.timeout_s < first.timeout_s < 0.3


async def test_a_verifier_that_hangs_is_left_for_another_one() -> None:
    async with serving(Fate(num_items=2, end=HANG)) as setting:
        answer = await setting.http.post(COMPLETIONS, json={"prompt": "a", "max_tokens": 12})
        assert setting.resumes() == {("replica_silent", "resumed"): 1}
    assert answer.json()["choices"][0]["text"] == SCRIPT[:12]


async def test_a_stream_that_waits_for_another_verifier_stays_alive() -> None:
    fates = (Fate(num_items=1), *[Fate(end=busy())] * 20)
    async with serving(*fates, Fate(end=HANG), keep_alive_s=0.03) as setting:
        setting.client.can_tell = False
        call = setting.http.post(COMPLETIONS, json={"prompt": "a", "max_tokens": 12, "stream": True})
        answer = asyncio.ensure_future(call)
        await until(lambda: bool(setting.client.hanging))
        await asyncio.sleep(0.2)
        setting.client.can_tell = True
        text = (await answer).text
    assert text.count(": keep-alive\n\n") >= 3


async def test_a_stream_that_ends_too_early_goes_on() -> None:
    async with serving(Fate(num_items=1, end=None)) as setting:
        answer = await setting.http.post(COMPLETIONS, json={"prompt": "a", "max_tokens": 12})
        assert setting.resumes() == {("incomplete", "resumed"): 1}
    assert answer.json()["choices"][0]["text"] == SCRIPT[:12]


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not holds():  # noqa: ASYNC110 -- what is waited for happens inside the code under test
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("end", [None, busy(), HANG])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_hangs_up_during_a_resume_ends_it(end: RequestError | str | None, stream: bool) -> None:
    """In whatever it is: serving again, waiting for a place, or asking a replica that hangs."""
    slow = FakeEngine(tokens_per_step=1, step_s=0.005)
    others = [] if end is None else [Fate(end=end)] * 1000
    async with serving(Fate(num_items=1), *others, engine=slow) as setting:
        setting.client.can_tell = False
        body = {"prompt": "a", "max_tokens": 500, "n": 2, "stream": stream}
        call = asyncio.ensure_future(setting.http.post(COMPLETIONS, json=body))
        await until(lambda: len(setting.client.calls) > 1)
        if end is None:
            await until(lambda: len(slow.requests) == 2)
        call.cancel()
        await asyncio.wait({call})
        num_calls = len(setting.client.calls)
        await asyncio.sleep(0.05)
        assert len(setting.client.calls) == num_calls
        # `serving` checks that nothing is left in the engine.
