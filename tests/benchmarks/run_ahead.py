"""What does a drafter that runs ahead of the verdict bring, one thread per actor?"""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count

from cluster.config import BUNDLED
from cluster.engine.drafters.base import Drafter
from cluster.engine.drafters.table import LookupResult
from cluster.engine.lossless.builtin_prompts import CHAT
from cluster.types import Request, SamplingParams, StepStats
from deployments.draft_client import DraftClient
from deployments.draft_health import Change
from tests.benchmarks.asking_drafter import asking_drafter
from tests.benchmarks.measure import Rounds, interleave
from tests.benchmarks.report import Answer, Limit, Row
from tests.benchmarks.run_ahead_harness import (
    NUM_TOKENS,
    Cores,
    PaddingDrafter,
    Target,
    ahead_client,
    load_target,
    local_drafter,
    pin,
    start_drafter,
)
from tests.benchmarks.workloads import chat_ids

BATCHES, TEMPERATURES = (1, 8), (0.0, 1.0)
OFF, LOCAL, ASKED, AHEAD, PADDED = "off", "local", "actor, asked", "actor, ahead", "verify only"
SPEED_UP = {1: 1.3, 8: 1.15}
"""By batch size: tokens/s of the actor that runs ahead over those of the local draft model."""

MAX_WAIT_RATIO, MAX_ROUND_RATIO, MAX_HIT_LOSS = 0.02, 1.05, 0.1

_NUM_LEFT_OUT = 4  # Rounds: the prompts, and the first ones, in which a drafter may still read them.

_Case = tuple[int, float]  # Batch size and temperature.


def measure(*, quick: bool, model: str = BUNDLED, draft: str = BUNDLED) -> Answer:
    """Interleave all ways to draft over one engine.

    Args:
        quick: tiny counts.
        model: the target.
        draft: a draft model for it.
    """
    num_rounds, max_tokens = (1, 40) if quick else (8, 128)
    cores = pin()
    target = load_target(model)
    cases: dict[_Case, Rounds] = {}
    with _ways(target, draft, cores) as ways:
        run = Run(target, ways, max_tokens=max_tokens)
        for num_seqs in BATCHES:
            for temperature in TEMPERATURES:
                cases[num_seqs, temperature] = _interleave(run, (num_seqs, temperature), num_rounds)
        num_pauses = _num_pauses(ways[AHEAD])
    target.engine.close()
    counts = {"rounds": num_rounds, "max_tokens": max_tokens, "num_speculative_tokens": NUM_TOKENS}
    counts["times that the drafter was left alone"] = num_pauses
    return Answer(
        question="Tokens/s without drafts, with a local draft model, an actor asked in turn, and one that runs ahead?",
        model=f"{target.parts.model_id}, draft model {draft}",
        rows=tuple(row for case, samples in cases.items() for row in _rows(case, samples, cores)),
        limits=tuple(_limits(cases)),
        counts=counts | _lookup_counts(cases),
        notes=tuple(_notes(cases, cores)),
    )


@contextmanager
def _ways(target: Target, draft: str, cores: Cores) -> Iterator[Mapping[str, Drafter | None]]:
    """All ways to draft, by name. Two drafters run; a drafter whose verifier asks nothing sleeps."""
    with ExitStack() as stack:
        asked = stack.enter_context(start_drafter(target, draft, cores, fan_out=1))
        ahead = stack.enter_context(start_drafter(target, draft, cores))
        local, cost = local_drafter(target, draft)
        ways: dict[str, Drafter | None] = {
            OFF: None,
            LOCAL: local,
            ASKED: asking_drafter(target.parts, asked.record, max_draft_tokens=NUM_TOKENS, cost=cost),
            AHEAD: ahead_client(target, ahead.record),
            PADDED: PaddingDrafter(),
        }
        yield ways
        target.engine.use_drafter(None)
        for drafter in ways.values():
            if drafter is not None:
                drafter.close()


