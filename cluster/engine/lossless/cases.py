"""What is compared: the sampling settings of a prompt, and the ways in which a request is served."""

from dataclasses import dataclass
from typing import Any, Literal

from cluster.types import Request, SamplingParams, SpeculationMode, SpeculationParams

LOOKAHEADS = (1, 3, 8)
"""Values of K."""

MIXED = "mixed"
SETTINGS = ("T=0", "T=0.7", "T=1", MIXED)

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A prompt with sampling settings.

    Attributes:
        name: of the prompt.
        index: of the prompt.
        setting: one of `SETTINGS`.
        prompt_token_ids: the prompt.
        sampling: how it is drawn; the seed differs from case to case.
    """

    name: str
    index: int
    setting: str
    prompt_token_ids: tuple[int, ...]
    sampling: SamplingParams

    @property
    def key(self) -> str:
        """Request id."""
        return f"{self.index}/{self.setting}"


def cases_of(name: str, index: int, prompt_token_ids: tuple[int, ...], max_tokens: int) -> list[Case]:
    """One case for each of `SETTINGS`."""
    cases = []
    for number, setting in enumerate(SETTINGS):
        values = _mixed(index, prompt_token_ids) if setting == MIXED else {"temperature": float(setting[2:])}
        sampling = SamplingParams(max_tokens=max_tokens, seed=index * len(SETTINGS) + number, **values)
        cases.append(
            Case(name=name, index=index, setting=setting, prompt_token_ids=prompt_token_ids, sampling=sampling)
        )
    return cases


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
        drafts: no drafts, the n-gram drafter, or the reference text with one token in eight wrong.
        lookaheads: values of K, given to the requests in turn.
        max_num_seqs: requests served together; 1 serves them alone.
        has_small_pool: the KV cache holds less than half of what runs, so that sequences are preempted.
        has_prefix_cache: requests take up each other's blocks; then greedy ones are resumed from cached output, too.
        is_costly: runs on the first part of the prompts only.
    """

    name: str
    drafts: Literal["none", "ngram", "replay"]
    lookaheads: tuple[int, ...] = (0,)
    max_num_seqs: int = 16
    has_small_pool: bool = False
    has_prefix_cache: bool = False
    is_costly: bool = False

    def request_of(self, case: Case) -> Request:
        """The case as a request."""
        turn = case.index + SETTINGS.index(case.setting)
        lookahead = self.lookaheads[turn % len(self.lookaheads)]
        mode = SpeculationMode.OFF if self.drafts == "none" else SpeculationMode.ON
        return Request(
            request_id=case.key,
            prompt_token_ids=case.prompt_token_ids,
            sampling=case.sampling,
            speculation=SpeculationParams(mode=mode, num_speculative_tokens=lookahead),
        )


REFERENCE = Scenario(name="off, alone", drafts="none", max_num_seqs=1)
"""What everything is compared with: no drafts, one request at a time, no prefix cache."""


def scenarios(*, thorough: bool) -> tuple[Scenario, ...]:
    """Every way that is compared with `REFERENCE`.

    Args:
        thorough: each value of K in each of them, instead of in turn, and nothing only on a part of the prompts.
    """
    in_batch = [Scenario(name=f"n-gram K={k}, batch", drafts="ngram", lookaheads=(k,)) for k in LOOKAHEADS]
    in_turn = (
        Scenario(name="n-gram, alone", drafts="ngram", lookaheads=LOOKAHEADS, max_num_seqs=1, is_costly=True),
        Scenario(name="n-gram, preempted", drafts="ngram", lookaheads=LOOKAHEADS, has_small_pool=True),
        Scenario(name="n-gram, cached", drafts="ngram", lookaheads=LOOKAHEADS, has_prefix_cache=True),
    )
    split = [_only(scenario, k) for scenario in in_turn for k in LOOKAHEADS] if thorough else in_turn
    return (
        *in_batch,
        *split,
        Scenario(name="off, batch", drafts="none"),
        Scenario(name="replay K=8, batch", drafts="replay", lookaheads=(8,)),
    )


def _only(scenario: Scenario, lookahead: int) -> Scenario:
    return Scenario(
        name=scenario.name.replace("n-gram", f"n-gram K={lookahead}"),
        drafts=scenario.drafts,
        lookaheads=(lookahead,),
        max_num_seqs=scenario.max_num_seqs,
        has_small_pool=scenario.has_small_pool,
        has_prefix_cache=scenario.has_prefix_cache,
    )
