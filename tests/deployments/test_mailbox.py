import asyncio
from collections.abc import Callable

import pytest

from cluster.errors import EngineDeadError
from cluster.types import FinishReason, Request, RequestOutput, SamplingParams
from deployments.mailbox import Mailbox, stream_interval

pytestmark = pytest.mark.anyio

LONG_S = 30.0


def _mailbox(num_choices: int = 1, interval_s: Callable[[], float] = lambda: 0.0) -> Mailbox:
    sampling = SamplingParams(max_tokens=9, seed=0)
    requests = [Request(request_id=f"r{i}", prompt_token_ids=(1,), sampling=sampling) for i in range(num_choices)]
    return Mailbox(requests, interval_s)


def _output(text: str, choice: int = 0, *, end: bool = False) -> RequestOutput:
    reason = FinishReason.STOP if end else None
    return RequestOutput(request_id=f"r{choice}", text=text, token_ids=(len(text),), finish_reason=reason)


async def _is_waiting(task: "asyncio.Task[object]") -> bool:
    for _ in range(5):
        await asyncio.sleep(0)
    return not task.done()


async def test_outputs_of_several_rounds_become_one_delta_in_order() -> None:
    mailbox = _mailbox()
    for text in ("a", "bc", "d"):
        mailbox.put(_output(text))
    (delta,) = await mailbox.take()
    assert (delta.index, delta.text, delta.token_ids) == (0, "abcd", (1, 2, 1))


async def test_all_choices_travel_in_one_item_and_the_end_is_an_empty_one() -> None:
    mailbox = _mailbox(2)
    mailbox.put(_output("x", 1, end=True))
    mailbox.put(_output("y", 0, end=True))
    assert {(delta.index, delta.text) for delta in await mailbox.take()} == {(1, "x"), (0, "y")}
    assert await mailbox.take() == ()


async def test_the_first_output_leaves_at_once_and_the_next_waits_for_the_interval() -> None:
    mailbox = _mailbox(interval_s=lambda: LONG_S)
    mailbox.put(_output("a"))
    assert (await mailbox.take())[0].text == "a"
    mailbox.put(_output("b"))
    task = asyncio.ensure_future(mailbox.take())
    assert await _is_waiting(task)
    mailbox.put(_output("c", end=True))
    assert (await task)[0].text == "bc"


async def test_the_first_output_of_every_choice_leaves_at_once() -> None:
    mailbox = _mailbox(2, interval_s=lambda: LONG_S)
    mailbox.put(_output("a", 0))
    await mailbox.take()
    mailbox.put(_output("b", 1))
    assert (await asyncio.wait_for(mailbox.take(), 5))[0].text == "b"


async def test_the_interval_ends_by_itself() -> None:
    mailbox = _mailbox(interval_s=lambda: 0.02)
    mailbox.put(_output("a"))
    await mailbox.take()
    mailbox.put(_output("b"))
    mailbox.put(_output("c"))
    assert (await asyncio.wait_for(mailbox.take(), 5))[0].text == "bc"


async def test_one_finished_choice_of_two_does_not_hurry_the_other() -> None:
    mailbox = _mailbox(2, interval_s=lambda: LONG_S)
    mailbox.put(_output("a", 0))
    mailbox.put(_output("b", 1))
    await mailbox.take()
    mailbox.put(_output("c", 0, end=True))
    task = asyncio.ensure_future(mailbox.take())
    assert await _is_waiting(task)
    mailbox.put(_output("d", 1, end=True))
    assert {delta.text for delta in await task} == {"c", "d"}


async def test_what_came_before_an_error_is_delivered_first() -> None:
    mailbox = _mailbox(interval_s=lambda: LONG_S)
    mailbox.put(_output("a"))
    await mailbox.take()
    mailbox.put(_output("b"))
    mailbox.fail(EngineDeadError("dead"))
    assert (await mailbox.take())[0].text == "b"
    with pytest.raises(EngineDeadError):
        await mailbox.take()


async def test_an_error_wakes_a_waiting_reader() -> None:
    mailbox = _mailbox()
    task = asyncio.ensure_future(mailbox.take())
    assert await _is_waiting(task)
    mailbox.fail(EngineDeadError("dead"))
    with pytest.raises(EngineDeadError):
        await task


async def test_outputs_after_the_end_of_a_choice_are_dropped() -> None:
    mailbox = _mailbox()
    mailbox.put(_output("a", end=True))
    mailbox.put(_output("late"))
    assert (await mailbox.take())[0].text == "a"
    assert mailbox.open_ids == ()


def test_the_interval_is_zero_for_few_streams_and_grows_to_the_setting() -> None:
    assert [stream_interval(n, 0.1) for n in (1, 8, 12, 16, 100)] == [0.0, 0.0, 0.05, 0.1, 0.1]
    assert stream_interval(100, 0.0) == 0.0


async def test_a_timer_that_fires_after_its_output_left_does_not_end_the_stream() -> None:
    mailbox = _mailbox(2, interval_s=lambda: 0.02)
    mailbox.put(_output("a", 0))
    await mailbox.take()
    mailbox.put(_output("b", 1))  # the first of its choice: the reader is woken at once
    mailbox.put(_output("c", 0))  # starts a timer before the reader has run, which then takes both
    assert {delta.text for delta in await mailbox.take()} == {"b", "c"}
    task = asyncio.ensure_future(mailbox.take())
    await asyncio.sleep(0.05)
    assert await _is_waiting(task)
    mailbox.put(_output("d", 0, end=True))
    mailbox.put(_output("e", 1, end=True))
    assert {delta.text for delta in await task} == {"d", "e"}
