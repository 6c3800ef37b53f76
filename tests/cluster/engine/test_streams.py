"""Dual streams in whole engines: the same tokens, no drafter call beside another, and nothing left behind."""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Sequence as Seq
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cluster.clock import MonotonicClock
from cluster.config import EngineConfig
from cluster.engine.cpu_share import share_of
from cluster.engine.draft_thread import CpuLane
from cluster.engine.drafters.base import Draft, Drafter, Wanted
from cluster.engine.drafters.best_draft import BestDraft
from cluster.engine.drafters.ngram import NgramDrafter
from cluster.engine.engine import Engine
from cluster.engine.plan import ScheduledSequence
from cluster.engine.sequence import Sequence
from cluster.engine.startup import available_threads
from cluster.errors import ConfigError
from cluster.grammar.limits import GrammarLimits
from cluster.grammar.matcher import GrammarMatcher
from cluster.grammar.source import regex_grammar
from cluster.types import Request, Role, SpeculationParams, StepStats
from tests.cluster.engine.drafters import test_draft_model as draft_model
from tests.cluster.engine.drafters import test_head_drafter as heads
from tests.cluster.engine.drafters import test_medusa_mtp_engine as other_heads
from tests.cluster.engine.drafters.head_harness import FIRST_TOKEN, KnowingHead
from tests.cluster.engine.engine_harness import (
    KnowingDrafter,
    Result,
    drain,
    make_engine,
    random_prompt,
    request,
    run,
    run_alone,
    sometimes_wrong,
    tiny_runner,
)

TEMPERATURES = (0.0, 0.7, 1.0)
few = settings(max_examples=6, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])


class CheckedDrafter(KnowingDrafter):
    """Knows the texts, and that nobody calls it twice at once or changes what it reads.

    Args:
        texts: output token ids by request id.
        on_propose: called with the number of the call, in the thread that drafts.
    """

    def __init__(self, texts: Mapping[str, Seq[int]], on_propose: Callable[[int], object] | None = None) -> None:
        super().__init__(texts, edit=sometimes_wrong)
        self._busy, self._on_propose = threading.Lock(), on_propose
        self.threads: Counter[str] = Counter()
        self.faults: list[str] = []
        self._verified: set[str] = set()

    @contextmanager
    def _alone(self, call: str) -> Iterator[None]:
        if not self._busy.acquire(blocking=False):
            self.faults.append(f"{call} beside another call")
            raise AssertionError(self.faults[-1])
        try:
            yield
        finally:
            self._busy.release()

    def promise(self, want: Wanted) -> float:
        """It counts as one that computes."""
        return float(want.max_tokens)

    def propose(self, wanted: Seq[Wanted]) -> Mapping[str, Draft]:
        with self._alone("propose"):
            self.threads[threading.current_thread().name] += 1
            if threading.current_thread().name == "draft" and not self._verified.isdisjoint(_ids(wanted)):
                self.faults.append("drafts for those that are verified now")
            before = [(list(w.sequence.token_ids), w.sequence.epoch, w.sequence.status) for w in wanted]
            drafts = super().propose(wanted)
            if self._on_propose is not None:
                self._on_propose(self.threads.total())
            after = [(list(w.sequence.token_ids), w.sequence.epoch, w.sequence.status) for w in wanted]
            if before != after:
                self.faults.append("a sequence changed while it was drafted for")
            return drafts

    def begin_round(self, items: Seq[ScheduledSequence]) -> None:
        with self._alone("begin_round"):
            self._verified = {item.sequence.request_id for item in items}
            super().begin_round(items)

    def observe(self, sequence: Sequence, draft: Draft, num_accepted: int) -> None:
        with self._alone("observe"):
            super().observe(sequence, draft, num_accepted)

    def forget(self, request_id: str) -> None:
        with self._alone("forget"):
            super().forget(request_id)


def _ids(wanted: Seq[Wanted]) -> set[str]:
    return {want.sequence.request_id for want in wanted}


def requests_of(count: int, *, temperature: float = 0.0, first_token: int | None = None) -> list[Request]:
    prompts = [random_prompt(i, 4 + (i * 37) % 90) for i in range(count)]
    return [
        request(
            f"r{i}",
            prompt if first_token is None else (first_token, *prompt),
            max_tokens=30 + (i * 7) % 20,
            seed=i,
            temperature=temperature,
            top_p=0.95,
            ignore_eos=True,
        )
        for i, prompt in enumerate(prompts)
    ]


@cache
def alone(temperature: float, first_token: int | None = None) -> dict[str, Result]:
    items = requests_of(8, temperature=temperature, first_token=first_token)
    return {item.request_id: run_alone(item) for item in items}