class Run:
    """One engine and all ways to draft.

    Args:
        target: with the engine.
        ways: drafters by name.
        max_tokens: of each sequence.
    """

    def __init__(self, target: Target, ways: Mapping[str, Drafter | None], *, max_tokens: int) -> None:
        self._engine, self._ways, self._max_tokens = target.engine, ways, max_tokens
        self._prompts = [chat_ids(target.parts.tokenizer, text) for text in CHAT[1:9]]
        self._ids = count()
        self._texts: dict[tuple[_Case, int], list[list[int]]] = {}

    def once(self, way: str, case: _Case, turn: int) -> Mapping[str, Sequence[float]]:
        """Write the texts of a turn with one way to draft; returns samples by name.

        Raises:
            RuntimeError: a drafter failed, or changed a text.
        """
        engine, drafter = self._engine, self._ways[way]
        engine.use_drafter(drafter)
        texts: dict[str, list[int]] = {}
        for request in self._requests(case, turn):
            engine.add(request)
            texts[request.request_id] = []
        window = Window(case[0], drafter if isinstance(drafter, DraftClient) else None)
        while engine.has_work:
            for output in engine.step():
                texts[output.request_id] += output.token_ids
            window.add(engine.last_step)
            if engine.last_step.num_drafter_failures:
                raise RuntimeError(f"{way}: the drafter failed")
        written = list(texts.values())
        if self._texts.setdefault((case, turn), written) != written:
            raise RuntimeError(f"{label_of(way, case)}: another text than without drafts")
        return window.samples(label_of(way, case))

    def _requests(self, case: _Case, turn: int) -> Iterator[Request]:
        num_seqs, temperature = case
        for index in range(num_seqs):
            sampling = SamplingParams(
                max_tokens=self._max_tokens, seed=100 * turn + index, temperature=temperature, ignore_eos=True
            )
            prompt = self._prompts[(turn + index) % len(self._prompts)]
            yield Request(request_id=f"r{next(self._ids)}", prompt_token_ids=prompt, sampling=sampling)


class Window:
    """The rounds of a turn in which all of its sequences decode.

    Args:
        num_seqs: how many there are.
        client: whose lookups are counted, if any.
    """

    def __init__(self, num_seqs: int, client: DraftClient | None) -> None:
        self._num_seqs, self._client = num_seqs, client
        self._num_steps = 0
        self._kept: list[StepStats] = []
        self._lookups: list[Mapping[str, int]] = []  # At the window's beginning and end.

    def add(self, step: StepStats) -> None:
        """Take in a round; those before and behind the window are left out."""
        self._num_steps += 1
        if self._num_steps > _NUM_LEFT_OUT and step.num_running == self._num_seqs:
            self._kept.append(step)
        elif self._num_steps == _NUM_LEFT_OUT or (self._kept and len(self._lookups) == 1):
            self._lookups.append(self._client.stats().lookups if self._client is not None else {})

    def samples(self, label: str) -> Mapping[str, Sequence[float]]:
        """Rates of the whole window, and times of its rounds by their rows."""
        seconds = sum(step.duration_s for step in self._kept)
        num_tokens = sum(step.num_output_tokens for step in self._kept)
        samples: dict[str, list[float]] = {
            label: [num_tokens / seconds],
            f"{label}: tokens/round": [num_tokens / len(self._kept) / self._num_seqs],
            f"{label}: wait": [sum(step.draft_wait_s for step in self._kept) / seconds],
        }
        for step in self._kept:
            samples.setdefault(_rows_name(label, step.num_rows), []).append(step.duration_s)
        before, after = self._lookups
        for result, number in after.items():
            samples[f"{label}: {result}"] = [float(number - before[result])]
        return samples


def label_of(way: str, case: _Case) -> str:
    """How a way to draft is called in the table."""
    return f"{way}, batch {case[0]}, T={case[1]:g}"


def hit_ratios(samples: Rounds, label: str) -> list[float]:
    """Share of lookups that found the outcome in a table in time, round by round."""
    by_result = [samples.samples(f"{label}: {result.value}") for result in LookupResult]
    hits = samples.samples(f"{label}: {LookupResult.HIT.value}")
    return [hit / max(1.0, sum(lookups)) for hit, *lookups in zip(hits, *by_result, strict=True)]


