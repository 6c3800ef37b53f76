"""Reports that people read in a browser: charts as SVG, tables and text in one HTML file that needs nothing else.

matplotlib is imported only while a chart is drawn, and pyplot never, so nothing is shared between charts or threads.
The same values give the same bytes.
"""

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Points = Sequence[tuple[float, float]]
"""(x, y) in rising x."""

_WIDTH_INCHES, _HEIGHT_INCHES = 7.2, 3.9
_COLORS = ("#2563eb", "#dc2626", "#059669", "#d97706", "#7c3aed", "#0891b2", "#be185d", "#4b5563")
_SETTINGS: dict[str, object] = {
    "svg.hashsalt": "outrider",  # ids are otherwise random
    "svg.fonttype": "none",  # text stays text: small, searchable, read aloud
    "font.family": "sans-serif",
    "font.size": 10.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 11.0,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
}
_STYLE = """\
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; color: #1f2937; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin-bottom: .2rem; } h2 { font-size: 1.2rem; margin-top: 2.5rem; }
table { border-collapse: collapse; margin: 1rem 0; font-size: .9rem; display: block; overflow-x: auto; }
th, td { padding: .3rem .7rem; border-bottom: 1px solid #e5e7eb; text-align: left; vertical-align: top; }
th { border-bottom: 2px solid #9ca3af; } td.number { text-align: right; font-variant-numeric: tabular-nums; }
figure { margin: 1rem 0; } svg { max-width: 100%; height: auto; }
.warning { border-left: 4px solid #d97706; background: #fffbeb; padding: .4rem .9rem; }
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of a page.

    Attributes:
        heading: of the part.
        blocks: pieces of HTML in order: charts, and what `paragraph`, `warning` and `table` return.
    """

    heading: str
    blocks: tuple[str, ...]


def page(title: str, sections: Sequence[Section]) -> str:
    """One self-contained HTML document."""
    lines = ["<!doctype html>", '<html lang="en">', "<head>", '<meta charset="utf-8">']
    lines += ['<meta name="viewport" content="width=device-width, initial-scale=1">']
    lines += [f"<title>{escape(title)}</title>", f"<style>\n{_STYLE}</style>", "</head>", "<body>"]
    lines += [f"<h1>{escape(title)}</h1>"]
    for section in sections:
        lines += [f"<h2>{escape(section.heading)}</h2>", *section.blocks]
    return "\n".join([*lines, "</body>", "</html>"]) + "\n"


def paragraph(text: str) -> str:
    """Plain text."""
    return f"<p>{escape(text)}</p>"


def warning(text: str) -> str:
    """Plain text that must not be missed."""
    return f'<p class="warning">{escape(text)}</p>'


def table(columns: Sequence[str], rows: Sequence[Sequence[str | float]]) -> str:
    """A table; numbers are written with four digits and stand on the right."""
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "\n".join("<tr>" + "".join(_cell(value) for value in row) + "</tr>" for row in rows)
    return f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"


def number(value: float) -> str:
    """A number for people: four digits, thousands grouped, no exponent."""
    if value != 0 and abs(value) < 1e-4:
        return f"{value:.2e}"
    digits = max(0, 3 - len(str(int(abs(value)))) + (abs(value) < 1)) if value != int(value) else 0
    return f"{value:,.{digits}f}"


