"""The verifier's end of a drafter actor: whatever the drafter does, the text stays and no round waits."""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from cluster.clock import ManualClock
from cluster.engine.budget import DraftCost
from cluster.engine.drafters.best_draft import BestDraft
from cluster.engine.drafters.ngram import NgramDrafter
from cluster.engine.engine import Engine
from cluster.messages import PROTOCOL_VERSION, Close, Hello, Lost, Open, Refusal, Round
from cluster.types import DrafterStats, Request, SpeculationMode, SpeculationParams, StepStats
from deployments.draft_client import DraftClient, DraftClientConfig
from deployments.draft_health import HealthConfig
from tests.cluster.engine.engine_harness import Result, make_engine, random_prompt, request, run_alone
from tests.deployments.scripted_drafter import (
    Answers,
    Edit,
    OneRoundLate,
    RandomBytes,
    ScriptedDrafter,
    Texts,
    edit_tables,
    never,
    old_incarnation,
    swapped,
    with_entries,
)
from tests.tiny import VOCAB_SIZE

ROUND_S = 0.02
HELLO = Hello(version=PROTOCOL_VERSION, incarnation=5, model_hash="m", tokenizer_hash="t", name="verifier")


class Setup:
    """A tiny engine whose drafter is a client of a scripted one. A round takes 20 ms by the clock."""

    def __init__(
        self,
        requests: list[Request],
        *,
        plain: dict[str, Result],
        config: DraftClientConfig | None = None,
        cost: DraftCost | None = None,
        **engine: Any,
    ) -> None:
        self.requests, self.plain = requests, plain
        texts: Texts = {r.prompt_token_ids: plain[r.request_id].token_ids for r in requests}
        self.clock = ManualClock(1000.0)
        self.drafter = ScriptedDrafter(texts, self.clock)
        self.client = DraftClient(
            hello=HELLO,
            node_id="n",
            connect=self.drafter.connect,
            vocab_size=VOCAB_SIZE,
            clock=self.clock,
            config=config or DraftClientConfig(),
            cost=cost,
        )
        self.client.set_peers([self.drafter.candidate()])
        self.engine: Engine = make_engine(drafter=self.client, clock=self.clock, **engine)
        self.results: dict[str, Result] = {}
        self.steps: list[StepStats] = []

    def step(self) -> None:
        for output in self.engine.step():
            self.results.setdefault(output.request_id, Result()).take(output)
        self.steps.append(self.engine.last_step)
        assert self.engine.last_step.num_drafter_failures == 0
        self.clock.advance(ROUND_S)

    def serve(self, requests: list[Request] | None = None, *, max_seqs: int = 8) -> DrafterStats:
        """All requests, a few at a time; the texts must be those without speculation, and nothing may be left."""
        waiting = list(self.requests if requests is None else requests)
        while waiting or self.engine.has_work:
            while waiting and len(self.engine._choices) < max_seqs:
                self.engine.add(waiting.pop(0))
            self.step()
        self.check()
        return self.client.stats()

    def check(self) -> None:
        self.engine.check_integrity()
        for request_id, result in self.results.items():
            assert result.same_as(self.plain[request_id]), request_id
        assert self.client.num_sequences == self.client._tables.num_sequences == 0

    @property
    def num_accepted(self) -> int:
        return sum(sum(step.accepted_per_position) for step in self.steps)


def prompts(number: int, max_tokens: int = 40) -> list[Request]:
    settings: tuple[dict[str, Any], ...] = (
        {"temperature": 0.0},
        {"temperature": 1.0},
        {"temperature": 0.7, "top_k": 9},
    )
    return [
        request(f"r{i}", random_prompt(i, 12 + i), max_tokens=max_tokens, seed=i, ignore_eos=True, **settings[i % 3])
        for i in range(number)
    ]


def alone(requests: list[Request]) -> dict[str, Result]:
    return {item.request_id: run_alone(item) for item in requests}


FEW = prompts(6)
MANY = prompts(24, max_tokens=60)


@pytest.fixture(scope="module")
def few() -> dict[str, Result]:
    return alone(FEW)


@pytest.fixture(scope="module")
def many() -> dict[str, Result]:
    return alone(MANY)


