import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.tool_calls.framing import FORCED, FRAMINGS, Framing
from deployments.tool_calls.parser import CallArguments, CallStart, Content, Event, FramedParser, NamedParser, Parser

NAMES = frozenset({"add", "get_time"})
ADD = '{"name": "add", "arguments": {"a": 1}}'
TIME = '{"name": "get_time", "arguments": {}}'
ALL = {**FRAMINGS, "forced": FORCED}

Calls = list[tuple[str, str]]


def _summary(events: list[Event]) -> tuple[str, Calls]:
    """Content and calls, however they came."""
    content, calls = "", Calls()
    for event in events:
        match event:
            case Content(text):
                content += text
            case CallStart(name):
                calls.append((name, ""))
            case CallArguments(text):
                calls[-1] = (calls[-1][0], calls[-1][1] + text)
    return content, calls


def _read(parser: Parser, pieces: list[str]) -> tuple[str, Calls]:
    return _summary([event for piece in pieces for event in parser.feed(piece)] + parser.finish())


def _parse(name: str, text: str, max_calls: int | None = None) -> tuple[str, Calls]:
    whole = _read(FramedParser(ALL[name], NAMES, max_calls), [text])
    assert _read(FramedParser(ALL[name], NAMES, max_calls), list(text)) == whole
    return whole


@pytest.mark.parametrize(
    ("name", "text", "content", "calls"),
    [
        ("hermes", f"<tool_call>\n{ADD}\n</tool_call>", "", ["add"]),
        ("hermes", f"Let me see.\n<tool_call>\n{ADD}\n</tool_call>\n", "Let me see.", ["add"]),
        (
            "hermes",
            f"<tool_call>{ADD}</tool_call>\n<tool_call>{TIME}</tool_call>\nDone.",
            "\nDone.",
            ["add", "get_time"],
        ),
        ("hermes", f"<tool_call>{ADD}<tool_call>{TIME}", "", ["add", "get_time"]),
        ("llama3_json", '{"name": "add", "parameters": {"a": 1}}', "", ["add"]),
        ("llama3_json", f"<|python_tag|>{ADD}; {TIME}", "", ["add", "get_time"]),
        ("llama3_json", f"  {ADD}", "", ["add"]),
        ("llama3_json", f"Sure: {ADD}", f"Sure: {ADD}", []),
        ("mistral", f"[TOOL_CALLS][{ADD}, {TIME}]", "", ["add", "get_time"]),
        ("mistral", f"Well. [TOOL_CALLS] [ {ADD} ]", "Well.", ["add"]),
        ("mistral", '[TOOL_CALLS]add[ARGS]{"a": 1}[TOOL_CALLS]get_time[CALL_ID]aB3[ARGS]{}', "", ["add", "get_time"]),
        ("mistral", '[TOOL_CALLS]add{"a": 1}', "", ["add"]),
        ("forced", f"[{ADD}, {TIME}]", "", ["add", "get_time"]),
    ],
)  # fmt: skip
def test_each_way_to_write_calls_is_found(name: str, text: str, content: str, calls: list[str]) -> None:
    found, made = _parse(name, text)
    assert (found, [call[0] for call in made]) == (content, calls)
    assert all(json.loads(arguments) == ({"a": 1} if tool == "add" else {}) for tool, arguments in made)


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>",
        "<tool_call>\nadd(1)",
        '<tool_call>{"name": "sub", "arguments": {"a": 1}}</tool_call>',
        '<tool_call>{"name": "add", "arguments": 5}</tool_call>',
        '<tool_call>{"name": "add", "arguments": "{}"}</tool_call>',
        '<tool_call>{"tool": "add", "arguments": {}}</tool_call>',
        '<tool_call>{"arguments": {"a": 1}, "name": "sub"}</tool_call>',
        '<tool_call>{"arguments": {"a": 1}, "name": add}</tool_call>',
        '<tool_call>{"name": "add", "arg',
        '<tool_call>{"name": "a\\q", "arguments": {}}',
        "a <tool_cal",
        "a < b, <tool> and </tool_call>  \n",
    ],
)
def test_malformed_calls_and_unknown_tools_stay_content(text: str) -> None:
    assert _parse("hermes", text) == (text, [])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("mistral", "[TOOL_CALLS] as people say, is a marker " + "and text " * 60),
        ("mistral", "[TOOL_CALLS][1, 2]"),
        ("llama3_json", '{"answer": 42}'),
        ("llama3_json", '{"answer": '),
        ("llama3_json", "<|python_tag|>print(1)"),
        ("forced", "[]"),
        ("forced", " "),
    ],
)
def test_what_only_looks_like_a_call_stays_content(name: str, text: str) -> None:
    assert _parse(name, text) == (text, [])


