"""The picture of a run: everything that happened is in it, once, in its lane, inside the frame."""

import json
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

from cluster.clock import ManualClock
from cluster.engine.drafters.draft_ahead import DraftModel
from cluster.engine.drafters.run_ahead import RunAhead
from cluster.messages import Open, Round, Row
from cluster.types import SamplingParams
from tests.benchmarks.environment import ROOT
from tests.benchmarks.timeline_svg import RESULTS, Pass, PassKind, Timeline, timeline_svg
from tests.benchmarks.timeline_svg import Round as ShownRound
from tests.benchmarks.traced_drafter import TracedAhead, passes_from_json
from tests.cluster.engine.engine_harness import random_prompt, tiny_runner
from tests.tiny import VOCAB_SIZE

SVG = "{http://www.w3.org/2000/svg}"


def round_of(index: int, result: str, num_drafted: int = 0, num_accepted: int = 0) -> ShownRound:
    began_s = 1000.0 + 0.02 * index
    return ShownRound(
        began_s=began_s,
        sent_s=began_s + 0.001,
        forward_s=began_s + 0.017,
        ended_s=began_s + 0.02,
        base_length=50 + 3 * index,
        result=result,
        num_drafted=num_drafted,
        num_accepted=num_accepted,
    )


def pass_of(began_s: float, kind: PassKind, *tables: int) -> Pass:
    return Pass(began_s=1000.0 + began_s, ended_s=1000.004 + began_s, kind=kind, tables=tables)


TIMELINE = Timeline(
    title="Rounds & passes",
    subtitle="a < b",
    rounds=(round_of(0, "none"), round_of(1, "hit", 4, 3), round_of(2, "miss"), round_of(3, "late", 2, 0)),
    passes=(
        pass_of(-0.5, PassKind.READING),  # Before the picture begins.
        pass_of(0.002, PassKind.TRUNK),
        pass_of(0.006, PassKind.BRANCHES, 50),  # Found by round 1.
        pass_of(0.022, PassKind.TRUNK, 53),  # Found by round 2, with another outcome.
        pass_of(0.070, PassKind.BRANCHES, 56),  # Too late for round 3.
        pass_of(0.075, PassKind.BRANCHES, 59),  # Of the last round: nobody knows.
    ),
    heard=((999.0, 44), (1000.0015, 50), (1000.0215, 53), (1000.0415, 56)),
)


def elements(svg: str, name: str) -> list[ElementTree.Element]:
    return [item for item in ElementTree.fromstring(svg).iter() if item.get("class") == name]


def span(bar: ElementTree.Element, place: str, size: str) -> tuple[float, float]:
    start = float(bar.attrib[place])
    return start, start + float(bar.attrib[size])


def columns(bar: ElementTree.Element) -> tuple[float, float]:
    return span(bar, "x", "width")


def lines(bar: ElementTree.Element) -> tuple[float, float]:
    return span(bar, "y", "height")


def points(path: ElementTree.Element) -> tuple[tuple[float, float], tuple[float, float]]:
    start, end = path.attrib["d"].removeprefix("M").split("L")
    return (float(start.split()[0]), float(start.split()[1])), (float(end.split()[0]), float(end.split()[1]))


def check_bars_apart(bars: list[ElementTree.Element]) -> None:
    ordered = sorted(map(columns, bars))
    for (_, end), (start, _) in pairwise(ordered):
        assert end <= start + 0.02, "two bars of one lane lie on each other"


def test_each_round_and_pass_has_its_bar_and_its_colour() -> None:
    svg = timeline_svg(TIMELINE)
    forwards, passes = elements(svg, "forward"), elements(svg, "pass")
    assert [bar.get("fill") for bar in forwards] == [RESULTS[item.result][0] for item in TIMELINE.rounds]
    assert sorted(Counter(bar.get("fill") for bar in passes).values()) == [2, 3]
    assert [item.text for item in elements(svg, "accepted")] == ["–", "3/4", "–", "0/2"]
    assert [item.text for item in elements(svg, "lane")] == ["verifier", "drafter"]


def test_the_lanes_do_not_overlap_and_time_runs_to_the_right() -> None:
    svg = timeline_svg(TIMELINE)
    forwards, passes = elements(svg, "forward"), elements(svg, "pass")
    check_bars_apart(forwards + elements(svg, "overhead"))
    check_bars_apart(passes)
    assert max(lines(bar)[1] for bar in forwards) < min(lines(bar)[0] for bar in passes)
    starts = [columns(bar)[0] for bar in forwards]
    scale = (starts[1] - starts[0]) / 0.02
    assert columns(passes[0])[0] - starts[0] == pytest.approx(0.001 * scale, abs=0.1)


