"""Draws what a verifier and its drafter did as one SVG: a lane for each, tables and lookups between them. Pure."""

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from xml.sax.saxutils import escape


class PassKind(StrEnum):
    """What a drafter's pass was for.

    - reading: a prompt, or tokens committed while nobody asked for drafts.
    - trunk: the draft in flight; its end gives the outcomes.
    - branches: all outcomes, one token deeper.
    """

    READING = "reading"
    TRUNK = "trunk"
    BRANCHES = "branches"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """A forward pass of the drafter.

    Attributes:
        began_s: monotonic time, which all processes of a machine share.
        ended_s: the same.
        kind: what it was for.
        tables: `base_length` of each table that was sent at its end.
    """

    began_s: float
    ended_s: float
    kind: PassKind
    tables: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """A round of the verifier, with one sequence.

    Attributes:
        began_s: monotonic time.
        sent_s: the draft was looked up and the drafter told; the forward pass begins.
        forward_s: the forward pass ended.
        ended_s: its tokens are committed.
        base_length: committed tokens when it began.
        result: of the lookup at its beginning, a key of `RESULTS`.
        num_drafted: draft tokens that were verified.
        num_accepted: those that were accepted.
    """

    began_s: float
    sent_s: float
    forward_s: float
    ended_s: float
    base_length: int
    result: str
    num_drafted: int
    num_accepted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """Some rounds in a row, and what the drafter did meanwhile.

    Attributes:
        title: one line.
        subtitle: one more.
        rounds: of the verifier, at least one.
        passes: of the drafter.
        heard: (monotonic time, `base_length`) of each round that the drafter took up.
    """

    title: str
    subtitle: str
    rounds: tuple[Round, ...]
    passes: tuple[Pass, ...]
    heard: tuple[tuple[float, int], ...]


RESULTS = {
    "hit": ("#2e7d32", "hit: the outcome was in the table"),
    "miss": ("#c62828", "miss: another outcome"),
    "late": ("#9a5b00", "late: the table was not there yet"),
    "none": ("#616161", "no table was asked for"),
}
"""Colour and meaning of what a lookup may find."""
_PASSES = {
    PassKind.READING: ("#6a3fb5", "reading what was committed"),
    PassKind.TRUNK: ("#1565c0", "trunk: the draft in flight"),
    PassKind.BRANCHES: ("#64b5f6", "branches: all outcomes, one token deeper"),
}
_INK, _FAINT, _OVERHEAD = "#1a1a1a", "#dddddd", "#37474f"

_LEFT, _RIGHT = 96.0, 24.0
_MIN_WIDTH, _ROUND_WIDTH = 1160.0, 80.0
_VERIFIER, _DRAFTER, _AXIS = (84.0, 128.0), (214.0, 250.0), 272.0  # Top and bottom of the lanes; the axis' line.
_LEGEND, _HEIGHT = 326.0, 408.0
_FONT, _SMALL = 13, 12


def timeline_svg(timeline: Timeline) -> str:
    """The whole picture as text."""
    scale = _Scale.of(timeline)
    body = [
        f'<rect width="{scale.width:.0f}" height="{_HEIGHT:.0f}" fill="#ffffff"/>',
        _text(_LEFT, 28, timeline.title, size=17, bold=True),
        _text(_LEFT, 50, timeline.subtitle),
        *_axis(scale),
        _lane_name("verifier", _VERIFIER),
        _lane_name("drafter", _DRAFTER),
        *_messages(timeline, scale),
        *(line for item in timeline.rounds for line in _round(item, scale)),
        *(line for item in timeline.passes for line in _pass(item, timeline, scale)),
        *_legend(),
    ]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {scale.width:.0f} {_HEIGHT:.0f}" '
        f'width="{scale.width:.0f}" height="{_HEIGHT:.0f}" font-family="system-ui, \'DejaVu Sans\', sans-serif">'
    )
    return "\n".join((head, f"<title>{escape(timeline.title)}</title>", *body, "</svg>", ""))