def texts(temperature: float) -> dict[str, list[int]]:
    return {name: result.token_ids for name, result in alone(temperature).items()}


_open: list[Engine] = []


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """Every engine ends its thread."""
    yield
    while _open:
        _open.pop().close()
    assert not threads()


def overlapped(drafter: Drafter, **others: Any) -> Engine:
    _open.append(make_engine(drafter=drafter, **{"overlap": "on", "num_speculative_tokens": 4, **others}))
    return _open[-1]


def num_overlapped(steps: Seq[StepStats]) -> int:
    return sum(step.is_overlapped for step in steps)


def threads() -> set[str]:
    return {thread.name for thread in threading.enumerate() if thread.name == "draft"}


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_a_round_runs_one_half_while_the_other_is_drafted_for_and_changes_no_token(temperature: float) -> None:
    drafter, steps = CheckedDrafter(texts(temperature)), list[StepStats]()
    engine = overlapped(drafter)
    results = run(engine, requests_of(8, temperature=temperature), steps)
    assert all(results[name].same_as(expected) for name, expected in alone(temperature).items())
    assert not drafter.faults
    mixed = [step for step in steps if step.num_running == 8 and step.num_prompt_tokens == 0]
    assert {step.num_sequences for step in mixed} == {4}
    assert num_overlapped(steps) >= len(steps) - 10
    assert drafter.threads["draft"] > 10
    assert drafter.threads["MainThread"] < 10, "only while fewer than two decode"
    assert sum(step.num_drafts for step in mixed) > 3 * len(mixed), "nearly all rows have their drafts"


@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize("kind", ["draft_model", "head", "head beside prompt lookup"])
def test_real_drafters_change_no_token(kind: str, temperature: float) -> None:
    first_token = None if kind == "draft_model" else FIRST_TOKEN  # The head that knows all asks for it.
    drafter: Drafter = draft_model.make_drafter(draft_model.make_model(spoilt=True))
    if kind != "draft_model":
        head = heads.make_drafter(KnowingHead(wrong_every=5))
        drafter = head if kind == "head" else BestDraft((NgramDrafter(max_draft_tokens=4), None), (head, head.promise))
    steps: list[StepStats] = []
    engine = overlapped(drafter, draft_budget="fixed", prefill_chunk_tokens=32)
    results = run(engine, requests_of(8, temperature=temperature, first_token=first_token), steps)
    assert all(results[name].same_as(expected) for name, expected in alone(temperature, first_token).items())
    assert num_overlapped(steps) > 20
    accepted, drafted = sum(sum(s.accepted_per_position) for s in steps), sum(s.num_draft_tokens for s in steps)
    assert 0 < accepted < drafted


@pytest.mark.slow
@other_heads.every_head
def test_heads_of_both_runners_change_no_token_with_preemption_and_prefix_hits(case: str) -> None:
    steps: list[StepStats] = []
    runner = other_heads.runner_for(case)
    wanted = other_heads.expected(runner, other_heads.items())
    engine = other_heads.engine_with(case, runner, overlap="on")
    _open.append(engine)
    for _ in range(2):
        assert other_heads.seen(run(engine, other_heads.items(), steps)) == wanted
    assert num_overlapped(steps) > 5
    assert sum(step.num_preempted for step in steps) > 0


def test_prompt_lookup_alone_has_nothing_to_hide() -> None:
    steps: list[StepStats] = []
    run(overlapped(NgramDrafter(max_draft_tokens=4)), requests_of(4), steps)
    assert not num_overlapped(steps)
    assert not threads()


