"""How far is a whole decoding step from the model's packed linear layers alone?"""

from collections.abc import Mapping, Sequence
from itertools import count

from cluster.engine.engine import Engine
from tests.benchmarks.linears import PackedLinears
from tests.benchmarks.measure import THREADS, interleave
from tests.benchmarks.report import Answer, Limit, Row
from tests.benchmarks.workloads import PROMPTS, chat_ids, engine_config, make_request, timed_steps

STEP, FORWARD, LINEARS = "engine.step", "its forward pass", "packed linears alone, oneDNN bf16"


def measure(*, quick: bool) -> Answer:
    """Interleave blocks of decoding steps with blocks of matrix products."""
    num_rounds, num_steps = (1, 2) if quick else (25, 8)
    engine, linears = Engine.from_config(engine_config(enable_prefix_cache=True)), PackedLinears()
    prompt = chat_ids(engine.tokenizer, PROMPTS["copy"])
    ids = count()

    def decode() -> Mapping[str, Sequence[float]]:
        times = timed_steps(engine, make_request(f"r{next(ids)}", prompt, 64), num_steps=num_steps)
        return {STEP: times.step_s, FORWARD: times.forward_s}

    def multiply() -> Mapping[str, Sequence[float]]:
        return {LINEARS: linears.times_s(1, num_steps)}

    rounds = interleave((decode, multiply), num_rounds=num_rounds)
    return Answer(
        question=f"How far is a decoding step (batch 1, {len(prompt)} tokens of context) from its products alone?",
        model=engine.model_id,
        rows=tuple(Row.of(name, rounds) for name in (STEP, FORWARD, LINEARS)),
        limits=(Limit.at_most_of("step / packed linears", rounds.ratios(STEP, LINEARS), 1.5, aim=1.35),),
        counts={"rounds": num_rounds, "steps_per_round": num_steps, "context_tokens": len(prompt), "threads": THREADS},
    )
