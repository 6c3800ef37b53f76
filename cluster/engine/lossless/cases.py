"""What is compared: the sampling settings of a prompt, and the ways in which a request is served."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from cluster.grammar.limits import GrammarLimits
from cluster.grammar.source import json_object_grammar, json_schema_grammar, regex_grammar
from cluster.types import Request, SamplingParams, SpeculationMode, SpeculationParams

LOOKAHEADS = (1, 3, 8)
"""Values of K."""

MIXED, GRAMMAR = "mixed", "grammar"
SETTINGS = ("T=0", "T=0.7", "T=1", MIXED, GRAMMAR)
"""What each prompt is drawn with: a temperature, one of several mixes, or one of several grammars and temperatures."""

_MIXES: tuple[dict[str, Any], ...] = (
    {"temperature": 0.8, "top_k": 20, "top_p": 0.9},
    {"temperature": 1.0, "min_p": 0.1},
    {"temperature": 1.3, "top_p": 0.8, "ignore_eos": True},
    {"temperature": 0.0, "repetition_penalty": 1.2},
    {"temperature": 0.7, "presence_penalty": 0.6, "frequency_penalty": 0.9},
    {"temperature": 0.9, "frequency_penalty": -0.8, "logprobs": 3},
    {"temperature": 0.0, "stop": ("\n\n", ". "), "min_tokens": 4},
    {"temperature": 1.0, "top_k": 1},
)


_RECORD = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "maxLength": 20},
        "number": {"type": "integer", "minimum": 0, "maximum": 999},
        "tags": {"type": "array", "items": {"enum": ["red", "green", "blue"]}, "maxItems": 3},
    },
    "required": ["title", "number", "tags"],
    "additionalProperties": False,
}
_GRAMMARS = (
    json_schema_grammar(_RECORD, GrammarLimits()),
    regex_grammar(r"[A-Z][a-z]{2,8} is (good|bad|both), and [a-z ]{4,40}\.", GrammarLimits()),
    json_object_grammar(GrammarLimits()),
)
_TEMPERATURES = (0.0, 0.7, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A prompt with sampling settings.

    Attributes:
        name: of the prompt.
        index: of the prompt.
        setting: one of `SETTINGS`.
        prompt_token_ids: the prompt.
        sampling: how it is drawn; the seed differs from case to case.
        grammar: that the output follows; empty for none.
    """

    name: str
    index: int
    setting: str
    prompt_token_ids: tuple[int, ...]
    sampling: SamplingParams
    grammar: str = ""

    @property
    def key(self) -> str:
        """Request id."""
        return f"{self.index}/{self.setting}"


def cases_of(name: str, index: int, prompt_token_ids: tuple[int, ...], max_tokens: int) -> list[Case]:
    """One case for each of `SETTINGS`."""
    cases = []
    for number, setting in enumerate(SETTINGS):
        values, grammar = _values_of(setting, index, prompt_token_ids)
        sampling = SamplingParams(max_tokens=max_tokens, seed=index * len(SETTINGS) + number, **values)
        case = Case(name=name, index=index, setting=setting, prompt_token_ids=prompt_token_ids, sampling=sampling)
        cases.append(replace(case, grammar=grammar))
    return cases


def _values_of(setting: str, index: int, prompt: tuple[int, ...]) -> tuple[dict[str, Any], str]:
    """Sampling values and grammar of a setting; grammars and temperatures meet in every pair."""
    if setting == MIXED:
        return _mixed(index, prompt), ""
    if setting == GRAMMAR:
        turn = index // len(_GRAMMARS) % len(_TEMPERATURES)
        return {"temperature": _TEMPERATURES[turn]}, _GRAMMARS[index % len(_GRAMMARS)]
    return {"temperature": float(setting.removeprefix("T="))}, ""