def test_a_perfect_drafter_is_hit_in_every_round_and_multiplies_the_tokens_of_a_round(few: dict[str, Result]) -> None:
    setup = Setup(FEW, plain=few)
    stats = setup.serve()
    assert stats.lookups["hit"] > 30
    assert sum(stats.lookups.values()) == stats.lookups["hit"]
    assert stats.is_connected and not stats.is_quarantined
    assert len(setup.steps) < 16  # 40 tokens a sequence, 5 a round
    (source,) = {source.source for step in setup.steps for source in step.draft_sources}
    assert source == "drafter"
    assert sum(s.num_draft_tokens for step in setup.steps for s in step.draft_sources) == setup.num_accepted
    assert not setup.drafter.opened  # every sequence was closed


def test_the_prompt_is_told_while_it_is_read_and_each_token_once(few: dict[str, Result]) -> None:
    setup = Setup(FEW, plain=few, prefill_chunk_tokens=16)
    setup.serve([FEW[5]])
    kinds = [type(message) for message in setup.drafter.log]
    assert kinds[:2] == [Hello, Open]
    rounds = [message for message in setup.drafter.log if isinstance(message, Round)]
    told = [token for message in rounds for token in message.rows[0].new_token_ids]
    assert told == few["r5"].token_ids[: len(told)]
    assert [message.number for message in rounds] == list(range(len(rounds)))
    assert all(message.verify_s == pytest.approx(ROUND_S) for message in rounds[1:])
    assert kinds[-1] is Close


def constant(answers: Answers) -> Answers:
    return edit_tables(lambda table: with_entries(table, (0, (0, 0, 0, 0, 0))))(answers)


def impossible_ids(answers: Answers) -> Answers:
    return edit_tables(lambda table: with_entries(table, (0, (VOCAB_SIZE, 1 << 30))))(answers)


def wrong_drafts(answers: Answers) -> Answers:
    """The next token is right, what follows is not."""
    return edit_tables(
        lambda table: with_entries(
            table,
            *(
                (e.num_accepted, (e.token_ids[0], *((t + 1) % VOCAB_SIZE for t in e.token_ids[1:])))
                for e in table.entries
            ),
        )
    )(answers)


def other_epoch(answers: Answers) -> Answers:
    return edit_tables(lambda table: replace_table(table, epoch=table.epoch + 1))(answers)


def other_length(answers: Answers) -> Answers:
    return edit_tables(lambda table: replace_table(table, base_length=table.base_length + 1))(answers)


def replace_table(table: Any, **changes: int) -> Any:
    values = {name: getattr(table, name) for name in ("sequence", "epoch", "base_length", "draft_hash", "entries")}
    return type(table)(**(values | changes))


def everything_lost(answers: Answers) -> Answers:
    return [Lost(sequences=tuple(range(64)), reason=reason) for reason in ("unknown", "capacity", "?")]


FAULTS: dict[str, Callable[[], Edit]] = {
    "never answers": lambda: never,
    "answers one round late": OneRoundLate,
    "random bytes": RandomBytes,
    "swapped sequences": lambda: swapped,
    "tables of an old incarnation": lambda: old_incarnation,
    "constant ids": lambda: constant,
    "ids that are no tokens": lambda: impossible_ids,
    "wrong drafts behind right tokens": lambda: wrong_drafts,
    "tables of another epoch": lambda: other_epoch,
    "tables of another length": lambda: other_length,
    "loses everything": lambda: everything_lost,
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("has_fallback", [False, True])
def test_no_fault_changes_the_text_or_stops_a_round(many: dict[str, Result], fault: str, has_fallback: bool) -> None:
    setup = Setup(MANY, plain=many)
    if has_fallback:
        setup.engine.use_drafter(BestDraft((setup.client, None), (NgramDrafter(max_draft_tokens=4), None)))
    setup.drafter.edit = FAULTS[fault]()
    setup.serve()
    assert not any(channel.num_waits for channel in setup.drafter.channels)
    # No round is lost: at worst it is plain decoding, eight sequences at a time.
    assert len(setup.steps) <= 3 * 61 + 3


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("never answers", "late"),
        ("random bytes", "malformed"),
        ("swapped sequences", "wrong"),
        ("constant ids", "wrong"),
        ("ids that are no tokens", "malformed"),
        ("wrong drafts behind right tokens", "wrong"),
        ("tables of another epoch", "late"),
        ("tables of another length", "late"),
        ("tables of an old incarnation", "late"),
    ],
)
def test_b12_a_useless_drafter_is_left_alone_and_the_counters_say_why(
    many: dict[str, Result], fault: str, reason: str
) -> None:
    # Drafts that do not pay are not asked for: here they cost nothing, or the budget would be quicker.
    setup = Setup(MANY, plain=many, cost=DraftCost.free(), draft_budget="fixed")
    setup.drafter.edit = FAULTS[fault]()
    # It has read its prompts long ago: silence counts.
    setup.drafter.edit, bad = list, setup.drafter.edit
    setup.engine.add(MANY[0])
    for _ in range(3):
        setup.step()
    setup.drafter.edit = bad
    setup.serve(MANY[1:])
    stats = setup.client.stats()
    assert stats.transitions[reason] >= 1
    assert stats.is_quarantined
    assert stats.fallbacks["quarantined"] > 100
    rounds_while_paused = setup.drafter.count(Round)
    assert rounds_while_paused < len(setup.steps)