@dataclass(frozen=True, slots=True)
class _Scale:
    """From monotonic time to the picture: a usual round has the same width in every picture."""

    began_s: float
    ended_s: float
    pixels_per_s: float

    @classmethod
    def of(cls, timeline: Timeline) -> "_Scale":
        rounds = timeline.rounds
        began_s, ended_s = rounds[0].began_s, rounds[-1].ended_s
        usual_s = statistics.median(item.ended_s - item.began_s for item in rounds)
        return cls(began_s, ended_s, max(_ROUND_WIDTH / usual_s, (_MIN_WIDTH - _LEFT - _RIGHT) / (ended_s - began_s)))

    @property
    def width(self) -> float:
        return math.ceil(self.x(self.ended_s) + _RIGHT)

    def x(self, time_s: float) -> float:
        """Where a time is; times before and after the picture are at its ends."""
        return _LEFT + (min(max(time_s, self.began_s), self.ended_s) - self.began_s) * self.pixels_per_s

    def shows(self, time_s: float) -> bool:
        return self.began_s <= time_s <= self.ended_s


def _round(item: Round, scale: _Scale) -> Iterator[str]:
    colour, _ = RESULTS[item.result]
    top, bottom = _VERIFIER
    yield _bar("forward", (item.sent_s, item.forward_s), _VERIFIER, colour, scale)
    for times in ((item.began_s, item.sent_s), (item.forward_s, item.ended_s)):
        yield _bar("overhead", times, (top + 8, bottom - 8), _OVERHEAD, scale)
    middle = (scale.x(item.sent_s) + scale.x(item.forward_s)) / 2
    label = f"{item.num_accepted}/{item.num_drafted}" if item.num_drafted else "–"
    yield _text(middle, (top + bottom) / 2 + 5, label, fill="#ffffff", anchor="middle", bold=True, name="accepted")


def _pass(item: Pass, timeline: Timeline, scale: _Scale) -> Iterator[str]:
    if item.ended_s <= scale.began_s or item.began_s >= scale.ended_s:
        return
    yield _bar("pass", (item.began_s, item.ended_s), _DRAFTER, _PASSES[item.kind][0], scale)
    for base_length in item.tables:
        # What becomes of the last round's table lies beyond the picture.
        if scale.shows(item.ended_s) and base_length != timeline.rounds[-1].base_length:
            is_used = _lookup(timeline, base_length) is not None
            yield _mark(scale.x(item.ended_s), _DRAFTER[0] - 3, is_used=is_used)


def _lookup(timeline: Timeline, base_length: int) -> Round | None:
    """The round that found the table of the round before it; None when it came too late."""
    for before, item in pairwise(timeline.rounds):
        if before.base_length == base_length:
            return item if item.result in ("hit", "miss") else None
    return None


def _messages(timeline: Timeline, scale: _Scale) -> Iterator[str]:
    """Lines from a round to the drafter that takes it up, and from a table to its lookup."""
    told = {item.base_length: item for item in timeline.rounds}
    for heard_s, base_length in timeline.heard:
        item = told.get(base_length)
        if item is not None and scale.shows(heard_s):
            yield _line("told", (scale.x(item.sent_s), _VERIFIER[1]), (scale.x(heard_s), _DRAFTER[0]), "#90a4ae")
    for of_pass in timeline.passes:
        for base_length in of_pass.tables:
            found = _lookup(timeline, base_length)
            if found is not None:
                start = scale.x(of_pass.ended_s), _DRAFTER[0] - 11
                end = scale.x(found.began_s), _VERIFIER[1]
                yield _line("answered", start, end, RESULTS[found.result][0])