@pytest.mark.slow
@few
@given(
    seed=st.integers(0, 1000),
    temperature=st.sampled_from(TEMPERATURES),
    num_blocks=st.sampled_from([8, 12, 64]),
    kind=st.sampled_from(["knowing", "draft_model", "head"]),
)
def test_aborts_preemption_and_flips_at_random_rounds_change_no_token(
    seed: int, temperature: float, num_blocks: int, kind: str
) -> None:
    first_token = FIRST_TOKEN if kind == "head" else None
    generator, waiting = random.Random(seed), requests_of(8, temperature=temperature, first_token=first_token)
    drafter: Drafter = CheckedDrafter(texts(temperature))
    if kind == "draft_model":
        drafter = draft_model.make_drafter(draft_model.make_model(spoilt=True))
    elif kind == "head":
        drafter = heads.make_drafter(KnowingHead(wrong_every=4))
    engine = overlapped(drafter, num_blocks=num_blocks, max_num_seqs=6, prefill_chunk_tokens=32)
    results, aborted = dict[str, Result](), set[str]()
    while engine.has_work or waiting:
        for item in [waiting.pop(0) for _ in range(min(len(waiting), generator.randrange(3)))]:
            engine.add(item)
        for _ in range(generator.randrange(6)):
            for output in engine.step():
                results.setdefault(output.request_id, Result()).take(output)
        if generator.random() < 0.2:
            aborted.add(name := f"r{generator.randrange(8)}")
            engine.abort(name)
        if generator.random() < 0.25:
            engine.set_role(generator.choice(list(Role)), max_num_seqs=6)
        engine.check_integrity()
    drain(engine, results)
    for name, expected in alone(temperature, first_token).items():
        if name in aborted:
            found = results.get(name, Result()).token_ids
            assert found == expected.token_ids[: len(found)]
        else:
            assert results[name].same_as(expected)
    assert not isinstance(drafter, CheckedDrafter) or not drafter.faults
    assert not engine._streams._held
    _open.remove(engine)
    engine.close()
    assert not threads()


def test_a_request_that_takes_over_an_id_never_gets_the_draft_of_the_one_before() -> None:
    drafter = CheckedDrafter(texts(0.0))
    engine = overlapped(drafter)
    for item in requests_of(2):
        engine.add(item)
    for _ in range(8):
        engine.step()
    for name in ("r0", "r1"):
        engine.abort(name)
    results: dict[str, Result] = {}
    engine.step()
    for item in requests_of(2):
        engine.add(item)
    drain(engine, results)
    assert all(results[name].same_as(alone(0.0)[name]) for name in ("r0", "r1"))


def test_a_drafter_that_raises_beside_the_pass_costs_drafts_and_no_token() -> None:
    def fail(num_calls: int) -> None:
        if num_calls > 5:
            raise RuntimeError("no more")

    steps: list[StepStats] = []
    engine = overlapped(CheckedDrafter(texts(0.7), on_propose=fail))
    results = run(engine, requests_of(8, temperature=0.7), steps, drafter_works=False)
    assert all(results[name].same_as(expected) for name, expected in alone(0.7).items())
    assert sum(step.num_drafter_failures for step in steps) >= 1


def test_a_drafter_that_hangs_is_left_behind_and_starts_anew_when_it_returns() -> None:
    release, hung = threading.Event(), threading.Event()

    def hang(num_calls: int) -> None:
        if num_calls == 12:
            hung.set()
            assert release.wait(10.0)

    drafter = CheckedDrafter(texts(0.0), on_propose=hang)
    engine = overlapped(drafter)
    engine._streams._stall_s = 0.05
    results: dict[str, Result] = {}
    for item in requests_of(8):
        engine.add(item)
    while not hung.is_set():
        for output in engine.step():
            results.setdefault(output.request_id, Result()).take(output)
    observed = len(drafter.observed)
    for _ in range(4):
        for output in engine.step():
            results.setdefault(output.request_id, Result()).take(output)
        assert engine.last_step.num_output_tokens >= 6, "all decode, without drafts"
        assert engine.last_step.num_drafts == 0
    engine.abort("r7")
    release.set()
    while not engine._streams._thread.is_idle:  # type: ignore[union-attr]
        time.sleep(0.001)
    drafter.faults.clear()  # It has read while rounds went on, hence starts anew.
    drain(engine, results)
    assert all(results[f"r{i}"].same_as(alone(0.0)[f"r{i}"]) for i in range(7))
    assert len(drafter.observed) > observed
    assert not drafter.faults
    assert not drafter.known


def noting(original: Callable[..., Any], callers: set[str]) -> Callable[..., Any]:
    """The method, which also writes down the name of the thread that calls it."""

    def noted(*args: Any, **named: Any) -> Any:
        callers.add(threading.current_thread().name)
        return original(*args, **named)

    return noted


