"""Errors of drafters cost drafts and nothing else; of several drafters, the best draft is taken."""

import itertools
import logging
from collections.abc import Mapping
from collections.abc import Sequence as Seq

import pytest

from cluster.clock import ManualClock
from cluster.engine.drafters.base import Draft, Wanted
from cluster.engine.drafters.best_draft import BestDraft
from cluster.engine.drafters.collect import Drafting, DraftLimits
from cluster.engine.drafters.guard import FIRST_PAUSE_ROUNDS, LONGEST_PAUSE_ROUNDS, GuardedDrafter
from cluster.engine.plan import ScheduledSequence
from cluster.engine.sequence import Sequence, SequenceStatus
from cluster.types import SpeculationMode, SpeculationParams
from tests.cluster.engine.engine_harness import make_engine, random_prompt, request, run, run_alone

LIMITS = DraftLimits(num_speculative_tokens=4, vocab_size=100)


class FixedDrafter:
    """Proposes the same for everybody it knows, raises where it is told to, and keeps a log of its calls.

    Args:
        name: its name.
        token_ids: what it proposes.
        fails: methods that raise.
        only: ids of the sequences that it has a draft for; None for all.
        confidences: what it thinks of its draft.
    """

    def __init__(
        self,
        name: str,
        token_ids: tuple[int, ...] = (),
        *,
        fails: Seq[str] = (),
        only: Seq[str] | None = None,
        confidences: tuple[float, ...] = (),
    ) -> None:
        self._confidences = confidences
        self.name, self._token_ids, self.fails, self._only = name, token_ids, set(fails), only
        self.calls: list[tuple[str, object]] = []

    def propose(self, wanted: Seq[Wanted]) -> Mapping[str, Draft]:
        ids = [want.sequence.request_id for want in wanted]
        self._log("propose", ids)
        return {
            key: Draft(token_ids=self._token_ids, source=self.name, confidences=self._confidences)
            for key in ids
            if self._only is None or key in self._only
        }

    def begin_round(self, items: Seq[ScheduledSequence]) -> None:
        self._log("begin_round", len(items))

    def observe(self, sequence: Sequence, draft: Draft, num_accepted: int) -> None:
        self._log("observe", (draft.source, draft.token_ids, num_accepted))

    def forget(self, request_id: str) -> None:
        self._log("forget", request_id)

    def close(self) -> None:
        self._log("close", None)

    def seen(self, method: str) -> list[object]:
        return [value for name, value in self.calls if name == method]

    def _log(self, method: str, value: object) -> None:
        self.calls.append((method, value))
        if method in self.fails:
            raise RuntimeError(f"{self.name} fails in {method}")


def decoding(request_id: str, **speculation: object) -> Sequence:
    item = request(request_id, [1, 2, 3], speculation=SpeculationParams(**speculation))  # type: ignore[arg-type]
    sequence = Sequence.from_request(item)
    sequence.num_computed_tokens, sequence.status = 2, SequenceStatus.RUNNING
    return sequence


@pytest.mark.parametrize("method", ["propose", "begin_round", "observe", "forget", "close"])
def test_a_drafter_that_raises_changes_no_token_and_ends_no_request(method: str) -> None:
    requests = [request(f"r{i}", random_prompt(i, 20), max_tokens=40, ignore_eos=True) for i in range(3)]
    drafter = FixedDrafter("bad", (5, 6, 7), fails=[method])
    engine = make_engine(drafter=drafter)
    results = run(engine, requests, drafter_works=False)
    for item in requests:
        assert results[item.request_id].same_as(run_alone(item))
    engine.close()


def test_an_error_is_counted_in_the_statistics_of_its_round() -> None:
    engine = make_engine(drafter=FixedDrafter("bad", (5,), fails=["propose"]))
    engine.add(request("a", [3, 4, 5], max_tokens=8, ignore_eos=True))
    engine.step()
    assert engine.last_step.num_drafter_failures == 0  # a prompt: nothing was asked
    engine.step()
    assert engine.last_step.num_drafter_failures == 1
    engine.step()
    assert engine.last_step.num_drafter_failures == 0


def test_after_an_error_the_drafter_is_left_alone_for_longer_and_longer() -> None:
    drafter = FixedDrafter("bad", fails=["propose"])
    guarded = GuardedDrafter(drafter)
    rounds_of_calls: list[int] = []
    for number in range(20_000):
        if guarded.propose([]) == {} and len(drafter.seen("propose")) > len(rounds_of_calls):
            rounds_of_calls.append(number)
        guarded.begin_round([])
    gaps = [later - earlier for earlier, later in itertools.pairwise(rounds_of_calls)]
    assert gaps[0] == FIRST_PAUSE_ROUNDS
    assert all(later == min(2 * earlier, LONGEST_PAUSE_ROUNDS) for earlier, later in itertools.pairwise(gaps))
    assert gaps[-1] == LONGEST_PAUSE_ROUNDS


def test_a_drafter_that_works_again_is_forgiven() -> None:
    drafter = FixedDrafter("shaky", (5,), fails=["propose"])
    guarded = GuardedDrafter(drafter)
    for _ in range(4 * FIRST_PAUSE_ROUNDS):
        guarded.propose([])
        guarded.begin_round([])
    drafter.fails.clear()
    for _ in range(20 * FIRST_PAUSE_ROUNDS):
        guarded.propose([])
        guarded.begin_round([])
    assert not guarded.is_paused
    drafter.fails.add("propose")
    guarded.propose([])
    for _ in range(FIRST_PAUSE_ROUNDS):
        assert guarded.is_paused
        guarded.begin_round([])
    assert not guarded.is_paused


