import sys
from html.parser import HTMLParser
from subprocess import run
from xml.etree import ElementTree

import pytest

from autoscaling.report import Section, bar_chart, heat_map, line_chart, number, page, paragraph, table, warning


def draw() -> dict[str, str]:
    points = {"a": [(1, 2.0), (2, 4.0), (4, 9.0)], "b": [(1, 1.0), (4, 3.0)]}
    heat: list[list[float | None]] = [[1.0, 2.0], [None, 0.5]]
    return {
        "line": line_chart(points, x_label="x", y_label="y", title="T & <U>", log_x=True, lines={"cut": 3.0}),
        "log": line_chart(points, x_label="x", y_label="y", title="T", log_y=True, markers=False),
        "bar": bar_chart({"one": 1.0, "two": 2.5}, x_label="x", y_label="y", title="T"),
        "heat": heat_map(heat, x_names=["1", "2"], y_names=["p", "q"], x_label="x", y_label="y", title="T", center=1.0),
        "empty": heat_map([[None]], x_names=["1"], y_names=["p"], x_label="x", y_label="y", title="T"),
    }


def test_the_same_values_give_the_same_bytes() -> None:
    assert draw() == draw()


def test_charts_are_svg_with_readable_text() -> None:
    for chart in draw().values():
        tree = ElementTree.fromstring(chart)
        texts = [element.text for element in tree.iter("{http://www.w3.org/2000/svg}text")]
        assert "x" in texts and "y" in texts
    assert "1.00" not in draw()["heat"] and ">0.5<" in draw()["heat"] and ">-<" in draw()["heat"]


def test_a_page_needs_nothing_from_elsewhere_and_closes_what_it_opens() -> None:
    blocks = (paragraph("a < b"), warning("mind"), table(("n", "v"), [("x", 1234.5)]), *draw().values())
    text = page("Title & more", [Section(heading="One <1>", blocks=blocks)])
    assert "a &lt; b" in text and "Title &amp; more" in text and "One &lt;1&gt;" in text and "1,234" in text

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            names = dict(attrs)
            assert tag not in ("script", "link", "img", "iframe")
            assert not str(names.get("src", "")).startswith("http")
            if tag not in ("meta", "br"):
                opened.append(tag)

        def handle_endtag(self, tag: str) -> None:
            assert opened.pop() == tag

    opened: list[str] = []
    Reader().feed(text)
    assert not opened


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (1, "1"), (1.5, "1.50"), (0.1234, "0.123"), (12345.6, "12,346"), (99.95, "100.0"), (1e-5, "1.00e-05")],
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert number(value) == text


def test_matplotlib_is_imported_only_to_draw() -> None:
    code = "import sys, autoscaling.report; sys.exit('matplotlib' in sys.modules)"
    assert run([sys.executable, "-c", code], check=False).returncode == 0


def test_drawing_changes_no_settings_of_the_process_and_needs_no_pyplot() -> None:
    code = """
import sys, matplotlib
from autoscaling.report import bar_chart
before = matplotlib.rcParams.copy()
bar_chart({"one": 1.0}, x_label="x", y_label="y", title="T")
sys.exit(matplotlib.rcParams.copy() != before or "matplotlib.pyplot" in sys.modules)
"""
    assert run([sys.executable, "-c", code], check=False).returncode == 0