def _mixed(index: int, prompt: tuple[int, ...]) -> dict[str, Any]:
    """Settings that change from prompt to prompt; every other one has a bias and a banned pair of tokens as well."""
    values = dict(_MIXES[index % len(_MIXES)])
    if index // len(_MIXES) % 2:
        values["logit_bias"] = ((prompt[0], 2.0), (prompt[-1], -2.0))
        values["bad_words"] = (prompt[-2:],)
    return values


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A way to serve requests that must not change their tokens.

    Attributes:
        name: shown in reports.
        drafts: where they come from: "none", "ngram", "grammar" (forced tokens alone), "replay" (the reference text
            with one token in eight wrong), "trees" (the same among wrong siblings), or the name of a source from
            outside.
        lookaheads: values of K, given to the requests in turn.
        max_num_seqs: requests served together; 1 serves them alone.
        has_small_pool: the KV cache holds less than half of what runs, so that sequences are preempted.
        has_prefix_cache: requests take up each other's blocks; then greedy ones are resumed from cached output, too.
        has_outage: the source of drafts is lost on the way, and comes back.
        is_costly: runs on the first part of the prompts only.
    """

    name: str
    drafts: str
    lookaheads: tuple[int, ...] = (0,)
    max_num_seqs: int = 16
    has_small_pool: bool = False
    has_prefix_cache: bool = False
    has_outage: bool = False
    is_costly: bool = False

    @property
    def must_draft(self) -> bool:
        """Without a draft it proves nothing."""
        return self.drafts != "none"

    def request_of(self, case: Case) -> Request:
        """The case as a request."""
        turn = case.index + SETTINGS.index(case.setting)
        lookahead = self.lookaheads[turn % len(self.lookaheads)]
        mode = SpeculationMode.ON if self.must_draft else SpeculationMode.OFF
        return Request(
            request_id=case.key,
            prompt_token_ids=case.prompt_token_ids,
            sampling=case.sampling,
            speculation=SpeculationParams(mode=mode, num_speculative_tokens=lookahead),
            grammar=case.grammar,
        )


REFERENCE = Scenario(name="off, alone", drafts="none", max_num_seqs=1)
"""What everything is compared with: no drafts, one request at a time, no prefix cache."""


_OUTAGE_NUM_SEQS = 4
"""Few at a time, so that requests begin before, during and after an outage even if there are not many."""


def scenarios(
    *, thorough: bool, sources: Collection[str] = (), with_outage: Collection[str] = ()
) -> tuple[Scenario, ...]:
    """Every way that is compared with `REFERENCE`.

    Args:
        thorough: each value of K in each of them, instead of in turn, and nothing only on a part of the prompts; and
            the ways that take long.
        sources: names of sources of drafts from outside.
        with_outage: those of them that can be lost.
    """
    in_batch = [Scenario(name=f"n-gram K={k}, batch", drafts="ngram", lookaheads=(k,)) for k in LOOKAHEADS]
    in_turn = [
        Scenario(name="n-gram, alone", drafts="ngram", lookaheads=LOOKAHEADS, max_num_seqs=1, is_costly=True),
        Scenario(name="n-gram, preempted", drafts="ngram", lookaheads=LOOKAHEADS, has_small_pool=True),
        Scenario(name="n-gram, cached", drafts="ngram", lookaheads=LOOKAHEADS, has_prefix_cache=True),
    ]
    for name in sources:
        in_turn += _of_source(name, can_be_lost=name in with_outage, thorough=thorough)
    split = [_only(scenario, k) for scenario in in_turn for k in LOOKAHEADS] if thorough else in_turn
    return (
        *in_batch,
        *split,
        Scenario(name="grammar K=8, batch", drafts="grammar", lookaheads=(8,)),
        *(_lost(name) for name in with_outage if thorough),
        Scenario(name="off, batch", drafts="none"),
        Scenario(name="replay K=8, batch", drafts="replay", lookaheads=(8,)),
        *_of_trees(thorough=thorough),
    )


def _of_trees(*, thorough: bool) -> list[Scenario]:
    batch = Scenario(name="trees, batch", drafts="trees", lookaheads=LOOKAHEADS)
    preempted = replace(batch, name="trees, preempted", has_small_pool=True, is_costly=not thorough)
    cached = replace(batch, name="trees, cached", has_prefix_cache=True, is_costly=not thorough)
    return [batch, preempted, cached]


def _of_source(name: str, *, can_be_lost: bool, thorough: bool) -> list[Scenario]:
    batch = Scenario(name=f"{name}, batch", drafts=name, lookaheads=LOOKAHEADS)
    if not can_be_lost:
        return [batch]
    alone = replace(batch, name=f"{name}, alone", max_num_seqs=1, is_costly=True)
    preempted = replace(batch, name=f"{name}, preempted", has_small_pool=True)
    return [batch, alone, preempted] if thorough else [batch, alone]


def _lost(name: str) -> Scenario:
    return Scenario(
        name=f"{name}, killed",
        drafts=name,
        lookaheads=LOOKAHEADS,
        max_num_seqs=_OUTAGE_NUM_SEQS,
        has_outage=True,
    )


def _only(scenario: Scenario, lookahead: int) -> Scenario:
    drafts, _, way = scenario.name.partition(", ")
    return replace(scenario, name=f"{drafts} K={lookahead}, {way}", lookaheads=(lookahead,), is_costly=False)
