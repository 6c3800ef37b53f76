"""What do forced tokens bring when a JSON schema must be followed, and what does its mask cost?"""

import json
import time
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import count
from statistics import fmean

import numpy as np

from cluster.engine import sampler_kernels as kernels
from cluster.engine.drafters.grammar import GrammarDrafter
from cluster.engine.drafters.ngram import NgramDrafter
from cluster.engine.engine import Engine
from cluster.grammar.limits import GrammarLimits
from cluster.grammar.matcher import GrammarMatcher
from cluster.grammar.source import json_schema_grammar
from cluster.types import FinishReason, Request, SamplingParams
from tests.benchmarks.measure import THREADS, Variant, interleave
from tests.benchmarks.report import Answer, Limit, Row
from tests.benchmarks.workloads import chat_ids, engine_config, generate

OFF, GRAMMAR, BOTH = "off", "grammar", "grammar + lookup"
MASK, APPLY, FORCED = "mask of a position", "mask applied to its logits", "forced tokens of a round"

TEXTS = (
    "Ada Lovelace, born 1815 in London, can be reached at ada@example.com; she likes chess and music.",
    "Our customer Bo Berg from Oslo (bo.berg@example.com), born in 1990, asked about skiing and cooking.",
    "Write to Flo Murphy, flo@example.com. She was born in Cork in 1984 and enjoys sailing.",
    "The new member is Gus Ozols of Riga, year of birth 1972, gus@example.com, interests: chess, hiking.",
)
_PROPERTIES: Mapping[str, Mapping[str, object]] = {
    "full_name": {"type": "string", "maxLength": 40},
    "email_address": {"type": "string", "pattern": "^[a-z.]{1,20}@example\\.com$"},
    "year_of_birth": {"type": "integer", "minimum": 1800, "maximum": 2030},
    "place_of_birth": {"type": "string", "maxLength": 20},
    "interests": {"type": "array", "items": {"enum": ["chess", "music", "skiing", "cooking", "sailing", "hiking"]}},
    "is_active_customer": {"type": "boolean"},
    "preferred_contact": {"enum": ["email", "telephone", "letter"]},
}
SCHEMA = {
    "type": "object",
    "properties": {
        **_PROPERTIES,
        "interests": {**_PROPERTIES["interests"], "minItems": 1, "maxItems": 3},
        "record_version": {"const": "customer-record/2"},
    },
    "required": [*_PROPERTIES, "record_version"],
    "additionalProperties": False,
}


def measure(*, quick: bool) -> Answer:
    """Interleave whole answers of one stream: extraction of a record, greedy.

    Raises:
        RuntimeError: drafts changed a text, or one does not follow the schema.
    """
    num_rounds, texts = (1, TEXTS[:1]) if quick else (7, TEXTS)
    engine = Engine.from_config(engine_config(enable_prefix_cache=True))
    grammar = json_schema_grammar(SCHEMA, GrammarLimits())
    prompts = [chat_ids(engine.tokenizer, f"Extract a customer record as JSON.\n\n{text}") for text in texts]
    bench = _Bench(engine, grammar, prompts, max_tokens=16 if quick else 160)
    variants: list[Variant] = [partial(bench.run, name) for name in (OFF, GRAMMAR, BOTH)]
    rounds = interleave([*variants, bench.mask_costs], num_rounds=num_rounds)
    return Answer(
        question="Tokens/s of one stream under a JSON schema, prompts from the prefix cache?",
        model=engine.model_id,
        rows=(
            *(Row.of(name, rounds, "tokens/s") for name in (OFF, GRAMMAR, BOTH)),
            *(Row.of(f"{name}: tokens/round", rounds, "tokens") for name in (OFF, GRAMMAR, BOTH)),
            *(Row.of(name, rounds) for name in (MASK, APPLY, FORCED)),
        ),
        limits=(Limit.at_least_of(f"{BOTH} / {OFF}", rounds.ratios(BOTH, OFF), 2.5),),
        counts={"rounds": num_rounds, "prompts": len(prompts), "threads": THREADS},
        notes=("all ways wrote the same tokens, and every text follows the schema",),
    )


class _Bench:
    """One engine, used with and without drafts."""

    def __init__(self, engine: Engine, grammar: str, prompts: Sequence[tuple[int, ...]], *, max_tokens: int) -> None:
        self._engine, self._grammar, self._prompts, self._max_tokens = engine, grammar, prompts, max_tokens
        self._ids = count()
        self._texts: dict[int, list[int]] = {}

    def run(self, name: str) -> Mapping[str, Sequence[float]]:
        """All prompts, one after the other."""
        longest = self._engine.config.num_speculative_tokens
        drafters = {OFF: None, GRAMMAR: GrammarDrafter(), BOTH: NgramDrafter(max_draft_tokens=longest)}
        self._engine.use_drafter(drafters[name])
        num_tokens = num_rounds = 0
        duration_s = 0.0
        for index, prompt in enumerate(self._prompts):
            request = Request(
                request_id=f"r{next(self._ids)}",
                prompt_token_ids=prompt,
                sampling=SamplingParams(max_tokens=self._max_tokens, seed=0, temperature=0.0),
                grammar=self._grammar,
            )
            done = generate(self._engine, [request])
            token_ids = done.token_ids[request.request_id]
            self._check(index, token_ids, name)
            num_tokens, num_rounds = num_tokens + len(token_ids), num_rounds + done.num_rounds
            duration_s += done.duration_s
        return {name: [num_tokens / duration_s], f"{name}: tokens/round": [num_tokens / num_rounds]}

    def mask_costs(self) -> Mapping[str, Sequence[float]]:
        """Seconds for each position of the texts, without a model."""
        samples: dict[str, list[float]] = {MASK: [], APPLY: [], FORCED: []}
        logits_V = np.zeros(self._engine.vocab_size, np.float32)
        for token_ids in self._texts.values():
            matcher = self._engine.grammars.matcher(self._grammar)
            for token_id in token_ids:
                _time_position(matcher, logits_V, samples)
                matcher.accept(token_id)
        return {name: [fmean(times)] for name, times in samples.items()}

    def _check(self, index: int, token_ids: list[int], name: str) -> None:
        if self._texts.setdefault(index, token_ids) != token_ids:
            raise RuntimeError(f"{name}: drafts changed the text")
        if token_ids[-1] in self._engine.eos_token_ids:
            json.loads(str(self._engine.tokenizer.decode(token_ids[:-1])))
        elif len(token_ids) < self._max_tokens:
            raise RuntimeError(f"{name}: the text ended early, and not with {FinishReason.STOP}")


def _time_position(
    matcher: GrammarMatcher, logits_V: np.ndarray[tuple[int], np.dtype[np.float32]], samples: Mapping[str, list[float]]
) -> None:
    started_s = time.perf_counter()
    matcher.forced_tokens(16)
    forced_s = time.perf_counter()
    mask_W = matcher.allowed()
    masked_s = time.perf_counter()
    kernels.keep_allowed(logits_V, mask_W)
    samples[APPLY].append(time.perf_counter() - masked_s)
    samples[MASK].append(masked_s - forced_s)
    samples[FORCED].append(forced_s - started_s)