def test_tables_of_an_old_incarnation_count_as_stale(few: dict[str, Result]) -> None:
    setup = Setup(FEW, plain=few)
    setup.drafter.edit = old_incarnation
    lookups = setup.serve().lookups
    assert lookups["stale"] > 10
    assert lookups["stale"] + lookups["none"] == sum(lookups.values())


def test_a_late_drafter_still_serves_what_is_left_of_its_paths(few: dict[str, Result]) -> None:
    setup = Setup(FEW, plain=few)
    setup.drafter.edit = OneRoundLate()
    stats = setup.serve()
    assert stats.lookups["late"] > 20
    assert setup.num_accepted > 20


def test_a11_two_hundred_bad_rounds_then_good_ones_and_the_drafter_is_back(many: dict[str, Result]) -> None:
    setup = Setup(MANY, plain=many)
    setup.drafter.edit = constant
    setup.serve()
    while len(setup.steps) < 200:
        setup.results.clear()
        setup.serve()
    assert setup.client.stats().is_quarantined
    setup.drafter.edit = list
    good_since_s = setup.clock.now_s()
    while setup.client.stats().is_quarantined:
        setup.results.clear()
        setup.serve(MANY[:8])
        assert setup.clock.now_s() - good_since_s < 35.0
    stats = setup.client.stats()
    assert stats.transitions["probe_failed"] >= 1
    assert stats.transitions["recovered"] == 1
    hits = stats.lookups["hit"]
    setup.results.clear()
    assert setup.serve(MANY[:8]).lookups["hit"] > hits + 80


def test_probes_take_a_few_sequences_only(many: dict[str, Result]) -> None:
    config = DraftClientConfig(health=HealthConfig(num_probe_sequences=2, num_probe_lookups=1000))
    setup = Setup(MANY, plain=many, config=config)
    setup.drafter.edit = constant
    setup.serve()
    setup.clock.advance(5.0)
    before = setup.drafter.count(Round)
    setup.results.clear()
    setup.serve(MANY[:16], max_seqs=16)
    rounds = [message for message in setup.drafter.log if isinstance(message, Round)][before:]
    assert rounds
    assert max(len(message.rows) for message in rounds) == 2


def test_a_silent_drafter_is_asked_nothing_and_is_back_at_once_when_it_speaks(many: dict[str, Result]) -> None:
    setup = Setup(MANY, plain=many)
    for item in MANY[:8]:
        setup.engine.add(item)
    for _ in range(3):
        setup.step()
    setup.drafter.is_alive = False
    setup.clock.advance(2.0)
    setup.step()
    assert setup.client.stats().transitions["silent"] == 1
    sent = setup.client.stats().num_sent
    setup.step()
    assert setup.client.stats().num_sent == sent
    setup.drafter.is_alive = True
    back_s = setup.clock.now_s()
    setup.serve(MANY[8:])
    assert setup.client.stats().transitions["recovered"] == 1
    assert not setup.client.stats().is_quarantined
    assert setup.clock.now_s() - back_s < 5.0


