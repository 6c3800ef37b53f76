"""Does the n-gram drafter slow down text that repeats nothing?"""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import count

from cluster.engine.engine import Engine
from cluster.types import SpeculationMode
from tests.benchmarks.measure import THREADS, interleave
from tests.benchmarks.report import Answer, Limit, Row
from tests.benchmarks.workloads import PROMPTS, chat_ids, engine_config, generate, make_request

NAMES = {SpeculationMode.AUTO: "n-gram on", SpeculationMode.OFF: "off"}


def measure(*, quick: bool) -> Answer:
    """Interleave whole requests of open chat with drafting and without."""
    num_rounds, max_tokens = (1, 16) if quick else (25, 128)
    engine = Engine.from_config(engine_config())
    prompt = chat_ids(engine.tokenizer, PROMPTS["chat"])
    ids = count()

    def run(mode: SpeculationMode) -> Mapping[str, Sequence[float]]:
        request = make_request(f"r{next(ids)}", prompt, max_tokens, mode=mode)
        return {NAMES[mode]: [generate(engine, [request]).tokens_per_s]}

    rounds = interleave([partial(run, mode) for mode in NAMES], num_rounds=num_rounds)
    ratios = rounds.ratios(NAMES[SpeculationMode.AUTO], NAMES[SpeculationMode.OFF])
    return Answer(
        question="Tokens/s of open chat with the n-gram drafter on and off?",
        model=engine.model_id,
        rows=tuple(Row.of(name, rounds, "tokens/s") for name in NAMES.values()),
        limits=(Limit.at_least_of("chat: n-gram on / off", ratios, 0.98),),
        counts={"rounds": num_rounds, "max_tokens": max_tokens, "prompt_tokens": len(prompt), "threads": THREADS},
    )