def test_a_drafter_that_returns_too_late_touches_no_grammar_and_no_error_of_its_thread_ends_a_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The late call comes back between two rounds, and whatever follows it ends before the next one."""
    grammar = regex_grammar(r"The (number|word) is: [a-z]{4,20}\.", GrammarLimits())
    items = [
        request(f"r{i}", random_prompt(i, 12), max_tokens=60, seed=i, temperature=0.7, grammar=grammar)
        for i in range(6)
    ]
    expected = {item.request_id: run_alone(item) for item in items}
    release, hung, callers = threading.Event(), threading.Event(), set[str]()

    def hang(num_calls: int) -> None:
        if threading.current_thread().name == "draft" and not hung.is_set():
            hung.set()
            assert release.wait(10.0)

    for method in ("valid_prefix", "forced_tokens", "allowed", "accept"):
        monkeypatch.setattr(GrammarMatcher, method, noting(getattr(GrammarMatcher, method), callers))

    @contextmanager
    def failing(lane: CpuLane) -> Iterator[None]:
        yield
        if hung.is_set():
            raise RuntimeError("the lane is broken")

    monkeypatch.setattr(CpuLane, "work", failing)
    drafter = CheckedDrafter({name: result.token_ids for name, result in expected.items()}, on_propose=hang)
    engine = overlapped(drafter)
    engine._streams._stall_s = 0.05
    results, steps, num_stalled = dict[str, Result](), list[StepStats](), 0
    for item in items:
        engine.add(item)
    while engine.has_work:
        for output in engine.step():
            results.setdefault(output.request_id, Result()).take(output)
        steps.append(engine.last_step)
        num_stalled += engine._streams._stalled is not None
        if num_stalled == 3:
            release.set()
            while not engine._streams._thread.is_idle:  # type: ignore[union-attr]
                time.sleep(0.001)
    assert hung.is_set()
    assert num_stalled >= 3, "rounds went on meanwhile"
    assert callers == {"MainThread"}
    assert all(results[name].same_as(result) for name, result in expected.items())
    assert sum(step.num_drafter_failures for step in steps) >= 1


def test_closing_does_not_wait_for_a_drafter_that_never_returns() -> None:
    release = threading.Event()
    drafter = CheckedDrafter(texts(0.0), on_propose=lambda count: release.wait(10.0) if count == 8 else None)
    engine = overlapped(drafter)
    engine._streams._stall_s = 0.05
    for item in requests_of(4):
        engine.add(item)
    while engine._streams._stalled is None:
        engine.step()
    _open.remove(engine)
    engine.close()
    assert not drafter.faults
    assert threads()
    release.set()
    for thread in threading.enumerate():
        if thread.name == "draft":
            thread.join(5.0)


def test_drafting_starts_beside_the_pass_and_only_what_sticks_out_is_waited_for() -> None:
    """The forward pass of the tiny target is over long before this drafter."""
    drafter = CheckedDrafter(texts(0.0), on_propose=lambda _: time.sleep(0.004))
    steps: list[StepStats] = []
    run(overlapped(drafter, clock=MonotonicClock()), requests_of(4), steps)
    beside = [step for step in steps if step.is_overlapped and step.draft_wait_s > 0]
    assert beside
    assert sum(step.hidden_draft_s for step in beside) > 0
    assert all(step.hidden_draft_s <= step.forward_s + 0.05 for step in beside)


def test_requests_without_drafts_take_their_turns_as_well() -> None:
    items = [
        request("plain", random_prompt(0, 20), max_tokens=20, speculation=SpeculationParams(drafter="off")),
        request("short", random_prompt(1, 20), max_tokens=20, speculation=SpeculationParams(num_speculative_tokens=1)),
        request("free", random_prompt(2, 20), max_tokens=20),
    ]
    expected = {item.request_id: run_alone(item) for item in items}
    drafter = CheckedDrafter({name: result.token_ids for name, result in expected.items()})
    engine = overlapped(drafter)
    results = run(engine, items)
    assert all(results[name].same_as(result) for name, result in expected.items())


def test_auto_keeps_the_way_that_is_faster_and_needs_two_threads_to_try() -> None:
    runner = tiny_runner(256)
    before, num_cores = runner.num_threads, available_threads()
    try:
        for num_threads, looks in ((1, False), (2, True)):
            runner.set_num_threads(num_threads)
            drafter, steps = CheckedDrafter(texts(0.0)), list[StepStats]()
            engine = overlapped(drafter, overlap="auto", num_speculative_tokens=1, clock=MonotonicClock())
            results = run(engine, requests_of(8), steps)
            assert all(results[name].same_as(expected) for name, expected in alone(0.0).items())
            assert bool(num_overlapped(steps)) is looks
            assert not drafter.faults
            assert bool(threads()) is looks
            assert share_of(2) == 2, "all cores are the target's again"
            assert available_threads() == num_cores
    finally:
        runner.set_num_threads(before)


def test_off_is_off() -> None:
    drafter, steps = CheckedDrafter(texts(0.0)), list[StepStats]()
    run(overlapped(drafter, overlap="off"), requests_of(4), steps)
    assert not num_overlapped(steps)
    assert set(drafter.threads) == {"MainThread"}


def test_a_way_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigError, match="overlap = 'maybe' is not allowed: expected one of auto, on, off"):
        EngineConfig(overlap="maybe")  # type: ignore[arg-type]