def test_a_drafter_that_was_started_anew_is_told_everything_again(many: dict[str, Result]) -> None:
    setup = Setup(MANY, plain=many)
    for item in MANY[:8]:
        setup.engine.add(item)
    for _ in range(60):
        if setup.steps and len(setup.steps) == 4:
            setup.drafter.restart(incarnation=2)
        if not setup.engine.has_work:
            break
        setup.step()
    setup.serve(MANY[8:])
    stats = setup.client.stats()
    assert stats.transitions["restarted"] == 1
    assert stats.lookups["hit"] > 100
    assert not stats.is_quarantined


def test_tables_of_the_drafter_before_the_restart_are_dropped(few: dict[str, Result]) -> None:
    setup = Setup(FEW, plain=few)
    setup.engine.add(FEW[0])
    setup.step()
    setup.step()
    setup.drafter.restart(incarnation=2)
    setup.drafter.channels[0].push(setup.drafter.welcome())
    setup.step()
    assert setup.client.stats().transitions["restarted"] == 1
    assert setup.engine.last_step.num_draft_tokens == 0
    setup.serve(FEW[1:])
    assert setup.client.stats().lookups["hit"] > 10


def test_a_refusal_is_final_for_that_incarnation_and_visible(few: dict[str, Result]) -> None:
    setup = Setup(FEW, plain=few)
    setup.drafter.welcomes = False
    setup.engine.add(FEW[0])
    setup.step()
    setup.drafter.channels[0].push(Refusal(reason="another tokenizer"))
    setup.serve(FEW[1:])
    setup.client.set_peers([setup.drafter.candidate()])
    setup.results.clear()
    setup.serve()
    assert len(setup.drafter.channels) == 1
    assert setup.client.stats().transitions["refused"] == 1
    assert setup.client.stats().fallbacks["disconnected"] > 30
    setup.drafter.restart(incarnation=2)
    setup.drafter.welcomes = True
    setup.client.set_peers([setup.drafter.candidate()])
    setup.results.clear()
    assert setup.serve().lookups["hit"] > 10


def test_a_drafter_of_another_protocol_version_is_refused(few: dict[str, Result]) -> None:
    setup = Setup(FEW, plain=few)
    setup.drafter.welcomes = False
    setup.engine.add(FEW[0])
    setup.step()
    welcome = setup.drafter.welcome()
    setup.drafter.channels[0].push(type(welcome)(PROTOCOL_VERSION + 1, 1, 4, 512))
    stats = setup.serve(FEW[1:])
    assert stats.transitions["refused"] == 1
    assert setup.drafter.count(Open) == 0


def test_when_the_drafter_is_gone_another_one_takes_over(many: dict[str, Result]) -> None:
    setup = Setup(MANY, plain=many)
    for item in MANY[:8]:
        setup.engine.add(item)
    for _ in range(3):
        setup.step()
    other = ScriptedDrafter(setup.drafter.texts, setup.clock, incarnation=7)
    setup.client._peers._connect = other.connect
    setup.client.set_peers([other.candidate("e")])
    setup.serve(MANY[8:])
    stats = setup.client.stats()
    assert setup.drafter.channels[0].is_closed
    assert (stats.transitions["gone"], stats.transitions["welcomed"]) == (1, 2)
    assert other.count(Open) == 24
    assert stats.num_sent == setup.drafter.channels[0].traffic.sent + other.channels[0].traffic.sent


def test_a_drafter_left_alone_is_replaced_by_another_candidate_if_there_is_one(many: dict[str, Result]) -> None:
    setup = Setup(MANY, plain=many)
    other = ScriptedDrafter(setup.drafter.texts, setup.clock, incarnation=7)
    by_name = {"d": setup.drafter, "e": other}
    setup.client._peers._connect = lambda address: by_name[address.ipc or ""].connect(address)
    setup.client.set_peers([setup.drafter.candidate("d"), other.candidate("e", num_sequences=10)])
    setup.drafter.edit = constant
    stats = setup.serve()
    assert stats.transitions["wrong"] == 1
    assert other.count(Open) > 0
    assert not stats.is_quarantined
    assert stats.lookups["hit"] > 100


def test_without_any_drafter_nothing_is_sent_and_the_reason_is_counted(few: dict[str, Result]) -> None:
    setup = Setup(FEW, plain=few)
    setup.client.set_peers([])
    stats = setup.serve()
    assert not setup.drafter.channels
    assert stats.fallbacks["disconnected"] == sum(len(result.token_ids) - 2 for result in few.values())


