"""How fast is plain decoding against transformers' `generate`?"""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import count
from statistics import median

from cluster.engine.engine import Engine
from tests.benchmarks.measure import THREADS, Rounds, Variant, interleave
from tests.benchmarks.report import Answer, Limit, Row
from tests.benchmarks.transformers_baseline import DTYPES, TransformersBaseline
from tests.benchmarks.workloads import PROMPTS, chat_ids, engine_config, generate, make_request

KINDS = ("copy", "edit", "chat")


def measure(*, quick: bool) -> Answer:
    """Interleave whole requests, prefill included, of both; the better dtype of transformers is the baseline."""
    num_rounds, max_tokens = (1, 4) if quick else (7, 128)
    kinds = KINDS[:1] if quick else KINDS
    engine = Engine.from_config(engine_config())
    baselines = [TransformersBaseline(dtype) for dtype in (DTYPES[:1] if quick else DTYPES)]
    prompts = {kind: chat_ids(engine.tokenizer, PROMPTS[kind]) for kind in kinds}
    ids = count()

    def run_engine(kind: str) -> Mapping[str, Sequence[float]]:
        request = make_request(f"r{next(ids)}", prompts[kind], max_tokens)
        return {f"{kind}: Outrider": [generate(engine, [request]).tokens_per_s]}

    def run_baseline(kind: str, baseline: TransformersBaseline) -> Mapping[str, Sequence[float]]:
        return {_name(kind, baseline): [baseline.tokens_per_s(prompts[kind], max_tokens)]}

    variants: list[Variant] = []
    for kind in kinds:
        variants.append(partial(run_engine, kind))
        variants += [partial(run_baseline, kind, baseline) for baseline in baselines]
    rounds = interleave(variants, num_rounds=num_rounds)
    names = [name for kind in kinds for name in (f"{kind}: Outrider", *(_name(kind, each) for each in baselines))]
    limits = (_limit(kind, [_name(kind, each) for each in baselines], rounds) for kind in kinds)
    return Answer(
        question="Tokens/s of one request, prefill included, against transformers' generate?",
        model=engine.model_id,
        rows=tuple(Row.of(name, rounds, "tokens/s") for name in names),
        limits=tuple(limits),
        counts={"rounds": num_rounds, "max_tokens": max_tokens, "threads": THREADS}
        | {f"{kind}_prompt_tokens": len(prompt) for kind, prompt in prompts.items()},
    )


def _name(kind: str, baseline: TransformersBaseline) -> str:
    return f"{kind}: transformers {baseline.name}"


def _limit(kind: str, baselines: Sequence[str], rounds: Rounds) -> Limit:
    best = max(baselines, key=lambda name: median(rounds.samples(name)))
    return Limit.at_least_of(f"{kind}: Outrider / {best}", rounds.ratios(f"{kind}: Outrider", best), 2.0)
