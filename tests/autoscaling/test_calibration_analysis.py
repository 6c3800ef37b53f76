from dataclasses import replace

import pytest

from autoscaling.calibration_analysis import (
    Drafts,
    best_fixed,
    break_even,
    cells,
    crossover,
    predicted_tokens_per_s,
    round_time_errors,
    speed_up,
    warnings,
)
from cluster.engine.budget import expected_tokens
from cluster.engine.calibration import Point
from tests.calibrations import TIMES, make_acceptance, make_calibration, make_point


def sweep(*speed_ups: tuple[int, float | None]) -> list[Point]:
    """Plain decoding and K = 4 at each concurrency; None where K = 4 was not measured."""
    points = []
    for concurrency, speed in speed_ups:
        plain = make_point(concurrency=concurrency)
        points.append(plain)
        if speed is not None:
            drafted = make_point(concurrency=concurrency, num_tokens=4)
            points.append(replace(drafted, tokens_per_s=speed * plain.tokens_per_s))
    return points


@pytest.mark.parametrize(
    ("speed_ups", "expected"),
    [
        ([(1, 2.0), (8, 1.5), (16, 0.5)], 12.0),  # half way between 1.5 and 0.5
        ([(1, 2.0), (8, 1.5), (16, 1.0)], None),
        ([(1, 0.9), (8, 0.8)], 1.0),
        ([(2, 0.9)], 2.0),
        ([(1, 2.0), (8, 0.9), (16, 1.2), (32, 0.8)], 24.0),  # the last time that it falls below 1
        ([(1, None), (8, None)], None),
        ([], None),
    ],
)
def test_crossover_is_where_the_best_fixed_k_falls_below_plain_decoding_for_good(
    speed_ups: list[tuple[int, float | None]], expected: float | None
) -> None:
    assert crossover(cells(sweep(*speed_ups), "copy")) == (None if expected is None else pytest.approx(expected))


def test_the_engines_own_choice_does_not_count_as_a_fixed_k() -> None:
    points = sweep((1, 0.5))
    points.append(replace(make_point(num_tokens=None), tokens_per_s=1e6))
    of = cells(points, "copy")
    best = best_fixed(of, 1)
    assert best is not None
    assert best == pytest.approx((4, 0.5))
    assert crossover(of) == 1.0
    assert speed_up(of, None, 1) is not None
    assert speed_up(of, 8, 1) is None


def test_at_break_even_drafts_bring_just_as_many_tokens_per_second_as_plain_decoding() -> None:
    for concurrency in (1, 8, 64):
        plain, drafted = make_point(concurrency=concurrency), make_point(concurrency=concurrency, num_tokens=4)
        needed = break_even(TIMES, drafted)
        at_break_even = make_point(concurrency=concurrency, num_tokens=4, acceptance_length=needed)
        assert at_break_even.tokens_per_s == pytest.approx(plain.tokens_per_s)
        assert break_even(TIMES, plain) == pytest.approx(1.0)


def test_the_time_of_drafting_raises_break_even() -> None:
    point = make_point(num_tokens=4)
    slow = replace(point, round=replace(point.round, draft_s=point.round.total_s))
    assert break_even(TIMES, slow) > 1.5 * break_even(TIMES, point)


def test_text_that_is_guessed_badly_is_warned_of_by_class_and_source() -> None:
    told = warnings(make_calibration())
    assert "chat: alpha = 0.10 with drafts of ngram, below 0.65: such text is guessed badly" in told
    assert not any(text.startswith("copy: alpha") for text in told)


def test_alpha_just_at_the_limit_is_not_warned_of() -> None:
    acceptance = (make_acceptance("copy", rate=0.66), make_acceptance("chat", source="actor", rate=0.64))
    told = warnings(make_calibration(acceptance=acceptance))
    assert [text.split(",")[0] for text in told if "alpha" in text] == ["chat: alpha = 0.64 with drafts of actor"]


def test_mal_under_break_even_is_warned_of_from_the_lowest_concurrency_where_it_stays_so() -> None:
    points = (
        make_point("copy", 1, 4, acceptance_length=3.0),
        make_point("copy", 8, 4, acceptance_length=1.05),
        make_point("copy", 8, 2, acceptance_length=1.1),
        make_point("copy", 64, 4, acceptance_length=1.1),
        make_point("edit", 64, 2, acceptance_length=3.0),
    )
    told = warnings(make_calibration(points=points, acceptance=()))
    assert len(told) == 1
    assert told[0].startswith(
        "copy: from concurrency 8 on MAL is under break-even at every fixed K (1.10 against 1.16 at K = 2"
    )


def test_one_k_that_pays_is_enough_for_no_warning() -> None:
    points = (make_point(num_tokens=8, acceptance_length=1.01), make_point(num_tokens=2, acceptance_length=2.0))
    assert warnings(make_calibration(points=points, acceptance=())) == ()


def test_drafts_of_several_sources_are_weighed_by_how_often_each_had_one() -> None:
    good, bad = make_acceptance(source="ngram", rate=1.0), make_acceptance(source="actor", rate=0.0)
    drafts = Drafts.of((replace(good, num_rounds=4000), replace(bad, num_rounds=4000)), "copy")
    assert drafts.draft_ratio == pytest.approx(0.5)
    assert drafts.survivals == pytest.approx((0.5, 0.5, 0.5, 0.5))
    assert drafts.expected_tokens(2) == pytest.approx(1 + 0.5 * (0.5 + 0.5))
    assert Drafts.of((), "copy").expected_tokens(8) == 1.0


def test_prediction_is_exact_for_a_machine_that_follows_the_table() -> None:
    acceptance = (make_acceptance(rate=0.8),)
    length = expected_tokens(0.8, 4)
    points = tuple(
        make_point(concurrency=concurrency, num_tokens=k, acceptance_length=length if k else 1.0)
        for concurrency in (1, 8, 64)
        for k in (0, 4)
    )
    calibration = make_calibration(points=points, acceptance=acceptance)
    drafts = Drafts.of(acceptance, "copy")
    for point in points:
        assert predicted_tokens_per_s(calibration, point, drafts) == pytest.approx(point.tokens_per_s, rel=1e-3)
    assert round_time_errors(calibration) == pytest.approx([0.0] * len(points))


def test_for_the_engines_choice_the_best_length_is_assumed_and_none_where_drafts_do_not_pay() -> None:
    calibration = make_calibration()
    for rate in (0.05, 0.8):
        drafts = Drafts.of((make_acceptance(rate=rate),), "copy")
        for concurrency in (1, 64):
            point = make_point(concurrency=concurrency, num_tokens=None)
            fixed = [replace(point, num_speculative_tokens=k) for k in range(5)]
            best = max(predicted_tokens_per_s(calibration, each, drafts) for each in fixed)
            assert predicted_tokens_per_s(calibration, point, drafts) == pytest.approx(best)