def test_a_broken_call_does_not_hide_the_next_one() -> None:
    content, calls = _parse("hermes", f"<tool_call>oops</tool_call><tool_call>{ADD}</tool_call>")
    assert content == "<tool_call>oops</tool_call>"
    assert calls == [("add", '{"a": 1}')]


def test_keys_may_stand_in_any_order_arguments_may_be_missing_and_others_are_left_out() -> None:
    assert _parse("hermes", '<tool_call>{"arguments": {"a": [1, {}]}, "name": "add"}')[1] == [("add", '{"a": [1, {}]}')]
    assert _parse("hermes", '<tool_call>{"name": "get_time"}')[1] == [("get_time", "{}")]
    assert _parse("hermes", '<tool_call>{"name": "add", "arguments": {}, "id": "}"} </tool_call>x') == (
        "x",
        [("add", "{}")],
    )


def test_brackets_and_quotes_inside_strings_are_text() -> None:
    arguments = json.dumps({"text": 'a } ] " \\ </tool_call> {', "b": {"c": ["}"]}})
    text = f'<tool_call>{{"name": "add", "arguments": {arguments}}}</tool_call>after'
    assert _parse("hermes", text) == ("after", [("add", arguments)])


def test_an_answer_that_is_cut_off_has_the_arguments_that_came() -> None:
    assert _parse("hermes", '<tool_call>{"name": "add", "arguments": {"a": "x') == ("", [("add", '{"a": "x')])


def test_a_forgotten_bracket_behind_the_arguments_is_forgiven() -> None:
    text = f'<tool_call>{{"name": "add", "arguments": {{"a": 1}}</tool_call><tool_call>{TIME}</tool_call>'
    assert _parse("hermes", text) == ("", [("add", '{"a": 1}'), ("get_time", "{}")])


def test_calls_beyond_the_most_are_dropped_with_what_follows() -> None:
    text = f"a <tool_call>{ADD}</tool_call> <tool_call>{TIME}</tool_call> b"
    assert _parse("hermes", text, 1) == ("a", [("add", '{"a": 1}')])
    assert _parse("forced", f"[{ADD}, {TIME}]", 1) == ("", [("add", '{"a": 1}')])


def test_the_name_comes_first_and_the_arguments_as_they_are_written() -> None:
    parser = FramedParser(FRAMINGS["hermes"], NAMES)
    assert parser.feed('Hm.<tool_call>{"name": "add", "argum') == [Content("Hm.")]
    assert parser.feed('ents": {') == [CallStart("add"), CallArguments("{")]
    assert parser.feed('"a": ') == [CallArguments('"a": ')]
    assert parser.feed("1}}</tool") == [CallArguments("1}")]
    assert parser.feed("_call>") == parser.finish() == []


def test_plain_text_is_not_held_back_longer_than_it_may_begin_a_call() -> None:
    parser = FramedParser(FRAMINGS["hermes"], NAMES)
    assert parser.feed("a <tool") == [Content("a")]
    assert parser.feed("s> b ") == [Content(" <tools> b")]
    assert parser.finish() == [Content(" ")]


def test_a_named_call_is_all_of_the_answer() -> None:
    assert _read(NamedParser("add"), ["", '{"a"', ": 1}"]) == ("", [("add", '{"a": 1}')])
    assert _read(NamedParser("add"), [""]) == ("", [])


FRAGMENTS = st.sampled_from(
    [
        "<tool_call>", "</tool_call>", "<tool", "[TOOL_CALLS]", "<|python_tag|>", "[ARGS]", "[CALL_ID]a1", "[", "]",
        "{", "}", ",", ";", ":", '"', "\\", " ", "\n", "add", "word ", "é🐎", '"name"', '"arguments"', '"parameters"',
        '"add"', '{"name": "add", "arguments": {', '{"name": "sub", "arguments": {', ADD, TIME, '{"name": "get_time"}',
    ]
)  # fmt: skip


@given(
    framing=st.sampled_from([(name, most) for name in sorted(ALL) for most in (None, 1)]),
    text=st.lists(FRAGMENTS, max_size=14).map("".join),
    cuts=st.lists(st.integers(0, 200), max_size=12),
)
def test_any_cut_of_the_text_gives_the_same_content_and_calls(
    framing: tuple[str, int | None], text: str, cuts: list[int]
) -> None:
    name, most = framing
    ends = sorted({min(cut, len(text)) for cut in cuts} | {0, len(text)})
    pieces = [text[begin:end] for begin, end in itertools.pairwise(ends)]
    content, calls = _parse(name, text, most)
    assert _read(FramedParser(ALL[name], NAMES, most), pieces) == (content, calls)
    assert all(tool in NAMES for tool, _ in calls)
    if not calls:
        assert content == text


def test_long_answers_take_time_in_proportion_to_their_length() -> None:
    parser = FramedParser(Framing(opening="<tool_call>"), NAMES)
    num_events = sum(len(parser.feed('{"a": "word", ')) for _ in range(20_000))
    assert num_events == 20_000