def _axis(scale: _Scale) -> Iterator[str]:
    step_s = _nice(80 / scale.pixels_per_s)
    for index in range(int((scale.ended_s - scale.began_s) / step_s) + 1):
        x = scale.x(scale.began_s + index * step_s)
        yield _line("tick", (x, _VERIFIER[0] - 10), (x, _AXIS + 5), _FAINT)
        yield _text(x, _AXIS + 20, f"{1e3 * index * step_s:g}", size=_SMALL, anchor="middle", name="time")
    yield _line("axis", (_LEFT, _AXIS), (scale.x(scale.ended_s), _AXIS), _INK)
    yield _text(_LEFT - 12, _AXIS + 20, "time in ms", size=_SMALL, anchor="end")


def _nice(at_least: float) -> float:
    """The smallest of 1, 2, 5, 10, .. times a power of ten that is not below `at_least`."""
    power = 10.0 ** math.floor(math.log10(at_least))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= at_least * (1 - 1e-9))


def _legend() -> Iterator[str]:
    places = (_LEFT, _LEFT + 300, _LEFT + 510, _LEFT + 770)
    rows = [list(RESULTS.values()), [*_PASSES.values()]]
    for y, name, entries in zip((_LEGEND, _LEGEND + 24), ("verifier", "drafter"), rows, strict=True):
        yield _text(_LEFT - 12, y, name, size=_SMALL, anchor="end", bold=True)
        for x, (colour, label) in zip(places, entries, strict=False):
            yield f'<rect x="{x:.1f}" y="{y - 10:.1f}" width="14" height="12" fill="{colour}"/>'
            yield _text(x + 20, y, label, size=_SMALL)
    y = _LEGEND + 48
    yield f'<rect x="{_LEFT:.1f}" y="{y - 10:.1f}" width="14" height="12" fill="{_OVERHEAD}"/>'
    yield _text(_LEFT + 20, y, "lookup before a pass, acceptance after it", size=_SMALL)
    for x, is_used, label in (
        (places[1] + 7, True, "table sent, found in time"),
        (places[2] + 7, False, "table sent in vain"),
    ):
        yield _mark(x, y, is_used=is_used, name="legend")
        yield _text(x + 13, y, label, size=_SMALL)
    yield _text(places[3], y, "3/4: three of four draft tokens accepted", size=_SMALL)


def _lane_name(name: str, lane: tuple[float, float]) -> str:
    return _text(_LEFT - 12, sum(lane) / 2 + 5, name, anchor="end", bold=True, name="lane")


def _bar(name: str, times: tuple[float, float], lane: tuple[float, float], colour: str, scale: _Scale) -> str:
    left, right = map(scale.x, times)
    return (
        f'<rect class="{name}" x="{left:.2f}" y="{lane[0]:.1f}" width="{right - left:.2f}" '
        f'height="{lane[1] - lane[0]:.1f}" fill="{colour}" stroke="#ffffff" stroke-width="0.6"/>'
    )


def _mark(x: float, y: float, *, is_used: bool, name: str = "table") -> str:
    """A triangle that stands on (x, y)."""
    fill = _INK if is_used else "#ffffff"
    return f'<path class="{name}" d="M{x - 5:.2f} {y:.1f}h10l-5 -8z" fill="{fill}" stroke="{_INK}"/>'


def _line(name: str, start: tuple[float, float], end: tuple[float, float], colour: str) -> str:
    (x1, y1), (x2, y2) = start, end
    return f'<path class="{name}" d="M{x1:.2f} {y1:.1f}L{x2:.2f} {y2:.1f}" stroke="{colour}" fill="none"/>'


def _text(
    x: float,
    y: float,
    text: str,
    *,
    size: int = _FONT,
    fill: str = _INK,
    anchor: str = "start",
    bold: bool = False,
    name: str = "text",
) -> str:
    weight = ' font-weight="bold"' if bold else ""
    place = f'x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}"'
    return f'<text class="{name}" {place}{weight} fill="{fill}">{escape(text)}</text>'


def count_results(rounds: Sequence[Round]) -> dict[str, int]:
    """Rounds by result, as the picture colours them."""
    return {result: sum(item.result == result for item in rounds) for result in RESULTS}
