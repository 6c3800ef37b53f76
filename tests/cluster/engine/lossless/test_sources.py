"""Drafts from outside are checked as the check's own are, may be lost on the way, and must be there for a proof."""

from collections.abc import Mapping
from collections.abc import Sequence as Seq

import pytest

from cluster.engine.drafters.base import Draft, Wanted
from cluster.engine.drafters.ngram import NgramDrafter
from cluster.engine.lossless.cases import scenarios
from cluster.engine.lossless.check import LosslessCheck
from cluster.engine.lossless.serving import Served
from cluster.engine.lossless.sources import DraftSource, OutageClock
from cluster.types import FinishReason
from tests.cluster.engine.lossless.test_check import PROMPTS, Disturbed, check_of, run


class Lent(NgramDrafter):
    """Drafts from outside: prompt lookup, until it is lost or closed."""

    def __init__(self, *, is_wrong: bool = False) -> None:
        super().__init__(max_draft_tokens=8)
        self.is_lost = self.is_closed = False
        self._is_wrong = is_wrong

    def propose(self, wanted: Seq[Wanted]) -> Mapping[str, Draft]:
        assert not self.is_closed
        if self.is_lost:
            return {}
        # The tiny model never says id 0 in these texts.
        return {
            request_id: Draft(token_ids=(0,) if self._is_wrong else draft.token_ids, source=self.name)
            for request_id, draft in super().propose(wanted).items()
        }

    def close(self) -> None:
        self.is_closed = True


class Lender:
    """Hands out drafters, and takes drafts away during an outage.

    Args:
        comes_back: False for an outage that nothing ends.
        is_wrong: drafts are wrong, all of them.
    """

    def __init__(self, *, comes_back: bool = True, is_wrong: bool = False) -> None:
        self.lent: list[Lent] = []
        self.events: list[str] = []
        self._comes_back, self._is_wrong = comes_back, is_wrong

    def open(self) -> Lent:
        assert all(drafter.is_closed for drafter in self.lent), "two are in use"
        self.lent.append(Lent(is_wrong=self._is_wrong))
        return self.lent[-1]

    def begin(self) -> None:
        self.events.append("begin")
        self.lent[-1].is_lost = True

    def end(self) -> None:
        self.events.append("end")
        self.lent[-1].is_lost = not self._comes_back

    def source(self, *, can_be_lost: bool = True) -> DraftSource:
        return DraftSource(open=self.open, outage=self if can_be_lost else None)


def only(check: LosslessCheck, *names: str) -> LosslessCheck:
    """The check without its other scenarios."""
    check._scenarios = tuple(scenario for scenario in check._scenarios if scenario.name in names)
    assert len(check._scenarios) == len(names)
    return check


def test_drafts_from_outside_are_compared_in_a_batch_and_alone() -> None:
    here, apart = Lender(), Lender()
    sources = {"apart": apart.source(), "here": here.source(can_be_lost=False)}
    report = run(check_of(sources=sources, max_tokens=40, num_alone=3))
    assert report.as_json()["is_lossless"]
    assert report.weaknesses == {}
    results = {name: result for name, result in report.scenarios.items() if "here" in name or "apart" in name}
    assert {name: result.total.num_compared for name, result in results.items()} == {
        "apart, batch": 40,
        "apart, alone": 15,
        "here, batch": 40,
    }
    assert all(result.num_draft_tokens > result.num_accepted_tokens > 0 for result in results.values())
    assert len(apart.lent) == 2
    assert all(drafter.is_closed for drafter in [*here.lent, *apart.lent])
    assert apart.events == []


def test_a_target_that_is_wrong_in_verified_rows_is_found_with_drafts_from_outside() -> None:
    names = ("apart, batch", "apart, alone")
    check = check_of(Disturbed("with drafts"), PROMPTS[:6], max_tokens=40, sources={"apart": Lender().source()})
    report = run(only(check, *names))
    for name in names:
        assert report.scenarios[name].total.num_identical < report.scenarios[name].total.num_compared


def test_thorough_takes_the_source_away_in_the_middle_and_gives_it_back() -> None:
    lender = Lender()
    check = check_of(sources={"apart": lender.source()}, max_tokens=40, thorough=True)
    report = run(only(check, "apart, killed", "apart K=3, preempted"))
    assert report.num_identical == report.num_compared
    assert lender.events == ["begin", "end"]
    assert report.scenarios["apart, killed"].num_outages == 1
    assert report.weaknesses == {}
    assert report.scenarios["apart K=3, preempted"].num_preempted > 0


def test_an_outage_that_does_not_end_proves_little() -> None:
    lender = Lender(comes_back=False)
    report = run(only(check_of(sources={"apart": lender.source()}, max_tokens=40, thorough=True), "apart, killed"))
    assert report.num_identical == report.num_compared
    assert report.weaknesses == {"apart, killed": "no drafts came both before and after an outage"}
    assert report.as_json()["weaknesses"] == report.weaknesses


def test_a_scenario_without_drafts_or_with_wrong_ones_only_is_named() -> None:
    sources = {"wrong": Lender(is_wrong=True).source(can_be_lost=False)}
    report = run(only(check_of(sources=sources, max_tokens=40), "wrong, batch"))
    assert report.num_identical == report.num_compared
    assert report.weaknesses == {"wrong, batch": "no draft was accepted"}
    report = run(check_of(sources=sources, max_tokens=1))
    assert set(report.weaknesses.values()) == {"nothing was drafted"}
    assert set(report.scenarios) - set(report.weaknesses) == {"off, batch"}


def test_a_scenario_that_compared_nothing_is_not_called_weak() -> None:
    report = run(only(check_of(num_alone=0), "n-gram, alone"))
    assert report.scenarios["n-gram, alone"].total.num_compared == 0
    assert report.weaknesses == {}


def test_a_drafter_is_closed_when_the_check_is_interrupted() -> None:
    lender = Lender()

    def on_end() -> None:
        if lender.lent:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        check_of(sources={"apart": lender.source()}).run(lambda _: None, on_end)
    assert [drafter.is_closed for drafter in lender.lent] == [True]


def test_only_what_can_be_lost_is_killed_and_runs_alone() -> None:
    for thorough, expected in ((False, {"a, batch", "a, alone", "b, batch"}), (True, {"a, killed"})):
        names = {s.name for s in scenarios(thorough=thorough, sources=["a", "b"], with_outage=["a"])}
        assert {name for name in names if name[0] in "ab" and "=" not in name} == expected
    assert {f"a K={k}, {way}" for k in (1, 3, 8) for way in ("batch", "alone", "preempted")} <= names
    assert {f"b K={k}, batch" for k in (1, 3, 8)} <= names


def test_an_outage_that_nobody_drafted_before_is_no_proof() -> None:
    lender = Lender()
    lender.open()
    clock = OutageClock(lender, 3)
    served = {str(index): Served() for index in range(3)}
    for each in served.values():
        each.finish_reason = FinishReason.LENGTH
        clock.after_round(served)
    assert lender.events == ["begin", "end"]
    served["2"].num_draft_tokens = 4
    clock.after_round(served)
    assert not clock.is_proven
