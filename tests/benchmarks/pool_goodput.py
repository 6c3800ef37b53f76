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


@dataclass(slots=True, kw_only=True)
class Served:
    """What became of a request so far.

    Attributes:
        arrival: the request.
        sent_s: clock time at which it was sent; None before.
        first_s: the same for the first token that came.
        last_s: the same for the latest one.
        num_tokens: that came.
        is_ended: all of them did.
    """

    arrival: Arrival
    sent_s: float | None = None
    first_s: float | None = None
    last_s: float = 0.0
    num_tokens: int = 0
    is_ended: bool = False

    def take(self, num_tokens: int) -> None:
        """Note tokens that have just come."""
        self.last_s = time.perf_counter()
        self.first_s = self.first_s or self.last_s
        self.num_tokens += num_tokens

    @property
    def keeps_objectives(self) -> bool:
        """True where it ended in time: the first token, and each further one on average."""
        if self.sent_s is None or self.first_s is None or not self.is_ended:
            return False
        tpot_s = (self.last_s - self.first_s) / max(1, self.num_tokens - 1)
        return self.first_s - self.sent_s <= TTFT_SLO_S and tpot_s <= TPOT_SLO_S

    @property
    def counts(self) -> bool:
        """True where its tokens belong to the goodput: bulk work has no objectives, and no end to wait for."""
        return self.arrival.is_bulk or self.keeps_objectives


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
        """What became of each request until the duration was over; what had not ended by then is given up."""
        return asyncio.run(self._offer(arrivals))

    async def _offer(self, arrivals: Sequence[Arrival]) -> list[Served]:
        served = [Served(arrival=arrival) for arrival in arrivals]
        timeout = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as session:
            tasks = [asyncio.create_task(self._ask(session, one)) for one in served]
            done, left = await asyncio.wait(tasks, timeout=self._duration_s)
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
            for task in done:
                task.result()
        return served

    async def _ask(self, session: aiohttp.ClientSession, served: Served) -> None:
        arrival = served.arrival
        await asyncio.sleep(arrival.at_s)
        body = {
            "messages": [{"role": "user", "content": arrival.text}],
            "max_tokens": _BULK_TOKENS if arrival.is_bulk else _INTERACTIVE_TOKENS,
            "temperature": 0,
            "ignore_eos": True,
            "service_tier": "flex" if arrival.is_bulk else "priority",
            "stream": True,
            "return_token_ids": True,
        }
        served.sent_s = time.perf_counter()
        async with session.post(f"{self._url}/v1/chat/completions", json=body) as response:
            response.raise_for_status()
            async for line in response.content:
                if line.startswith(b"data: {"):
                    event = json.loads(line[6:])
                    if "error" in event:
                        raise RuntimeError(str(event))
                    if num_tokens := sum(len(choice.get("token_ids", ())) for choice in event["choices"]):
                        served.take(num_tokens)
        served.is_ended = True


def measure(*, quick: bool) -> Answer:
    """Start the application in each mode in turn and offer it both shapes."""
    num_rounds, duration_s = (1, 8.0) if quick else (2, DURATION_S)
    shapes = ("backlog",) if quick else ("backlog", "bursts")
    modes = (DYNAMIC,) if quick else MODES
    rounds = Rounds()
    for index in range(num_rounds):
        samples: dict[str, Sequence[float]] = {}
        for mode in (*modes[index % 3 :], *modes[: index % 3]):
            with serve([*_SETTINGS, f"pools.mode={mode}"]) as url:
                client = Client(url, duration_s)
                for shape in shapes:
                    samples |= _sample(client, load(shape, index, duration_s), duration_s, (shape, mode))
                    time.sleep(0.0 if quick else 8.0)  # Roles come back, and what was given up ends.
        rounds.add(samples)
        progress(f"round {index + 1} of {num_rounds}")
    # In so short a run no request may keep its objectives.
    shown = ("goodput", "bulk") if quick else ("goodput", "bulk", "kept ratio")
    names = [_name(shape, mode, what) for shape in shapes for mode in modes for what in shown]
    return Answer(
        question="Goodput of three verifiers under a mixed load, by who plays which role?",
        model="smollm2-135m-instruct",
        rows=tuple(Row.of(name, rounds, "ratio" if "ratio" in name else "tokens/s") for name in names),
        limits=() if quick else tuple(_limit(rounds, shape) for shape in shapes),
        counts={"rounds": num_rounds, "verifiers": NUM_VERIFIERS, "threads_each": 1, "seconds": int(duration_s)},
        notes=(f"objectives: first text within {TTFT_SLO_S} s, {TPOT_SLO_S} s for each further token",),
    )


def _sample(
    client: Client, arrivals: Sequence[Arrival], duration_s: float, names: tuple[str, str]
) -> Mapping[str, Sequence[float]]:
    shape, mode = names
    served = client.offer(arrivals)
    # The last ones could not have ended in time.
    due = [one for one in served if not one.arrival.is_bulk and one.arrival.at_s < duration_s - 4]
    goodput = sum(one.num_tokens for one in served if one.counts) / duration_s
    kept = sum(one.keeps_objectives for one in due) / max(1, len(due))
    bulk = sum(one.num_tokens for one in served if one.arrival.is_bulk) / duration_s
    progress(f"{mode}, {shape}: goodput {goodput:.0f} tokens/s, of these bulk {bulk:.0f}, objectives kept {kept:.2f}")
    found = {"goodput": goodput, "bulk": bulk, "kept ratio": kept}
    return {_name(shape, mode, what): [value] for what, value in found.items()}


def _limit(rounds: Rounds, shape: str) -> Limit:
    best = max(MODES[:-1], key=lambda mode: Row.of(_name(shape, mode, "goodput"), rounds).summary.p50)
    ratios = rounds.ratios(_name(shape, DYNAMIC, "goodput"), _name(shape, best, "goodput"))
    return Limit.at_least_of(f"{shape}: dynamic / all {best}", ratios, 1.0)


def _name(shape: str, mode: str, what: str) -> str:
    return f"{shape}, {'all ' if mode != DYNAMIC else ''}{mode}, {what}"