def test_sequences_are_forgotten_during_the_pause_too() -> None:
    drafter = FixedDrafter("bad", fails=["propose"])
    guarded = GuardedDrafter(drafter)
    guarded.propose([])
    guarded.forget("a")
    assert drafter.seen("forget") == ["a"]


def test_errors_are_logged_once_per_kind(caplog: pytest.LogCaptureFixture) -> None:
    guarded = GuardedDrafter(FixedDrafter("bad", fails=["propose", "forget"]))
    with caplog.at_level(logging.ERROR):
        for _ in range(200):
            guarded.propose([])
            guarded.begin_round([])
            guarded.forget("a")
    assert len(caplog.records) == 2
    assert guarded.num_failures["forget"] == 200
    assert "bad" in caplog.text


def test_the_second_drafter_serves_what_the_first_left_and_drafts_carry_their_source() -> None:
    first, second = FixedDrafter("first", (1,), only=["a"]), FixedDrafter("second", (2,))
    drafting = Drafting(BestDraft((first, None), (second, None)), LIMITS, ManualClock())
    sequences = [decoding("a"), decoding("b")]
    assert drafting.propose(sequences) == {"a": (1,), "b": (2,)}
    assert second.seen("propose") == [["a", "b"]]
    for sequence, source in zip(sequences, ("first", "second"), strict=True):
        item = ScheduledSequence(sequence=sequence, start=2, num_tokens=1, draft_token_ids=(9,), epoch=0)
        assert drafting.observe(item, (0,)) == source
    # Both hear of every verdict, and of whose draft it was.
    assert first.seen("observe") == second.seen("observe") == [("first", (9,), 1), ("second", (9,), 1)]


def test_a_second_drafter_whose_drafts_cost_time_is_asked_only_where_it_promises_more() -> None:
    second = FixedDrafter("second", (2, 3))
    drafter = BestDraft(
        (FixedDrafter("first", (1,)), None),
        (second, lambda want: 2.0 if want.sequence.request_id == "b" else 0.5),
    )
    drafts = Drafting(drafter, LIMITS, ManualClock()).propose([decoding("a"), decoding("b")])
    assert second.seen("propose") == [["b"]]
    assert drafts == {"a": (1,), "b": (2, 3)}


def test_of_two_drafts_the_one_with_more_expected_tokens_wins() -> None:
    first = FixedDrafter("first", (1, 1, 1), confidences=(0.2, 0.5, 0.5))
    second = FixedDrafter("second", (2, 2), confidences=(0.9, 0.9))
    drafts = BestDraft((first, None), (second, None)).propose([Wanted(sequence=decoding("a"), max_tokens=4)])
    assert drafts["a"].source == "second"


def test_an_error_of_the_first_leaves_the_second_at_work() -> None:
    first, second = FixedDrafter("first", (1,), fails=["propose"]), FixedDrafter("second", (2,))
    drafting = Drafting(BestDraft((first, None), (second, None)), LIMITS, ManualClock())
    for _ in range(3):
        assert drafting.propose([decoding("a")]) == {"a": (2,)}
    assert (drafting.take_failures(), drafting.take_failures()) == (1, 0)


@pytest.mark.parametrize(
    ("speculation", "expected"),
    [
        ({}, {"a": (1,)}),
        ({"drafter": "first"}, {"a": (1,)}),
        ({"drafter": "second"}, {"a": (2,)}),
        ({"drafter": "off"}, {}),
        ({"mode": SpeculationMode.OFF}, {}),
        ({"num_speculative_tokens": 0}, {}),
    ],
)
def test_a_request_chooses_its_drafter(speculation: dict[str, object], expected: dict[str, tuple[int, ...]]) -> None:
    both = BestDraft((FixedDrafter("first", (1,)), None), (FixedDrafter("second", (2,)), None))
    drafting = Drafting(both, LIMITS, ManualClock())
    assert drafting.names == ("off", "first", "second")
    assert drafting.propose([decoding("a", **speculation)]) == expected


def test_drafts_are_cut_to_their_limit_and_before_the_first_id_that_is_no_token() -> None:
    def propose(*token_ids: int, **speculation: int) -> Mapping[str, tuple[int, ...]]:
        return Drafting(FixedDrafter("any", token_ids), LIMITS, ManualClock()).propose([decoding("a", **speculation)])

    assert propose(1, 2, 3, 4, 5) == {"a": (1, 2, 3, 4)}
    assert propose(1, 2, 3, num_speculative_tokens=2) == {"a": (1, 2)}
    assert propose(1, 100, 2) == propose(1, -1, 2) == propose(1, 1 << 70) == {"a": (1,)}
    assert propose(-1) == propose() == {}


def test_the_time_that_drafting_takes_is_the_wait_of_the_round() -> None:
    clock = ManualClock()

    class SlowDrafter(FixedDrafter):
        def propose(self, wanted: Seq[Wanted]) -> Mapping[str, Draft]:
            clock.advance(0.25)
            return super().propose(wanted)

    drafting = Drafting(SlowDrafter("slow", (1,)), LIMITS, clock)
    drafting.propose([decoding("a")])
    assert drafting.wait_s == 0.25
    drafting.propose([])
    assert drafting.wait_s == 0.0


def test_closing_reaches_both_drafters() -> None:
    first, second = FixedDrafter("first", fails=["close"]), FixedDrafter("second")
    engine = make_engine(drafter=BestDraft((first, None), (second, None)))
    engine._drafting.close()
    assert first.seen("close") == second.seen("close") == [None]
