"""What do Ray Serve and HTTP add to the engine?"""

import time
from collections.abc import Mapping, Sequence
from itertools import count

from cluster.engine.engine import Engine
from tests.benchmarks.concurrency import stream_prompt
from tests.benchmarks.measure import THREADS, Rounds, interleave
from tests.benchmarks.report import Answer, Limit, Row
from tests.benchmarks.server import StreamClient, serve
from tests.benchmarks.workloads import (
    PROMPTS,
    chat_ids,
    engine_config,
    first_token_s,
    generate,
    make_request,
)

NUM_STREAMS = 32
FIRST, FIRST_HTTP = "first token, in process", "first text, HTTP"
STREAMS, STREAMS_HTTP = f"{NUM_STREAMS} streams, in process", f"{NUM_STREAMS} streams, HTTP"


def measure(*, quick: bool) -> Answer:
    """Interleave an engine in this process with a server beside it; the one that is not asked sleeps."""
    num_rounds, num_firsts, max_tokens = (1, 2, 4) if quick else (9, 8, 128)
    config = engine_config()
    engine = Engine.from_config(config)
    names = ("num_threads", "kv_cache_tokens", "enable_prefix_cache")
    # Nobody drafts here: a quick run does not wait until it is measured who should.
    settings = ["drafter=off"] if quick else []
    with (
        serve([*settings, *(f"engine.{name}={str(getattr(config, name)).lower()}" for name in names)]) as url,
        StreamClient(url) as client,
    ):
        rounds = _measure(engine, client, num_rounds=num_rounds, num_firsts=num_firsts, max_tokens=max_tokens)
    return Answer(
        question="What do Ray Serve and HTTP add to the engine (client on the same cores, speculation off)?",
        model=engine.model_id,
        rows=(
            Row.of(FIRST, rounds),
            Row.of(FIRST_HTTP, rounds),
            Row.of(STREAMS, rounds, "tokens/s"),
            Row.of(STREAMS_HTTP, rounds, "tokens/s"),
        ),
        limits=(
            Limit.at_most_of("time to first token: HTTP - in process, s", rounds.differences(FIRST_HTTP, FIRST), 0.015),
            Limit.at_least_of(
                f"tokens/s of {NUM_STREAMS} streams: HTTP / in process", rounds.ratios(STREAMS_HTTP, STREAMS), 0.95
            ),
        ),
        counts={
            "rounds": num_rounds,
            "first_tokens_per_round": num_firsts,
            "streams": NUM_STREAMS,
            "max_tokens": max_tokens,
            "threads": THREADS,
        },
        notes=("Ray's idle processes are there in both cases; over HTTP the client's work is on the same cores",),
    )


def _measure(engine: Engine, client: StreamClient, *, num_rounds: int, num_firsts: int, max_tokens: int) -> Rounds:
    ids = count()
    texts = [stream_prompt(index) for index in range(NUM_STREAMS)]

    def firsts() -> Mapping[str, Sequence[float]]:
        times = []
        for _ in range(num_firsts):
            request = make_request(f"r{next(ids)}", chat_ids(engine.tokenizer, PROMPTS["short"]), 4)
            times.append(first_token_s(engine, request))
            _finish(engine)
        return {FIRST: times}

    def firsts_http() -> Mapping[str, Sequence[float]]:
        return {FIRST_HTTP: [client.ask([PROMPTS["short"]], 4)[0].first_text_s for _ in range(num_firsts)]}

    def streams() -> Mapping[str, Sequence[float]]:
        requests = [make_request(f"r{next(ids)}", chat_ids(engine.tokenizer, text), max_tokens) for text in texts]
        return {STREAMS: [generate(engine, requests).tokens_per_s]}

    def streams_http() -> Mapping[str, Sequence[float]]:
        started_s = time.perf_counter()
        answers = client.ask(texts, max_tokens)
        elapsed_s = time.perf_counter() - started_s
        num_tokens = sum(answer.num_output_tokens for answer in answers)
        if num_tokens != NUM_STREAMS * max_tokens:
            raise RuntimeError(f"the server counts {num_tokens} tokens instead of {NUM_STREAMS * max_tokens}")
        return {STREAMS_HTTP: [num_tokens / elapsed_s]}

    _check_prompts(engine, client)
    return interleave((firsts, firsts_http, streams, streams_http), num_rounds=num_rounds)


def _finish(engine: Engine) -> None:
    while engine.has_work:
        engine.step()


def _check_prompts(engine: Engine, client: StreamClient) -> None:
    """Both sides must compute the same prompt."""
    num_tokens = client.ask([PROMPTS["short"]], 1)[0].num_prompt_tokens
    if num_tokens != len(chat_ids(engine.tokenizer, PROMPTS["short"])):
        raise RuntimeError(f"the server counts {num_tokens} prompt tokens, which is not what the engine is given")