def line_chart(
    series: Mapping[str, Points],
    *,
    x_label: str,
    y_label: str,
    title: str,
    log_x: bool = False,
    log_y: bool = False,
    markers: bool = True,
    lines: Mapping[str, float] | None = None,
) -> str:
    """Lines over a common axis, as SVG.

    Args:
        series: points by the name in the legend.
        x_label: with its unit.
        y_label: with its unit.
        title: what it shows.
        log_x: x in powers of two.
        log_y: y in powers of ten.
        markers: a dot at each point.
        lines: vertical marks: x by the name in the legend.
    """
    with _canvas(title, x_label, y_label) as (axes, result):
        for index, (name, points) in enumerate(series.items()):
            color = _COLORS[index % len(_COLORS)]
            xs, ys = [x for x, _ in points], [y for _, y in points]
            axes.plot(xs, ys, color=color, label=name, marker="o" if markers else "", markersize=4, linewidth=1.6)
        for index, (name, x) in enumerate((lines or {}).items()):
            axes.axvline(x, color=_COLORS[-1 - index % len(_COLORS)], linestyle="--", linewidth=1.1, label=name)
        if log_x:
            axes.set_xscale("log", base=2)
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        if log_y:
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
        axes.grid(color="#e5e7eb", linewidth=0.8)
        if len(series) + len(lines or {}) > 1:
            axes.legend(frameon=False, fontsize=9)
    return result[0]


def bar_chart(values: Mapping[str, float], *, x_label: str, y_label: str, title: str) -> str:
    """A horizontal bar for each name, with its value beside it, as SVG.

    Args:
        values: lengths by name, the first on top.
        x_label: what the length is, with its unit.
        y_label: what the names are.
        title: what it shows.
    """
    with _canvas(title, x_label, y_label) as (axes, result):
        names = list(values)
        bars = axes.barh(range(len(names)), [values[name] for name in names], color=_COLORS[0], height=0.65)
        axes.bar_label(bars, labels=[number(values[name]) for name in names], padding=4)
        axes.set_yticks(range(len(names)), names)
        axes.invert_yaxis()
        axes.margins(x=0.15)
    return result[0]


def heat_map(
    rows: Sequence[Sequence[float | None]],
    *,
    x_names: Sequence[str],
    y_names: Sequence[str],
    x_label: str,
    y_label: str,
    title: str,
    center: float | None = None,
) -> str:
    """A field of numbers with colours behind them, as SVG.

    Args:
        rows: values, a row for each of `y_names`; None for what is not known.
        x_names: of the columns.
        y_names: of the rows.
        x_label: what the columns are.
        y_label: what the rows are.
        title: what it shows.
        center: value of the neutral colour (1 for a speed-up); None where only more or less counts.
    """
    known = [value for row in rows for value in row if value is not None]
    with _canvas(title, x_label, y_label) as (axes, result):
        field = [[float("nan") if value is None else value for value in row] for row in rows]
        low, high = (min(known), max(known)) if known else (0.0, 1.0)
        if center is not None:
            reach = max(high - center, center - low, 1e-9)
            low, high = center - reach, center + reach
        axes.imshow(field, cmap="RdYlGn" if center is not None else "Blues", vmin=low, vmax=high, aspect="auto")
        axes.set_xticks(range(len(x_names)), x_names)
        axes.set_yticks(range(len(y_names)), y_names)
        for y, row in enumerate(rows):
            for x, value in enumerate(row):
                axes.text(x, y, "-" if value is None else f"{value:.3g}", ha="center", va="center", fontsize=9)
    return result[0]


def _cell(value: str | float) -> str:
    if isinstance(value, str):
        return f"<td>{escape(value)}</td>"
    return f'<td class="number">{number(value)}</td>'


@contextmanager
def _canvas(title: str, x_label: str, y_label: str) -> Iterator[tuple["Axes", list[str]]]:
    """Axes to draw on; when the block ends, the list holds the SVG."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    result: list[str] = []
    with mpl.rc_context(_SETTINGS):  # type: ignore[arg-type] # its names are a closed list in newer stubs only
        figure = Figure(figsize=(_WIDTH_INCHES, _HEIGHT_INCHES), layout="constrained")
        axes = figure.add_subplot()
        axes.set_title(title)
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
        yield axes, result
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Title": title})
        svg = buffer.getvalue()
        # Inside HTML the XML prologue is an error.
        result.append(f'<figure role="img" aria-label="{escape(title)}">{svg[svg.index("<svg") :]}</figure>')
