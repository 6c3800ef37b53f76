"""Draws target and drafter at work on two half-batches as one SVG: a lane for each, a colour for each half. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

_WIDTH, _HEIGHT, _LEFT, _RIGHT = 1160.0, 250.0, 96.0, 24.0
_LANES = {"target": (76.0, 116.0), "drafter": (136.0, 176.0)}
_AXIS, _LEGEND = 196.0, 236.0
_INK, _FAINT = "#263238", "#cfd8dc"
_COLOURS = {"A": "#3949ab", "B": "#00897b"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Some time in which one of the two worked.

    Attributes:
        began_s: monotonic time.
        ended_s: the same.
        half: for whom, "A" or "B".
    """

    began_s: float
    ended_s: float
    half: str

    def overlap_s(self, other: "Span") -> float:
        """How long both went on."""
        return max(0.0, min(self.ended_s, other.ended_s) - max(self.began_s, other.began_s))


def dual_streams_svg(forward: Sequence[Span], drafting: Sequence[Span], *, subtitle: str) -> str:
    """The whole picture as text.

    Args:
        forward: passes of the target, at least one, in order; they are what is shown.
        drafting: the drafter's work; what lies outside is left out.
        subtitle: one line.
    """
    began_s, ended_s = forward[0].began_s, forward[-1].ended_s
    scale = (_WIDTH - _LEFT - _RIGHT) / (ended_s - began_s)
    shown = [span for span in drafting if began_s <= span.began_s and span.ended_s <= ended_s]
    body = [
        f'<rect width="{_WIDTH:.0f}" height="{_HEIGHT:.0f}" fill="#ffffff"/>',
        _text(_LEFT, 28, "While one half of the batch is verified, the other half is drafted for", size=17),
        _text(_LEFT, 50, subtitle),
    ]
    for name, spans in (("target", forward), ("drafter", shown)):
        top, bottom = _LANES[name]
        body.append(_text(_LEFT - 12, (top + bottom) / 2 + 5, name, anchor="end"))
        for span in spans:
            left, width = _LEFT + (span.began_s - began_s) * scale, (span.ended_s - span.began_s) * scale
            body.append(
                f'<rect class="{name}" x="{left:.2f}" y="{top:.1f}" width="{width:.2f}" '
                f'height="{bottom - top:.1f}" fill="{_COLOURS[span.half]}"/>'
            )
    body += [*_axis(ended_s - began_s, scale), *_legend()]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {_WIDTH:.0f} {_HEIGHT:.0f}" '
        f'width="{_WIDTH:.0f}" height="{_HEIGHT:.0f}" font-family="system-ui, \'DejaVu Sans\', sans-serif">'
    )
    return "\n".join((head, f"<title>{escape(subtitle)}</title>", *body, "</svg>", ""))


def _axis(duration_s: float, scale: float) -> Iterator[str]:
    step_s = next(step for step in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0) if step * scale >= 60 or step == 5.0)
    yield f'<path d="M{_LEFT:.2f} {_AXIS:.1f}H{_LEFT + duration_s * scale:.2f}" stroke="{_INK}"/>'
    for index in range(int(duration_s / step_s) + 1):
        x = _LEFT + index * step_s * scale
        yield f'<path d="M{x:.2f} {_LANES["target"][0] - 6:.1f}V{_AXIS + 4:.1f}" stroke="{_FAINT}"/>'
        yield _text(x, _AXIS + 18, f"{1e3 * index * step_s:g}", anchor="middle")
    yield _text(_LEFT - 12, _AXIS + 18, "time in ms", anchor="end")


def _legend() -> Iterator[str]:
    for index, (half, colour) in enumerate(_COLOURS.items()):
        x = _LEFT + 110 * index
        yield f'<rect x="{x:.1f}" y="{_LEGEND - 10:.1f}" width="14" height="12" fill="{colour}"/>'
        yield _text(x + 20, _LEGEND, f"half {half}")


def _text(x: float, y: float, text: str, *, size: int = 12, anchor: str = "start") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}"'
    return f'<text {place} fill="{_INK}">{escape(text)}</text>'
