"""What does configured speculation cost a request that does not use it?"""

import time
from dataclasses import replace

from cluster.config import EngineConfig
from cluster.engine.engine import Engine
from cluster.engine.startup import EngineParts, load_parts
from cluster.types import Request, SpeculationMode
from tests.benchmarks.measure import THREADS, Rounds, progress, warmed_up
from tests.benchmarks.report import Answer, Limit, Row
from tests.benchmarks.workloads import PROMPTS, chat_ids, engine_config, first_token_s, make_request

WITHOUT, WITH = "engine without a drafter", "engine with the n-gram drafter, request with K = 0"
NUM_DISCARDED_STEPS = 2


def measure(*, quick: bool) -> Answer:
    """Step two engines in turn, pair by pair.

    They share one runner, so that the place of weights in memory is the same for both. Both write the same tokens at
    the same positions of the same blocks, hence the KV cache is right for both as well.
    """
    num_rounds, num_pairs = (1, 4) if quick else (25, 48)
    config = engine_config(enable_prefix_cache=True)
    parts = load_parts(config)
    engines = {
        WITHOUT: _engine(replace(config, drafter="off"), parts),
        WITH: _engine(config, parts),
    }
    prompt = chat_ids(parts.tokenizer, PROMPTS["copy"])
    rounds = Rounds()
    for index in warmed_up(num_rounds):
        max_tokens = num_pairs + NUM_DISCARDED_STEPS + 1
        plain = make_request(f"r{index}", prompt, max_tokens, mode=SpeculationMode.AUTO)
        idle = make_request(f"r{index}", prompt, max_tokens, mode=SpeculationMode.AUTO, num_speculative_tokens=0)
        pairs = _paired_steps(engines, {WITHOUT: plain, WITH: idle}, num_pairs)
        if index:
            rounds.add(pairs)
        progress(f"round {index} of {num_rounds}" if index else "warm-up")
    ratios = [a / b for a, b in zip(rounds.samples(WITH), rounds.samples(WITHOUT), strict=True)]
    return Answer(
        question="What does configured speculation cost a request that does not use it (batch 1)?",
        model=parts.model_id,
        rows=tuple(Row.of(name, rounds) for name in (WITHOUT, WITH)),
        limits=(Limit.at_most_of("step with K = 0 / step without a drafter, by pairs", ratios, 1.01),),
        counts={"rounds": num_rounds, "pairs_per_round": num_pairs, "threads": THREADS},
    )


def _engine(config: EngineConfig, parts: EngineParts) -> Engine:
    return Engine.from_parts(config, parts)


def _paired_steps(engines: dict[str, Engine], requests: dict[str, Request], num_pairs: int) -> dict[str, list[float]]:
    """Step times of both engines, in alternating order, until both requests are finished."""
    times: dict[str, list[float]] = {name: [] for name in engines}
    for name, engine in engines.items():
        first_token_s(engine, requests[name])
    for pair in range(num_pairs + NUM_DISCARDED_STEPS):
        tokens = []
        for name in sorted(engines, reverse=pair % 2 == 0):
            started_s = time.perf_counter()
            outputs = engines[name].step()
            elapsed_s = time.perf_counter() - started_s
            tokens.append(outputs[0].token_ids)
            if pair >= NUM_DISCARDED_STEPS:
                times[name].append(elapsed_s)
        if tokens[0] != tokens[1]:
            raise RuntimeError(f"the engines wrote different tokens: {tokens}")
    return times