def test_a_line_leads_from_each_table_to_the_lookup_that_found_it() -> None:
    svg = timeline_svg(TIMELINE)
    answered = elements(svg, "answered")
    assert [line.get("stroke") for line in answered] == [RESULTS["hit"][0], RESULTS["miss"][0]]
    begins = [columns(bar)[0] for bar in elements(svg, "overhead")][2::2]
    for line, sent, begin in zip(answered, elements(svg, "pass")[1:], begins, strict=False):
        (x1, y1), (x2, y2) = points(line)
        assert (x1, x2) == pytest.approx((columns(sent)[1], begin), abs=0.02)
        assert y1 > y2, "it leads from the drafter up to the verifier"
    assert [mark.get("fill") == "#ffffff" for mark in elements(svg, "table")] == [False, False, True]


def test_a_line_leads_from_each_round_down_to_the_drafter() -> None:
    told = elements(timeline_svg(TIMELINE), "told")
    assert len(told) == 3
    assert all(start[0] < end[0] and start[1] < end[1] for start, end in map(points, told))


@pytest.mark.parametrize("num_rounds", [1, 2, 60])
def test_all_of_it_lies_inside_the_frame(num_rounds: int) -> None:
    rounds = tuple(round_of(index, "hit", 4, 4) for index in range(num_rounds))
    passes = tuple(pass_of(0.02 * index + 0.018, PassKind.TRUNK) for index in range(num_rounds))  # Beyond the end, too.
    svg = timeline_svg(Timeline(title="t", subtitle="s", rounds=rounds, passes=passes, heard=()))
    root = ElementTree.fromstring(svg)
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    for bar in root.iter(f"{SVG}rect"):
        right = float(bar.get("x", 0)) + float(bar.attrib["width"])
        assert 0 <= float(bar.get("x", 0)) <= right <= width + 0.01
    for text in root.iter(f"{SVG}text"):
        assert float(text.attrib["font-size"]) >= 11, "too small to read"
        half = 0.29 * float(text.attrib["font-size"]) * len(text.text or "")
        left = {"start": 0.0, "middle": half, "end": 2 * half}[text.attrib["text-anchor"]]
        x = float(text.attrib["x"])
        assert 0 <= x - left <= x - left + 2 * half <= width, text.text
        assert 0 < float(text.attrib["y"]) < height
    times = [float(item.text or "") for item in elements(svg, "time")]
    assert times == sorted(set(times)) and len(times) >= 2 and times[0] == 0


def test_the_drafters_passes_are_noted_with_what_they_were_for_and_the_tables_they_sent() -> None:
    traced = TracedAhead(
        RunAhead(
            DraftModel(tiny_runner(512)), clock=ManualClock(), incarnation=1, tokenizer_hash="t", vocab_size=VOCAB_SIZE
        )
    )
    prompt = random_prompt(1, 150)
    sampling = SamplingParams(max_tokens=50, seed=1, temperature=0.0)
    traced.handle(b"v", Open(sequence=1, epoch=0, num_prompt_tokens=150, token_ids=prompt, sampling=sampling))
    while traced.has_work:
        traced.step()
    row = Row(sequence=1, epoch=0, base_length=151, new_token_ids=(5,), draft_token_ids=(6, 7), num_tokens=2)
    traced.handle(b"v", Round(number=1, verify_s=1.0, rows=(row,)))
    while traced.has_work:
        traced.step()
    noted = json.loads(json.dumps(traced.to_json()))
    passes = passes_from_json(noted["passes"])
    assert passes == tuple(traced.passes)
    reading, trunk, branches = PassKind.READING, PassKind.TRUNK, PassKind.BRANCHES
    assert [item.kind for item in passes] == [reading, reading, trunk, branches, branches]
    assert [item.tables for item in passes] == [(), (), (), (), (151,)]
    assert [base_length for _, base_length in noted["heard"]] == [151]
    assert all(item.began_s < item.ended_s for item in passes)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.engine
def test_one_command_draws_a_real_run(tmp_path: Path, tiny_model_dir: Path, tiny_draft_dir: Path) -> None:
    output = tmp_path / "timeline.svg"
    command = [sys.executable, "-m", "tests.benchmarks.timeline", "--output", str(output), "--rounds", "40"]
    command += ["--model", str(tiny_model_dir), "--draft", str(tiny_draft_dir)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    svg = output.read_text(encoding="utf-8")
    assert len(elements(svg, "forward")) == 40
    assert elements(svg, "pass") and elements(svg, "told")
    check_bars_apart(elements(svg, "forward") + elements(svg, "overhead"))
    check_bars_apart(elements(svg, "pass"))
