"""Do pools whose roles follow the load beat one fixed role for all? Real Serve, three verifiers, a mixed load.

Interactive requests (tier `priority`) count only if they met their latency objectives; bulk requests (tier `flex`)
count by their tokens. Goodput is the output tokens that count, per second. Two shapes of load are offered, each the
same to every mode, open loop and seeded:

- `backlog`: interactive requests arrive evenly all the time; after a third of it, a pile of bulk work arrives at once.
- `bursts`: bulk work arrives evenly; interactive requests come in bursts with pauses between.
"""

import asyncio
import json
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import aiohttp

from tests.benchmarks.measure import Rounds, progress
from tests.benchmarks.report import Answer, Limit, Row
from tests.benchmarks.server import serve

MODES = ("speculative", "batch", "dynamic")
DYNAMIC = MODES[-1]
NUM_VERIFIERS = 3
TTFT_SLO_S, TPOT_SLO_S = 1.5, 0.06
DURATION_S = 36.0
_INTERACTIVE_TOKENS, _BULK_TOKENS = 48, 96
_NUM_BULK = 150
_SETTINGS = (
    f"num_verifiers={NUM_VERIFIERS}",
    "verifier_cpus=0.3",
    "engine.num_threads=1",
    "engine.kv_cache_tokens=32768",
    "drafter=ngram",
    "pools.min_speculative=1",
    f"pools.ttft_slo_s={TTFT_SLO_S}",
    f"pools.tpot_slo_s={TPOT_SLO_S}",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """One request of a load.

    Attributes:
        at_s: since the load began.
        is_bulk: without objectives.
        text: of the user's message.
    """

    at_s: float
    is_bulk: bool
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What became of a request.

    Attributes:
        arrival: the request.
        ended_s: since the load began.
        ttft_s: time to the first text.
        tpot_s: time for each further token.
        num_tokens: output.
    """

    arrival: Arrival
    ended_s: float
    ttft_s: float
    tpot_s: float
    num_tokens: int

    @property
    def counts(self) -> bool:
        """True where its tokens belong to the goodput."""
        return self.arrival.is_bulk or (self.ttft_s <= TTFT_SLO_S and self.tpot_s <= TPOT_SLO_S)


def load(shape: str, seed: int, duration_s: float) -> list[Arrival]:
    """The arrivals of a shape."""
    rng = random.Random(f"{shape} {seed}")

    def arrival(at_s: float, number: int, *, is_bulk: bool) -> Arrival:
        text = (
            f"Copy: {rng.randrange(10**6)} apples, {rng.randrange(10**6)} pears and {number} plums. Then write a story."
        )
        return Arrival(at_s=at_s, is_bulk=is_bulk, text=text)

    if shape == "backlog":
        chats = [arrival(0.5 * number, number, is_bulk=False) for number in range(int(duration_s / 0.5))]
        return chats + [arrival(duration_s / 3, number, is_bulk=True) for number in range(_NUM_BULK)]
    bulk = [arrival(duration_s * n / _NUM_BULK, n, is_bulk=True) for n in range(_NUM_BULK)]
    bursts = [start + 0.1 * number for start in range(4, int(duration_s), 9) for number in range(16)]
    return bulk + [arrival(at_s, number, is_bulk=False) for number, at_s in enumerate(bursts)]


class Client:
    """Sends a load and takes down what came back.

    Args:
        url: of the server.
        duration_s: of a load.
    """

    def __init__(self, url: str, duration_s: float) -> None:
        self._url, self._duration_s = url, duration_s

    def offer(self, arrivals: Sequence[Arrival]) -> list[Served]:
        """Everything that ended within the duration; the rest is given up."""
        return asyncio.run(self._offer(arrivals))

    async def _offer(self, arrivals: Sequence[Arrival]) -> list[Served]:
        timeout = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as session:
            started_s = time.perf_counter()
            tasks = [asyncio.create_task(self._ask(session, arrival, started_s)) for arrival in arrivals]
            done, left = await asyncio.wait(tasks, timeout=self._duration_s)
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
            return [task.result() for task in done]

    async def _ask(self, session: aiohttp.ClientSession, arrival: Arrival, started_s: float) -> Served:
        await asyncio.sleep(arrival.at_s)
        num_tokens = _BULK_TOKENS if arrival.is_bulk else _INTERACTIVE_TOKENS
        body = {
            "messages": [{"role": "user", "content": arrival.text}],
            "max_tokens": num_tokens,
            "temperature": 0,
            "ignore_eos": True,
            "service_tier": "flex" if arrival.is_bulk else "priority",
            "stream": True,
        }
        sent_s = time.perf_counter()
        first_s: float | None = None
        async with session.post(f"{self._url}/v1/chat/completions", json=body) as response:
            response.raise_for_status()
            async for line in response.content:
                if line.startswith(b"data: {"):
                    event = json.loads(line[6:])
                    if "error" in event:
                        raise RuntimeError(str(event))
                    if first_s is None and event["choices"] and event["choices"][0]["delta"].get("content"):
                        first_s = time.perf_counter()
        ended_s = time.perf_counter()
        first_s = ended_s if first_s is None else first_s
        return Served(
            arrival=arrival,
            ended_s=ended_s - started_s,
            ttft_s=first_s - sent_s,
            tpot_s=(ended_s - first_s) / (num_tokens - 1),
            num_tokens=num_tokens,
        )


def measure(*, quick: bool) -> Answer:
    """Start the application in each mode in turn and offer it both shapes."""
    num_rounds, duration_s = (1, 4.0) if quick else (2, DURATION_S)
    shapes = ("backlog",) if quick else ("backlog", "bursts")
    rounds = Rounds()
    for index in range(num_rounds):
        samples: dict[str, Sequence[float]] = {}
        for mode in (*MODES[index % 3 :], *MODES[: index % 3]):
            with serve([*_SETTINGS, f"pools.mode={mode}"]) as url:
                client = Client(url, duration_s)
                for shape in shapes:
                    samples |= _sample(client, load(shape, index, duration_s), duration_s, (shape, mode))
                    time.sleep(0.0 if quick else 8.0)  # Roles come back, and what was given up ends.
        rounds.add(samples)
        progress(f"round {index + 1} of {num_rounds}")
    names = [_name(shape, mode, what) for shape in shapes for mode in MODES for what in ("goodput", "kept ratio")]
    return Answer(
        question="Goodput of three verifiers under a mixed load, by who plays which role?",
        model="smollm2-135m-instruct",
        rows=tuple(Row.of(name, rounds, "ratio" if "ratio" in name else "tokens/s") for name in names),
        limits=tuple(_limit(rounds, shape) for shape in shapes),
        counts={"rounds": num_rounds, "verifiers": NUM_VERIFIERS, "threads_each": 1, "seconds": int(duration_s)},
        notes=(f"objectives: first text within {TTFT_SLO_S} s, {TPOT_SLO_S} s for each further token",),
    )


def _sample(
    client: Client, arrivals: Sequence[Arrival], duration_s: float, names: tuple[str, str]
) -> Mapping[str, Sequence[float]]:
    shape, mode = names
    served = client.offer(arrivals)
    chats = [one for one in served if not one.arrival.is_bulk]
    num_due = sum(not one.is_bulk and one.at_s < duration_s - 3 for one in arrivals)
    goodput = sum(one.num_tokens for one in served if one.counts) / duration_s
    kept = min(1.0, sum(one.counts for one in chats) / max(1, num_due))
    progress(f"{mode}, {shape}: goodput {goodput:.0f} tokens/s, objectives kept {kept:.2f}, {len(served)} ended")
    return {_name(shape, mode, "goodput"): [goodput], _name(shape, mode, "kept ratio"): [kept]}


def _limit(rounds: Rounds, shape: str) -> Limit:
    best = max(MODES[:-1], key=lambda mode: Row.of(_name(shape, mode, "goodput"), rounds).summary.p50)
    ratios = rounds.ratios(_name(shape, DYNAMIC, "goodput"), _name(shape, best, "goodput"))
    return Limit.at_least_of(f"{shape}: dynamic / all {best}", ratios, 1.0)


def _name(shape: str, mode: str, what: str) -> str:
    return f"{shape}, {'all ' if mode != DYNAMIC else ''}{mode}, {what}"
