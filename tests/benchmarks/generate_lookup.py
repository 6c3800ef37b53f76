"""How fast is n-gram speculation against transformers' prompt lookup?"""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import count
from statistics import median

from cluster.engine.engine import Engine
from cluster.types import SpeculationMode
from tests.benchmarks.measure import THREADS, Variant, interleave
from tests.benchmarks.report import Answer, Limit, Row
from tests.benchmarks.transformers_baseline import DTYPES, TransformersBaseline
from tests.benchmarks.workloads import PROMPTS, chat_ids, engine_config, generate, make_request

KINDS = ("copy", "edit")
NUM_LOOKUP_TOKENS = (5, 10)


def measure(*, quick: bool) -> Answer:
    """Interleave whole requests; the best of transformers' dtypes and draft lengths is the baseline.

    Raises:
        RuntimeError: speculation changed the text.
    """
    num_rounds, max_tokens = (1, 4) if quick else (7, 128)
    kinds = KINDS[:1] if quick else KINDS
    engine = Engine.from_config(engine_config())
    baselines = [TransformersBaseline(dtype) for dtype in (DTYPES[:1] if quick else DTYPES)]
    prompts = {kind: chat_ids(engine.tokenizer, PROMPTS[kind]) for kind in kinds}
    ids = count()
    texts: dict[str, list[int]] = {}

    def run_engine(kind: str, mode: SpeculationMode) -> Mapping[str, Sequence[float]]:
        request = make_request(f"r{next(ids)}", prompts[kind], max_tokens, mode=mode)
        done = generate(engine, [request])
        if texts.setdefault(kind, done.token_ids[request.request_id]) != done.token_ids[request.request_id]:
            raise RuntimeError(f"{kind}: speculation {mode} changed the text")
        return {_engine(kind, mode): [done.tokens_per_s]}

    def run_baseline(kind: str, baseline: TransformersBaseline, num_lookup: int) -> Mapping[str, Sequence[float]]:
        rate = baseline.tokens_per_s(prompts[kind], max_tokens, num_lookup_tokens=num_lookup)
        return {_lookup(kind, baseline, num_lookup): [rate]}

    pairs = [(baseline, num_lookup) for baseline in baselines for num_lookup in NUM_LOOKUP_TOKENS]
    variants: list[Variant] = []
    for kind in kinds:
        variants += [partial(run_engine, kind, mode) for mode in (SpeculationMode.AUTO, SpeculationMode.OFF)]
        variants += [partial(run_baseline, kind, *pair) for pair in pairs]
    rounds = interleave(variants, num_rounds=num_rounds)
    rows: list[Row] = []
    for kind in kinds:
        names = [_engine(kind, SpeculationMode.AUTO), _engine(kind, SpeculationMode.OFF)]
        names += [_lookup(kind, *pair) for pair in pairs]
        rows += [Row.of(name, rounds, "tokens/s") for name in names]
    best = max((_lookup("copy", *pair) for pair in pairs), key=lambda name: median(rounds.samples(name)))
    ratios = rounds.ratios(_engine("copy", SpeculationMode.AUTO), best)
    return Answer(
        question="Tokens/s of one request, prefill included, against transformers' prompt lookup?",
        model=engine.model_id,
        rows=tuple(rows),
        limits=(Limit.at_least_of(f"copy: Outrider with n-gram / {best}", ratios, 2.5, aim=3.0),),
        counts={"rounds": num_rounds, "max_tokens": max_tokens, "threads": THREADS}
        | {f"{kind}_prompt_tokens": len(prompt) for kind, prompt in prompts.items()},
        notes=("with n-gram drafts and without, Outrider wrote the same tokens in every round",),
    )


def _engine(kind: str, mode: SpeculationMode) -> str:
    return f"{kind}: Outrider, {'plain' if mode is SpeculationMode.OFF else 'n-gram'}"


def _lookup(kind: str, baseline: TransformersBaseline, num_lookup: int) -> str:
    return f"{kind}: transformers {baseline.name}, prompt lookup {num_lookup}"