def test_an_address_that_cannot_be_connected_to_costs_nothing_but_drafts(few: dict[str, Result]) -> None:
    setup = Setup(FEW, plain=few)

    def fail(address: object) -> Any:
        raise OSError("no such socket")

    setup.client._peers._connect = fail
    stats = setup.serve()
    assert stats.transitions["unreachable"] == 1
    setup.client._peers._connect = setup.drafter.connect
    setup.clock.advance(6.0)
    setup.results.clear()
    assert setup.serve().lookups["hit"] > 10


def test_capacity_is_asked_for_again_after_longer_and_longer_pauses(few: dict[str, Result]) -> None:
    setup = Setup(FEW, plain=few)
    setup.drafter.edit = lambda answers: [Lost(sequences=(0,), reason="capacity")]
    setup.serve([FEW[0]])
    # 38 rounds of 20 ms: at once, then after 0.1, 0.2 and 0.4 s.
    assert setup.drafter.count(Open) == 3
    assert setup.client.stats().fallbacks["capacity"] > 25


def test_d1_only_the_sequence_that_is_too_long_does_without(few: dict[str, Result]) -> None:
    setup = Setup(FEW, plain=few)
    setup.drafter.max_model_len = 30
    setup.drafter.edit = lambda answers: answers
    long, short = FEW[5], FEW[0]
    cut = {**few, "long": run_alone(replace(long, request_id="long", prompt_token_ids=random_prompt(99, 40)))}
    setup.plain = cut
    setup.drafter.texts = {**setup.drafter.texts, random_prompt(99, 40): cut["long"].token_ids}
    stats = setup.serve([replace(long, request_id="long", prompt_token_ids=random_prompt(99, 40)), short])
    assert setup.drafter.count(Open) == 1
    assert stats.fallbacks["length"] > 30
    assert stats.lookups["hit"] > 5


def test_a_lost_sequence_that_is_too_long_is_never_opened_again(few: dict[str, Result]) -> None:
    setup = Setup(FEW, plain=few)
    setup.drafter.edit = lambda answers: [Lost(sequences=(0,), reason="length")]
    stats = setup.serve([FEW[0]])
    assert setup.drafter.count(Open) == 1
    assert stats.fallbacks["length"] > 30
    assert not setup.drafter.opened, "it remembers the sequence until it is told of its end"


def test_a_full_queue_loses_no_token_of_what_the_drafter_must_know(few: dict[str, Result]) -> None:
    generator = random.Random(0)
    setup = Setup(FEW, plain=few)  # The scripted drafter checks that each row follows on the one before.
    for item in FEW:
        setup.engine.add(item)
    while setup.engine.has_work:
        setup.drafter.is_full = generator.random() < 0.7
        setup.step()
    setup.check()
    setup.drafter.is_full = False
    setup.results.clear()
    setup.serve([FEW[0]])
    assert not setup.drafter.opened
    assert setup.client.stats().num_dropped > 3
    assert setup.client.stats().lookups["hit"] > 10


def test_d5_a_preempted_sequence_is_opened_again_and_tables_of_its_earlier_epoch_are_dropped(
    many: dict[str, Result],
) -> None:
    setup = Setup(MANY, plain=many, num_blocks=10, max_num_seqs=8)
    setup.serve(max_seqs=24)
    assert sum(step.num_preempted for step in setup.steps) > 0
    assert max(open_.epoch for open_ in setup.drafter.log if isinstance(open_, Open)) > 0
    assert setup.client.stats().lookups["hit"] > 100


def test_d7_aborted_requests_are_closed_at_the_drafter_at_once(many: dict[str, Result]) -> None:
    setup = Setup(MANY, plain=many)
    for item in MANY[:8]:
        setup.engine.add(item)
    for _ in range(4):
        setup.step()
    assert len(setup.drafter.opened) == 8
    for item in MANY[:8]:
        setup.engine.abort(item.request_id)
    assert not setup.drafter.opened
    assert setup.client.num_sequences == 0


def test_b11_nothing_from_a_skipped_round_is_used(few: dict[str, Result]) -> None:
    """A sequence that was left out of rounds draws no draft from before."""
    setup = Setup(FEW, plain=few)
    setup.drafter.edit = edit_tables(lambda table: replace_table(table, base_length=max(1, table.base_length - 1)))
    stats = setup.serve()
    assert stats.lookups["hit"] == 0
    assert setup.num_accepted == 0


