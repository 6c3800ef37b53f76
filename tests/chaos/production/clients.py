"""Clients that ask at random: streams and whole answers, some of them left before their end."""

import asyncio
import json
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from tests.chaos.production.calls import CALLS, Call, spoken, stable
from tests.chaos.production.verdict import Answer, Result, Verdict, judge
from tests.e2e.conftest import KEY

PATIENCE_S = 120.0
"""Nothing takes as long, not even on a busy machine: an answer that does is one that never comes."""

SHARE_STREAMED, SHARE_LEFT, SHARE_GENERATED = 0.6, 0.12, 0.85


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One request and what became of it.

    Attributes:
        call: what was asked for.
        is_streamed: in pieces.
        began_s: clock time.
        ended_s: clock time.
        verdict: the judgement.
    """

    call: Call
    is_streamed: bool
    began_s: float
    ended_s: float
    verdict: Verdict


def new_http(url: str) -> httpx.AsyncClient:
    """A client of its own, as each user has one."""
    return httpx.AsyncClient(base_url=url, headers={"authorization": f"Bearer {KEY}"}, timeout=PATIENCE_S)


@dataclass(slots=True, kw_only=True)
class Load:
    """Clients that ask one thing after another until they are told to stop.

    Args:
        url: of the application.
        expected: undisturbed answers by call.
        seed: of what is asked.

    Attributes:
        outcomes: of everything that was asked.
    """

    url: str
    expected: Mapping[str, object]
    seed: int
    outcomes: list[Outcome] = field(default_factory=list)
    _stopped: bool = False

    async def run(self, num_clients: int) -> None:
        """Ask until `stop`; what is under way then is waited for."""
        await asyncio.gather(*(self._client(random.Random(f"{self.seed} {index}")) for index in range(num_clients)))

    def stop(self) -> None:
        """Let nobody ask for more."""
        self._stopped = True

    async def ask_everything(self) -> list[Outcome]:
        """Each call once in each form; these count among the outcomes."""
        async with new_http(self.url) as http:
            asked = [(call, streamed) for call in CALLS for streamed in (False, True) if call.generates or not streamed]
            return [await self.ask(http, call, is_streamed=streamed) for call, streamed in asked]

    async def ask(
        self, http: httpx.AsyncClient, call: Call, *, is_streamed: bool, leave: float | None = None
    ) -> Outcome:
        """Ask once and judge the answer.

        Args:
            http: of the client.
            call: what to ask for.
            is_streamed: in pieces.
            leave: hang up after so many seconds; None stays.
        """
        began_s = time.monotonic()
        answer = await ask(http, call, is_streamed=is_streamed, leave=leave)
        verdict = judge(call, self.expected[call.name], answer)
        outcome = Outcome(
            call=call, is_streamed=is_streamed, began_s=began_s, ended_s=time.monotonic(), verdict=verdict
        )
        self.outcomes.append(outcome)
        return outcome

    async def _client(self, rng: random.Random) -> None:
        generating = [call for call in CALLS if call.generates]
        others = [call for call in CALLS if not call.generates]
        while not self._stopped:
            async with new_http(self.url) as http:
                for _ in range(20):
                    if self._stopped:
                        return
                    call = rng.choice(generating if rng.random() < SHARE_GENERATED else others)
                    streamed = call.generates and rng.random() < SHARE_STREAMED
                    leave = rng.expovariate(5.0) if call.generates and rng.random() < SHARE_LEFT else None
                    outcome = await self.ask(http, call, is_streamed=streamed, leave=leave)
                    if outcome.verdict.result in (Result.ERROR, Result.CUT):
                        await asyncio.sleep(0.5)  # As a client with manners does.


async def ask(http: httpx.AsyncClient, call: Call, *, is_streamed: bool = False, leave: float | None = None) -> Answer:
    """What a client sees; raises nothing."""
    answer = Answer(is_streamed=is_streamed)
    asking = asyncio.ensure_future(_stream(http, call, answer) if is_streamed else _whole(http, call, answer))
    try:
        await asyncio.wait({asking}, timeout=leave or PATIENCE_S)
        if asking.done():
            asking.result()
        else:
            answer.has_left = leave is not None
            answer.broken = None if leave else f"no end within {PATIENCE_S:.0f} s"
    except (httpx.HTTPError, ValueError) as error:
        answer.broken, answer.raw = type(error).__name__, str(error)
    finally:
        asking.cancel()
        await asyncio.wait({asking})
    return answer


async def _whole(http: httpx.AsyncClient, call: Call, answer: Answer) -> None:
    if call.body is None:
        response = await http.get(call.path)
    else:
        response = await http.post(call.path, json=dict(call.body))
    _take(call, answer, response)


def _take(call: Call, answer: Answer, response: httpx.Response) -> None:
    """Take in an answer that came as a whole."""
    answer.status = response.status_code
    body: Any = _json(response)
    if response.status_code == 200 and call.path == "/metrics":
        assert list(text_string_to_metric_families(response.text))
    elif body is None:
        answer.raw = response.text[:300]
        return
    elif "error" in body:
        answer.errors.append(body["error"])
    answer.form = stable(call, response.status_code, body)
    if response.status_code == 200 and call.generates:
        answer.spoken = spoken([body])


async def _stream(http: httpx.AsyncClient, call: Call, answer: Answer) -> None:
    body = dict(call.body or {}) | {"stream": True, "stream_options": {"include_usage": True}}
    async with http.stream("POST", call.path, json=body) as response:
        answer.status = response.status_code
        if response.status_code != 200:
            await response.aread()
            _take(call, answer, response)
            return
        async for line in response.aiter_lines():
            if line.startswith("data: "):
                _take_event(answer, line.removeprefix("data: "))


def _take_event(answer: Answer, data: str) -> None:
    if data == "[DONE]":
        answer.num_done += 1
    elif answer.num_done:
        answer.num_done += 1  # Whatever follows the end is as wrong as a second one.
    elif "error" in (event := json.loads(data)):
        answer.errors.append(event["error"])
    else:
        answer.spoken.add(event)


def _json(response: httpx.Response) -> Any:
    """The body, or None where it is not JSON."""
    try:
        return response.json()
    except ValueError:
        return None
