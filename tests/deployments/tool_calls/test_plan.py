from collections.abc import Mapping
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from cluster.errors import ConfigError, InvalidRequestError
from deployments.limits import Limits
from deployments.schema import parse_body
from deployments.schema_openai import ChatCompletionRequest
from deployments.tool_calls.answer import make_call_id, read_answer
from deployments.tool_calls.framing import FORCED, FRAMINGS, ParserName
from deployments.tool_calls.plan import ToolPlan, ToolPlanner
from tests.deployments.tool_samples import HERMES, MISTRAL, PLAIN, POINT, QWEN_CODER, TOOLS, tool

MISSING = {"type": "function", "function": {"name": "x"}}


def _plan(
    template: object = HERMES, parser: ParserName = "auto", limits: Limits | None = None, **fields: object
) -> ToolPlan | None:
    body = {"messages": [{"role": "user", "content": "hi"}], "tools": TOOLS} | fields
    planner = ToolPlanner(template, parser, limits or Limits())
    return planner.plan(parse_body(ChatCompletionRequest, body, strict=True))


def _refusal(**fields: Any) -> InvalidRequestError:
    with pytest.raises(InvalidRequestError) as caught:
        _plan(**fields)
    return caught.value


def _schema(**fields: Any) -> Mapping[str, Any]:
    plan = _plan(**fields)
    assert plan is not None
    schema = plan.schema()
    assert schema is not None
    return schema


def test_without_tools_or_with_choice_none_there_is_nothing_to_do() -> None:
    assert _plan(tools=None) is _plan(tools=[]) is _plan(tool_choice="none") is None
    assert _plan(tool_choice="none", response_format={"type": "json_object"}) is None


def test_auto_leaves_the_model_free_and_reads_its_way_of_calling() -> None:
    for choice in (None, "auto"):
        plan = _plan(tool_choice=choice)
        assert plan is not None
        assert (plan.mode, plan.framing, plan.max_calls, plan.schema()) == ("auto", FRAMINGS["hermes"], None, None)
    for template, parser, name in (
        (PLAIN, "auto", "hermes"),
        (HERMES, "mistral", "mistral"),
        (QWEN_CODER, "hermes", "hermes"),
    ):
        plan = _plan(template, parser)  # type: ignore[arg-type]
        assert plan is not None
        assert plan.framing == FRAMINGS[name]


def test_parser_none_leaves_calls_in_the_text() -> None:
    plan = _plan(parser="none")
    assert plan is not None
    assert plan.parser() is None
    assert read_answer(plan, "k", "<tool_call>{}").content == "<tool_call>{}"


def test_an_unknown_way_of_calling_is_refused_in_auto_and_no_hindrance_to_forced_calls() -> None:
    assert _refusal(template=QWEN_CODER).code == "no_tool_call_parser"
    assert _plan(QWEN_CODER, tool_choice="required") is not None


def test_required_calls_are_a_list_of_one_of_the_tools_each() -> None:
    plan = _plan(tool_choice="required")
    assert plan is not None
    assert plan.framing == FORCED
    schema = plan.schema()
    valid: list[list[object]] = [
        [{"name": "move", "arguments": {"x": 1}}],
        [{"name": "now", "arguments": {}}, {"name": "move", "arguments": {"x": 2}}],
        [{"name": "plant", "arguments": {"root": {"next": {"next": {"enum": "#"}}}}}],
    ]
    wrong: list[list[object]] = [
        [],
        [{"name": "other", "arguments": {}}],
        [{"name": "move", "arguments": {"x": "a"}}],
        [{"name": "move", "arguments": {"x": 1}, "more": 1}],
        [{"name": "plant", "arguments": {"root": {"next": 5}}}],
        [{"name": "plant", "arguments": {"root": {"next": {"enum": "c"}}}}],
        [{"name": "now", "arguments": {}}] * 17,
    ]
    for value in valid:
        jsonschema.validate(value, schema)
    for value in wrong:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(value, schema)


def test_without_parallel_calls_there_is_one() -> None:
    schema = _schema(tool_choice="required", parallel_tool_calls=False)
    assert schema["maxItems"] == 1
    plan = _plan(parallel_tool_calls=False)
    assert plan is not None
    assert plan.max_calls == 1
    assert _schema(tool_choice="required", limits=Limits(max_tool_calls=3))["maxItems"] == 3


def test_a_named_tool_is_forced_by_the_schema_of_its_arguments() -> None:
    assert _schema(tool_choice={"type": "function", "function": {"name": "move"}}) == POINT
    assert _schema(tool_choice={"type": "function", "function": {"name": "now"}})["type"] == "object"


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"tool_choice": MISSING}, "tool_choice.function.name", "invalid_value"),
        ({"tool_choice": "required", "tools": []}, "tool_choice", "invalid_value"),
        ({"tools": [tool("a"), tool("a")]}, "tools", "invalid_value"),
        ({"tools": [tool("a", {"type": "array"})]}, "tools.0.function.parameters.type", "invalid_value"),
        ({"response_format": {"type": "json_object"}}, "response_format", "invalid_value"),
        ({"structured_outputs": {"regex": "a"}, "tool_choice": "required"}, "structured_outputs", "invalid_value"),
        ({"limits": Limits(max_tools=2)}, "tools", "max_tools"),
        ({"limits": Limits(max_tool_bytes=100)}, "tools", "max_tool_bytes"),
        ({"limits": Limits(max_tool_bytes=100), "tool_choice": "none"}, "tools", "max_tool_bytes"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_refused_by_name(fields: dict[str, Any], param: str, code: str) -> None:
    error = _refusal(**fields)
    assert (error.param, error.code, error.status) == (param, code, 400)


@pytest.mark.parametrize("name", ["max_tools", "max_tool_bytes", "max_tool_calls"])
def test_limits_on_tools_must_be_positive(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        Limits(**{name: 0})


def test_ids_of_calls_are_their_own_and_nine_characters_long_where_the_template_wants_that() -> None:
    assert make_call_id("a", 0, is_short=False) == make_call_id("a", 0, is_short=False)
    assert len({make_call_id(key, index, is_short=True) for key in "abc" for index in range(16)}) == 48
    for template, length in ((MISTRAL, 9), (HERMES, 29)):
        plan = _plan(template, tool_choice="required")
        assert plan is not None
        (call,) = read_answer(plan, "k", '[{"name": "now", "arguments": {}}]').calls
        assert len(call["id"]) == length


def test_the_parts_of_a_call_that_arrive_together_are_one_entry() -> None:
    plan = _plan()
    assert plan is not None
    piece = read_answer(
        plan, "k", 'Hm. <tool_call>{"name": "now", "arguments": {}}</tool_call><tool_call>{"name": "now"}'
    )
    assert piece.content == "Hm."
    assert [(call["index"], call["function"]) for call in piece.calls] == [
        (0, {"name": "now", "arguments": "{}"}),
        (1, {"name": "now", "arguments": "{}"}),
    ]
