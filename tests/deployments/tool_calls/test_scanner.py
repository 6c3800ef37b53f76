import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deployments.tool_calls.scanner import ObjectScanner

VALUES = st.recursive(
    st.none() | st.text(max_size=6) | st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=30)
@given(
    value=st.dictionaries(st.text(max_size=5), VALUES, max_size=4), cut=st.integers(0, 400), ascii_only=st.booleans()
)
def test_an_object_ends_at_its_last_bracket_wherever_the_text_is_cut(
    value: dict[str, object], cut: int, ascii_only: bool
) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only)
    cut = min(cut, len(text))
    scanner = ObjectScanner()
    first = scanner.end_in(text[:cut])
    assert first is None or cut == len(text)
    end = first if first is not None else scanner.end_in(text + "} rest", cut)
    assert end == len(text)


@pytest.mark.parametrize("text", ["", "{", '{"}', '{"\\"}', "{[}"])
def test_an_open_object_has_no_end_yet(text: str) -> None:
    assert ObjectScanner().end_in(text) is None


def test_a_scanner_may_begin_inside_an_object() -> None:
    assert ObjectScanner(depth=1).end_in('"a": {}} x') == 8
