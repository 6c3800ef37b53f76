import re
from dataclasses import replace
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from autoscaling.calibration_charts import lookahead_name
from autoscaling.calibration_report import calibration_page, summary_rows
from cluster.engine.calibration import Calibration
from tests.calibrations import make_calibration

_VOID = {"meta", "br", "hr", "img", "link"}


class Checker(HTMLParser):
    """Refuses tags that are closed in the wrong order, and collects what a page loads from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loaded: list[str] = []
        self.headings: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in _VOID:
            self.open.append(tag)
        self.loaded += [value or "" for name, value in attrs if name == "src" or (tag == "link" and name == "href")]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None: ...

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "h2":
            self.headings.append(data)


def check(calibration: Calibration) -> tuple[str, Checker]:
    text, checker = calibration_page(calibration), Checker()
    checker.feed(text)
    checker.close()
    assert checker.open == []
    assert checker.loaded == []
    return text, checker


@pytest.fixture(scope="module")
def whole() -> tuple[str, Checker]:
    return check(make_calibration())


def test_the_page_is_well_formed_and_loads_nothing(whole: tuple[str, Checker]) -> None:
    assert whole[1].headings == [
        "Summary", "Step times", "Acceptance", "Class copy", "Class chat", "Breakdown of a round",
        "Predicted against measured",
    ]  # fmt: skip


def test_every_picture_is_there_and_is_valid_xml(whole: tuple[str, Checker]) -> None:
    pictures = re.findall(r"<svg.*?</svg>", whole[0], flags=re.DOTALL)
    for picture in pictures:
        ElementTree.fromstring(picture)
    titles = set(re.findall(r'aria-label="([^"]*)"', whole[0]))
    assert len(pictures) == len(titles)
    assert titles == {
        "Time of a forward pass by its rows, without context",
        "Acceptance by position, given that all before it were accepted",
        "Estimates of acceptance: predicted against observed",
        *(f"{workload}: {what}" for workload in ("copy", "chat") for what in (
            "throughput", "TPOT", "speed-up over plain decoding", "predicted / measured",
        )),
        *(f"Where a round&#x27;s time goes, drafts {name}" for name in ("off", "K = 4", "auto")),
    }  # fmt: skip


def test_warnings_crossover_and_calibration_error_are_in_the_text(whole: tuple[str, Checker]) -> None:
    text = whole[0]
    assert 'class="warning">chat: alpha = 0.10' in text
    assert "crossover" in text
    assert "Expected calibration error 0.050, over 100 draft tokens." in text
    assert "interrupted" not in text


def test_the_summary_has_a_row_for_each_class() -> None:
    calibration = make_calibration()
    copy, chat = summary_rows(calibration)
    assert copy[:3] == ("copy", "0.80", "100%")
    assert copy[3:5] == ("3.21 (K = 4)", "3.36")
    assert 8 < float(copy[-1]) < 64
    assert 1 < float(chat[-1]) < 8
    assert summary_rows(replace(calibration, crossover={}))[0][-1] == "above 64"


def test_an_interrupted_run_says_so_and_leaves_out_what_is_missing() -> None:
    nothing = make_calibration(points=(), acceptance=(), crossover={}, estimates=(), is_complete=False)
    text, checker = check(nothing)
    assert checker.headings == ["Summary", "Step times"]
    assert "outrider calibrate --resume" in text


def test_cells_that_are_missing_from_the_grid_do_not_break_the_page() -> None:
    points = make_calibration().points
    check(make_calibration(points=points[:1], is_complete=False))
    check(make_calibration(points=points[1:5], crossover={}, acceptance=(), is_complete=False))


def test_names_from_outside_are_escaped() -> None:
    text, _ = check(make_calibration(model_id="<script>alert(1)</script>", points=(), crossover={}))
    assert "<script>" not in text


def test_sampling_is_drawn_where_it_was_timed() -> None:
    points = tuple(
        replace(point, round=replace(point.round, sampling_s=0.1 * point.round.total_s))
        for point in make_calibration().points[:2]
    )
    assert "sampling" in calibration_page(make_calibration(points=points, crossover={}, acceptance=()))


def test_names_of_k() -> None:
    assert [lookahead_name(k) for k in (0, 4, None)] == ["off", "K = 4", "auto"]
