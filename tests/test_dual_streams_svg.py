"""The picture of two half-batches: every pass and every draft once, in its lane, where it was."""

from xml.etree import ElementTree

from tests.benchmarks.dual_streams_svg import Span, dual_streams_svg

FORWARD = [Span(began_s=10.0 + 0.1 * i, ended_s=10.09 + 0.1 * i, half="AB"[i % 2]) for i in range(4)]
DRAFTING = [Span(began_s=10.01 + 0.1 * i, ended_s=10.05 + 0.1 * i, half="BA"[i % 2]) for i in range(-1, 6)]


def test_passes_and_drafts_are_drawn_once_and_inside_the_frame() -> None:
    root = ElementTree.fromstring(dual_streams_svg(FORWARD, DRAFTING, subtitle="a < b"))
    bars = {name: [bar for bar in root.iter() if bar.get("class") == name] for name in ("target", "drafter")}
    assert [len(bars["target"]), len(bars["drafter"])] == [4, 4], "what lies outside is left out"
    for lane in bars.values():
        lefts = [float(bar.attrib["x"]) for bar in lane]
        assert lefts == sorted(lefts)
        for bar in lane:
            assert 0 < float(bar.attrib["x"]) + float(bar.attrib["width"]) <= float(root.attrib["width"])
    for target, drafter in zip(bars["target"], bars["drafter"], strict=True):
        assert target.get("fill") != drafter.get("fill"), "the one half is drafted for while the other is verified"
        assert float(target.attrib["x"]) < float(drafter.attrib["x"])


def test_the_time_that_two_spans_share() -> None:
    span = Span(began_s=1.0, ended_s=2.0, half="A")
    assert span.overlap_s(Span(began_s=1.5, ended_s=3.0, half="B")) == 0.5
    assert span.overlap_s(Span(began_s=2.5, ended_s=3.0, half="B")) == 0.0