def round_ratios(samples: Rounds, label: str, baseline: str, max_rows: int) -> list[float]:
    """Time of each round over the median of the baseline's rounds with as many rows, where there are any."""
    ratios: list[float] = []
    for num_rows in range(1, max_rows + 1):
        if plain := samples.samples(_rows_name(baseline, num_rows)):
            median = statistics.median(plain)
            ratios += [taken_s / median for taken_s in samples.samples(_rows_name(label, num_rows))]
    return ratios


def _rows_name(label: str, num_rows: int) -> str:
    return f"{label}: {num_rows} rows"


def _interleave(run: Run, case: _Case, num_rounds: int) -> Rounds:
    turns = {way: count() for way in (OFF, LOCAL, ASKED, AHEAD, PADDED)}  # All ways write the same texts.

    def once(way: str) -> Mapping[str, Sequence[float]]:
        return run.once(way, case, next(turns[way]))

    return interleave([partial(once, way) for way in turns], num_rounds=num_rounds)


def _rows(case: _Case, samples: Rounds, cores: Cores) -> Iterator[Row]:
    for way in (OFF, LOCAL, ASKED, AHEAD):
        label = label_of(way, case)
        yield Row.of(label, samples, "tokens/s")
        if way in (ASKED, AHEAD):
            num_cores = len({*cores.verifier, *cores.drafter})
            yield Row.scaled(f"{label}: per core", samples.samples(label), 1 / num_cores, "tokens/s")
        yield Row.of(f"{label}: tokens/round", samples, "tokens")
        if way != OFF:
            yield Row.of(f"{label}: wait", samples, "ratio")


def _limits(cases: Mapping[_Case, Rounds]) -> Iterator[Limit]:
    for case, samples in cases.items():
        num_seqs = case[0]
        ahead, local, padded = (label_of(way, case) for way in (AHEAD, LOCAL, PADDED))
        yield Limit.at_least_of(f"{ahead} / local", samples.ratios(ahead, local), SPEED_UP[num_seqs])
        yield Limit.at_most_of(f"{ahead}: wait / round", samples.samples(f"{ahead}: wait"), MAX_WAIT_RATIO)
        ratios = round_ratios(samples, ahead, padded, num_seqs * (1 + NUM_TOKENS))
        if ratios:
            yield Limit.at_most_of(f"{ahead}: round / verify-only round", ratios, MAX_ROUND_RATIO)
    for num_seqs in BATCHES:
        cold, hot = (_case_hits(cases, (num_seqs, temperature)) for temperature in TEMPERATURES)
        differences = [b - a for a, b in zip(cold, hot, strict=True)]
        yield Limit.at_least_of(f"{AHEAD}, batch {num_seqs}: hit ratio, T=1 less T=0", differences, -MAX_HIT_LOSS)


def _num_pauses(client: Drafter | None) -> int:
    """How often a drafter seemed to be no use; rounds without it are in the numbers."""
    assert isinstance(client, DraftClient)
    transitions = client.stats().transitions
    return sum(transitions[reason] for reason in (Change.SILENT, Change.MALFORMED, Change.LATE, Change.WRONG))


def _case_hits(cases: Mapping[_Case, Rounds], case: _Case) -> list[float]:
    return hit_ratios(cases[case], label_of(AHEAD, case))


def _lookup_counts(cases: Mapping[_Case, Rounds]) -> dict[str, int]:
    names = [(case, f"{label_of(AHEAD, case)}: {result.value}") for case in cases for result in LookupResult]
    return {name: round(sum(cases[case].samples(name))) for case, name in names}


def _notes(cases: Mapping[_Case, Rounds], cores: Cores) -> Iterator[str]:
    if not cores.are_apart:
        yield "ONE CORE ONLY: verifier and drafter took turns on it, and these numbers mean nothing"
    yield "verifier and drafter have one core and one thread each; off and local leave the second core idle"
    yield "wait: share of the round that its drafts took; a local draft model drafts in that time"
    yield f"rounds count from the {_NUM_LEFT_OUT + 1}th on, while the whole batch runs; all ways wrote the same texts"
    for case in cases:
        ratio = statistics.median(_case_hits(cases, case))
        yield f"{label_of(AHEAD, case)}: {100 * ratio:.0f} % of the lookups found the outcome in a table in time"
