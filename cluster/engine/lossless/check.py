"""Runs the check: for each group of prompts the reference first, then every scenario against it."""

import random
import time
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Sequence as Seq
from contextlib import contextmanager
from dataclasses import asdict, replace

from cluster.config import EngineConfig
from cluster.engine.drafters.base import Drafter
from cluster.engine.drafters.grammar import GrammarDrafter
from cluster.engine.engine import Engine
from cluster.engine.lossless.cases import GRAMMAR, REFERENCE, Case, Scenario, cases_of, scenarios
from cluster.engine.lossless.prompts import Prompt, encode
from cluster.engine.lossless.replay import ReplayDrafter, ReplayTrees
from cluster.engine.lossless.report import MAX_DIFFERENCES, Count, Difference, Report, ScenarioResult
from cluster.engine.lossless.serving import Served, build_engine, serve
from cluster.engine.lossless.sources import DraftSource, OutageClock
from cluster.engine.startup import EngineParts
from cluster.errors import ConfigError
from cluster.grammar.compiler import GrammarCompiler

# Prompts that go through everything before the next ones start: an interrupted check has compared something.
_GROUP_SIZE = 32
_SMALL_POOL_SHARE = 0.45


class LosslessCheck:
    """Compares token ids and finish reason of every scenario with the reference.

    Args:
        parts: the loaded model.
        config: the settings that it was loaded with.
        prompts: at least one.
        max_tokens: output tokens of each request.
        thorough: each K in each scenario, every scenario on every prompt.
        num_alone: otherwise, how many prompts also run alone with drafts.
        sources: further sources of drafts, by the name that their scenarios have in reports.
        drafts: run only the scenarios with these drafts; None for all.

    Attributes:
        report: what was found so far; valid at any time.
        num_requests: how many requests a full run serves.

    Raises:
        ConfigError: a prompt is empty or too long.
    """

    def __init__(
        self,
        parts: EngineParts,
        config: EngineConfig,
        prompts: Seq[Prompt],
        *,
        max_tokens: int,
        thorough: bool = False,
        num_alone: int = 100,
        sources: Mapping[str, DraftSource] | None = None,
        drafts: str | None = None,
    ) -> None:
        self._parts, self._config, self._sources = parts, config, sources or {}
        with_outage = [name for name, source in self._sources.items() if source.outage is not None]
        every = scenarios(thorough=thorough, sources=self._sources, with_outage=with_outage)
        self._scenarios = tuple(scenario for scenario in every if drafts in (None, scenario.drafts))
        self._grammars: GrammarCompiler | None = None
        self._num_alone = len(prompts) if thorough else num_alone
        runner = parts.runner
        room = min(runner.max_model_len, runner.num_kv_blocks * runner.block_size) - max_tokens
        self._cases = [
            cases_of(prompt.name, index, _fitting(prompt, encode(prompt, parts.tokenizer), room), max_tokens)
            for index, prompt in enumerate(prompts)
        ]
        self.report = Report(
            model=parts.model_id,
            dtype=runner.dtype,
            numerics=runner.numerics,
            max_tokens=max_tokens,
            num_prompts=len(prompts),
            scenarios={
                scenario.name: ScenarioResult(must_draft=scenario.must_draft, must_break=scenario.has_outage)
                for scenario in self._scenarios
            },
        )
        self.num_requests = sum(
            len(self._part(scenario, cases)) for cases in self._cases for scenario in (REFERENCE, *self._scenarios)
        )

    def run(self, on_phase: Callable[[str], None], on_end: Callable[[], None]) -> Report:
        """Run to the end. After an interruption `report` holds what was compared until then.

        Args:
            on_phase: called with the name of what starts now.
            on_end: called for each of the `num_requests` requests that ended.
        """
        started_s = time.monotonic()
        try:
            for start in range(0, len(self._cases), _GROUP_SIZE):
                group = self._cases[start : start + _GROUP_SIZE]
                self._run_group([case for cases in group for case in cases], on_phase, on_end)
                self.report.num_prompts_done += len(group)
            self.report.is_complete = True
        finally:
            self.report.duration_s = time.monotonic() - started_s
        return self.report

    def _run_group(self, cases: Seq[Case], on_phase: Callable[[str], None], on_end: Callable[[], None]) -> None:
        on_phase(f"reference: {REFERENCE.name}")
        engine = build_engine(
            self._parts,
            self._config,
            REFERENCE,
            num_kv_blocks=self._parts.runner.num_kv_blocks,
            grammars=self._grammars,
        )
        self._grammars = engine.grammars
        expected, _ = serve(engine, map(REFERENCE.request_of, cases), on_end)
        for scenario in self._scenarios:
            if part := self._part(scenario, cases):
                on_phase(scenario.name)
                self._run_scenario(scenario, part, expected, on_end)

    def _run_scenario(
        self, scenario: Scenario, cases: Seq[Case], expected: Mapping[str, Served], on_end: Callable[[], None]
    ) -> None:
        with self._drafter(scenario, expected) as drafter:
            engine = build_engine(
                self._parts,
                self._config,
                scenario,
                num_kv_blocks=self._num_kv_blocks(scenario, cases),
                drafter=drafter,
                grammars=self._grammars,
            )
            # Another order than the reference's, so that a request's neighbours are different prompts.
            served = self._serve(engine, scenario, random.Random(0).sample(cases, len(cases)), on_end)
            for case in cases:
                self._compare(scenario, case, expected[case.key], served[case.key])
            if scenario.has_prefix_cache:
                self._resume(engine, scenario, [case for case in cases if _can_resume(case, expected)], expected)

    @contextmanager
    def _drafter(self, scenario: Scenario, expected: Mapping[str, Served]) -> Iterator[Drafter | None]:
        """What drafts, where the engine does not know it by name; closed whatever happens."""
        drafter: Drafter | None = None
        if scenario.drafts in self._sources:
            drafter = self._sources[scenario.drafts].open()
        elif scenario.drafts == "grammar":
            drafter = GrammarDrafter()
        elif scenario.drafts in (ReplayDrafter.name, ReplayTrees.name):
            texts = {key: served.token_ids for key, served in expected.items()}
            replay = ReplayDrafter if scenario.drafts == ReplayDrafter.name else ReplayTrees
            drafter = replay(texts, self._parts.runner.vocab_size)
        try:
            yield drafter
        finally:
            if drafter is not None:
                drafter.close()

    def _serve(
        self, engine: Engine, scenario: Scenario, cases: Seq[Case], on_end: Callable[[], None]
    ) -> dict[str, Served]:
        result, requests = self.report.scenarios[scenario.name], map(scenario.request_of, cases)
        outage = self._sources[scenario.drafts].outage if scenario.has_outage else None
        if outage is None:
            served, num_preempted = serve(engine, requests, on_end)
        else:
            free = {case.key for case in cases if case.setting != GRAMMAR}
            clock = OutageClock(outage, len(free))
            served, num_preempted = serve(
                engine,
                requests,
                on_end,
                lambda served: clock.after_round({key: each for key, each in served.items() if key in free}),
            )
            result.num_outages += clock.is_proven
        result.num_preempted += num_preempted
        return served

    def _resume(self, engine: Engine, scenario: Scenario, cases: Seq[Case], expected: Mapping[str, Served]) -> None:
        """Go on from the middle of texts whose blocks were written as output, and compare the rest."""
        halves = {case.key: _second_half(case, expected[case.key]) for case in cases}
        served, _ = serve(engine, (scenario.request_of(half) for half, _ in halves.values()), lambda: None)
        self.report.scenarios[scenario.name].num_resumed += len(halves)
        for half, rest in halves.values():
            self._compare(scenario, half, rest, served[half.key])

    def _compare(self, scenario: Scenario, case: Case, expected: Served, actual: Served) -> None:
        result = self.report.scenarios[scenario.name]
        if case.setting != GRAMMAR or scenario.drafts == GRAMMAR:  # Forced tokens prove nothing of other drafts.
            result.num_draft_tokens += actual.num_draft_tokens
            result.num_accepted_tokens += actual.num_accepted_tokens
        result.num_cached_tokens += actual.num_cached_tokens
        count = result.counts.setdefault(case.setting, Count())
        count.num_compared += 1
        count.num_tokens += len(actual.token_ids)
        if _seen(expected) == _seen(actual):
            count.num_identical += 1
        elif len(self.report.differences) < MAX_DIFFERENCES:
            self.report.differences.append(_difference(scenario, case, expected, actual))

    def _part(self, scenario: Scenario, cases: Seq[Case]) -> list[Case]:
        return [case for case in cases if not scenario.is_costly or case.index < self._num_alone]

    def _num_kv_blocks(self, scenario: Scenario, cases: Seq[Case]) -> int:
        runner = self._parts.runner
        if not scenario.has_small_pool:
            return runner.num_kv_blocks
        sizes = [-(-(len(c.prompt_token_ids) + c.sampling.max_tokens) // runner.block_size) for c in cases]
        typical = scenario.max_num_seqs * sum(sizes) / len(sizes)
        return min(runner.num_kv_blocks, max(*sizes, 2, round(_SMALL_POOL_SHARE * typical)))


def _fitting(prompt: Prompt, token_ids: tuple[int, ...], room: int) -> tuple[int, ...]:
    if not 1 <= len(token_ids) <= room:
        raise ConfigError(
            field=f"prompt {prompt.name}", value=f"{len(token_ids)} tokens", allowed=f"1 to {room} tokens"
        )
    return token_ids


def _can_resume(case: Case, expected: Mapping[str, Served]) -> bool:
    return case.setting == "T=0" and len(expected[case.key].token_ids) >= 2


def _second_half(case: Case, expected: Served) -> tuple[Case, Served]:
    """A greedy case whose prompt holds half of its output, and what must come: the rest."""
    cut = len(expected.token_ids) // 2
    half = replace(
        case,
        prompt_token_ids=(*case.prompt_token_ids, *expected.token_ids[:cut]),
        sampling=replace(case.sampling, max_tokens=case.sampling.max_tokens - cut),
    )
    return half, Served(token_ids=expected.token_ids[cut:], finish_reason=expected.finish_reason)


def _seen(served: Served) -> tuple[object, ...]:
    return served.token_ids, served.finish_reason


def _difference(scenario: Scenario, case: Case, expected: Served, actual: Served) -> Difference:
    pairs = zip(expected.token_ids, actual.token_ids, strict=False)
    same = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(expected.token_ids), len(actual.token_ids)))
    return Difference(
        prompt=case.name,
        scenario=scenario.name,
        setting=case.setting,
        sampling=asdict(case.sampling),
        num_speculative_tokens=scenario.request_of(case).speculation.num_speculative_tokens or 0,
        position=same,
        expected=tuple(expected.token_ids),
        actual=tuple(actual.token_ids),
    )
