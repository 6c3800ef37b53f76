"""How long does a start take when the model has been converted before?

As a script it is one start in a fresh process: `python -m tests.benchmarks.start_up outrider|transformers`.
"""

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial

from tests.benchmarks.environment import ROOT
from tests.benchmarks.measure import THREADS, interleave, torch_threads
from tests.benchmarks.report import Answer, Limit, Row

WHO = ("outrider", "transformers")
PARTS = ("load", "process start to first token")
LIMIT_S = 5.0


def measure(*, quick: bool) -> Answer:
    """Interleave starts of the engine and of transformers; each loads and writes one token."""
    num_rounds = 1 if quick else 7

    def start(who: str) -> Mapping[str, Sequence[float]]:
        started_s = time.perf_counter()
        command = (sys.executable, "-m", "tests.benchmarks.start_up", who)
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
        elapsed_s = time.perf_counter() - started_s
        last = json.loads(done.stdout.splitlines()[-1])
        model.append(last["model"])
        return {f"{who}: {PARTS[0]}": [last["load_s"]], f"{who}: {PARTS[1]}": [elapsed_s]}

    model: list[str] = []
    rounds = interleave([partial(start, who) for who in WHO], num_rounds=num_rounds)
    load_s = rounds.medians(f"outrider: {PARTS[0]}")
    return Answer(
        question="How long does a start take when the model has been converted before?",
        model=model[0],
        rows=tuple(Row.of(f"{who}: {part}", rounds) for part in PARTS for who in WHO),
        limits=(Limit.at_most_of("outrider: load, s", load_s, LIMIT_S),),
        counts={"rounds": num_rounds, "threads": THREADS},
        notes=("load is Engine.from_config, or from_pretrained with the tokenizer; imports are in the whole only",),
    )


def _start_outrider() -> tuple[str, float]:
    from cluster.engine.engine import Engine
    from tests.benchmarks.workloads import PROMPTS, chat_ids, engine_config, generate, make_request

    started_s = time.perf_counter()
    engine = Engine.from_config(engine_config())
    load_s = time.perf_counter() - started_s
    generate(engine, [make_request("r", chat_ids(engine.tokenizer, PROMPTS["short"]), 1)])
    return engine.model_id, load_s


def _start_transformers() -> tuple[str, float]:
    import torch

    from cluster.config import BUNDLED
    from cluster.engine.model_loader import load_reference_model, load_tokenizer
    from cluster.engine.model_source import resolve_model
    from tests.benchmarks.workloads import PROMPTS, chat_ids

    started_s = time.perf_counter()
    source = resolve_model(BUNDLED, revision=None, cache_dir=None)
    model, tokenizer = load_reference_model(source, torch.bfloat16), load_tokenizer(source)
    load_s = time.perf_counter() - started_s
    ids = torch.tensor([chat_ids(tokenizer, PROMPTS["short"])])
    with torch_threads(THREADS), torch.inference_mode():
        model(input_ids=ids).logits[0, -1].argmax()
    return source.model_id, load_s


if __name__ == "__main__":
    model_id, seconds = _start_outrider() if sys.argv[1] == WHO[0] else _start_transformers()
    print(json.dumps({"model": model_id, "load_s": seconds}))