@pytest.mark.parametrize(
    "speculation",
    [
        SpeculationParams(mode=SpeculationMode.OFF),
        SpeculationParams(drafter="off"),
        SpeculationParams(num_speculative_tokens=0),
    ],
)
def test_a_request_without_speculation_is_never_told_to_the_drafter(
    few: dict[str, Result], speculation: SpeculationParams
) -> None:
    setup = Setup(FEW, plain=few)
    setup.serve([replace(item, speculation=speculation) for item in FEW])
    assert {type(message) for message in setup.drafter.log} <= {Hello}


def test_a_request_that_names_one_of_two_drafters_is_served_by_that_one(few: dict[str, Result]) -> None:
    setup = Setup(FEW, plain=few)
    setup.engine.use_drafter(BestDraft((setup.client, None), (NgramDrafter(max_draft_tokens=4), None)))
    setup.serve([replace(item, speculation=SpeculationParams(drafter="ngram")) for item in FEW])
    assert {type(message) for message in setup.drafter.log} <= {Hello}
    setup.results.clear()
    setup.serve([replace(item, speculation=SpeculationParams(drafter="drafter")) for item in FEW])
    assert setup.drafter.count(Open) == len(FEW)


def test_a_wait_is_bounded_and_given_up_when_it_is_in_vain(few: dict[str, Result]) -> None:
    setup = Setup(FEW, plain=few, config=DraftClientConfig(draft_wait_s=0.005))
    setup.drafter.edit = never
    started_s = setup.clock.now_s()
    setup.serve([FEW[0]])
    assert setup.drafter.channels[0].num_waits == 4
    waited_s = setup.clock.now_s() - started_s - ROUND_S * len(setup.steps)
    assert waited_s == pytest.approx(4 * 0.005)
    assert sum(step.draft_wait_s for step in setup.steps) == pytest.approx(4 * 0.005)


def test_a_perfect_drafter_is_not_waited_for(few: dict[str, Result]) -> None:
    setup = Setup(FEW, plain=few, config=DraftClientConfig(draft_wait_s=0.005))
    setup.serve()
    assert setup.drafter.channels[0].num_waits == 0


def test_drafts_of_a_sequence_that_accepts_nothing_become_rare(few: dict[str, Result]) -> None:
    config = DraftClientConfig(health=HealthConfig(window=100_000))
    item = request("r0", FEW[0].prompt_token_ids, max_tokens=200, ignore_eos=True)
    setup = Setup([item], plain=alone([item]), config=config)
    setup.drafter.edit = wrong_drafts
    stats = setup.serve()
    drafted = sum(step.num_draft_tokens for step in setup.steps)
    assert 0 < drafted < 100
    assert stats.fallbacks["unprofitable"] > 100


def test_thousands_of_short_requests_leave_nothing_behind(few: dict[str, Result]) -> None:
    requests = [
        replace(FEW[i % 6], request_id=f"q{i}", sampling=replace(FEW[i % 6].sampling, max_tokens=6)) for i in range(600)
    ]
    plain = {r.request_id: few[f"r{i % 6}"] for i, r in enumerate(requests)}
    setup = Setup(requests, plain=plain)
    setup.drafter.texts = {FEW[i].prompt_token_ids: few[f"r{i}"].token_ids for i in range(6)}
    setup.check = lambda: None  # type: ignore[method-assign]  # the texts are shorter
    setup.serve(max_seqs=32)
    assert setup.client.num_sequences == len(setup.client._by_number) == 0
    assert not setup.drafter.opened
    assert not setup.client._closes
    for i, item in enumerate(requests):
        assert setup.results[item.request_id].token_ids == few[f"r{i % 6}"].token_ids[:6]


def test_peers_may_be_set_from_another_thread_at_any_time(few: dict[str, Result]) -> None:
    import threading

    setup = Setup(FEW, plain=few)
    stop = threading.Event()

    def set_peers() -> None:
        generator = random.Random(0)
        while not stop.is_set():
            setup.client.set_peers([setup.drafter.candidate()] if generator.random() < 0.8 else [])
            setup.client.stats()

    thread = threading.Thread(target=set_peers)
    thread.start()
    try:
        setup.serve()
    finally:
        stop.set()
        thread.join()
