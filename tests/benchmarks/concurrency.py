"""How does throughput grow with concurrent streams, speculation off?"""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import count

from cluster.engine.engine import Engine
from tests.benchmarks.measure import THREADS, interleave
from tests.benchmarks.report import Answer, Limit, Row
from tests.benchmarks.workloads import chat_ids, engine_config, generate, make_request

STREAMS = (1, 2, 4, 8, 16, 32)


def measure(*, quick: bool) -> Answer:
    """Interleave batches of requests that arrive together; prefill is part of the time."""
    num_rounds, max_tokens = (1, 4) if quick else (7, 128)
    engine = Engine.from_config(engine_config())
    ids = count()

    def run(num_streams: int) -> Mapping[str, Sequence[float]]:
        prompts = (chat_ids(engine.tokenizer, stream_prompt(index)) for index in range(num_streams))
        requests = [make_request(f"r{next(ids)}", prompt, max_tokens) for prompt in prompts]
        return {_name(num_streams): [generate(engine, requests).tokens_per_s]}

    rounds = interleave([partial(run, num_streams) for num_streams in STREAMS], num_rounds=num_rounds)
    limits = (Limit.at_least_of("32 streams / 1 stream", rounds.ratios(_name(32), _name(1)), 10.0),)
    return Answer(
        question="Tokens/s of all streams together, in process, speculation off?",
        model=engine.model_id,
        rows=tuple(Row.of(_name(num_streams), rounds, "tokens/s") for num_streams in STREAMS),
        limits=limits,
        counts={"rounds": num_rounds, "max_tokens": max_tokens, "threads": THREADS},
    )


def stream_prompt(index: int) -> str:
    """The user's message of one of many streams; no two are alike."""
    return f"Write a short story about traveller number {index} who arrives in a town where nobody sleeps."


def _name(num_streams: int) -> str:
    return f"{num_streams} stream{'s' if num_streams > 1 else ''}"
