import asyncio
import json
import time
from typing import Any

import pytest

from cluster.errors import InvalidRequestError
from cluster.grammar.compiler import GrammarCompiler
from cluster.grammar.limits import GrammarLimits
from deployments.grammar_gate import Form, GrammarGate, form_of, schema_form
from deployments.limits import Limits
from deployments.schema import parse_body
from deployments.schema_openai import ChatCompletionRequest, CompletionRequest
from deployments.tool_calls.plan import ToolPlanner
from tests.deployments.fake_engine import EOS_ID, ByteTokenizer
from tests.deployments.http_helpers import MESSAGES
from tests.deployments.tool_samples import HERMES, TOOLS

pytestmark = pytest.mark.anyio


def _gate(**limits: Any) -> GrammarGate:
    return GrammarGate(GrammarCompiler(ByteTokenizer(), 257, frozenset({EOS_ID}), GrammarLimits(**limits)))


def _form(**fields: object) -> Form:
    form = form_of(parse_body(CompletionRequest, {"prompt": "a"} | fields, strict=True))
    assert form is not None
    return form


def _json_schema(schema: object) -> dict[str, object]:
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}


@pytest.mark.parametrize(
    ("fields", "text", "wrong"),
    [
        ({"response_format": {"type": "json_object"}}, '{"a": 1}', "[1]"),
        ({"response_format": _json_schema({"enum": ["a", "b"]})}, '"b"', '"c"'),
        ({"structured_outputs": {"json": {"type": "integer"}}}, "12", '"1"'),
        ({"structured_outputs": {"json": '{"type": "boolean"}'}}, "true", "1"),
        ({"structured_outputs": {"json": True}}, "[1]", "x"),
        ({"structured_outputs": {"json_object": True}}, "{}", "1"),
        ({"structured_outputs": {"regex": "[ab]+c"}}, "abac", "abd"),
        ({"structured_outputs": {"choice": ["yes", "no"]}}, "no", "nope"),
        ({"structured_outputs": {"grammar": 'root ::= "x" [0-9]+'}}, "x42", "y"),
        ({"structured_outputs": {"grammar": "start: /x[0-9]+/"}}, "x42", "y"),
    ],
)
async def test_every_form_becomes_a_grammar_that_takes_what_it_should(
    fields: dict[str, object], text: str, wrong: str
) -> None:
    gate = _gate()
    grammar = await gate.grammar(_form(**fields))
    gate.close()
    for candidate, is_right in ((text, True), (wrong, False)):
        tokens = [*candidate.encode(), EOS_ID]
        matcher = GrammarCompiler(ByteTokenizer(), 257, frozenset({EOS_ID})).matcher(grammar)
        assert (matcher.valid_prefix(tokens) == len(tokens)) is is_right


async def test_without_a_form_there_is_no_grammar() -> None:
    assert (
        form_of(parse_body(CompletionRequest, {"prompt": "a", "response_format": {"type": "text"}}, strict=True))
        is None
    )
    assert await _gate().grammar(None) == ""


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": _json_schema({"type": "nothing"})}, "response_format.json_schema.schema"),
        ({"response_format": _json_schema({"$ref": "#/x"})}, "response_format.json_schema.schema"),
        ({"response_format": _json_schema({"$ref": "https://example.com/x"})}, "response_format.json_schema.schema"),
        ({"response_format": _json_schema(False)}, "response_format.json_schema.schema"),
        ({"response_format": _json_schema({"const": "x" * 500})}, "response_format.json_schema.schema"),
        ({"structured_outputs": {"json": "{"}}, "structured_outputs.json"),
        ({"structured_outputs": {"json": "5"}}, "structured_outputs.json"),
        ({"structured_outputs": {"json": "[" * 5000}}, "structured_outputs.json"),
        ({"structured_outputs": {"regex": "(a"}}, "structured_outputs.regex"),
        ({"structured_outputs": {"regex": "(?=a)b"}}, "structured_outputs.regex"),
        ({"structured_outputs": {"choice": ["a"] * 9}}, "structured_outputs.choice"),
        ({"structured_outputs": {"grammar": "root := nothing"}}, "structured_outputs.grammar"),
    ],
)
async def test_what_cannot_be_a_grammar_is_a_400_that_names_the_field(fields: dict[str, object], param: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        await _gate(max_bytes=400, max_choices=8).grammar(_form(**fields))
    assert (caught.value.param, caught.value.code, caught.value.status) == (param, "invalid_grammar", 400)
    assert caught.value.message.startswith(param + ": ")


async def test_a_form_that_takes_too_long_is_a_400_and_the_loop_goes_on() -> None:
    gate, ticks = _gate(compile_timeout_s=0.05), 0

    def slow(limits: GrammarLimits) -> str:
        time.sleep(0.4)
        return ""

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.005)
            ticks += 1

    ticker = asyncio.ensure_future(tick())
    with pytest.raises(InvalidRequestError, match=r"0\.05 seconds") as caught:
        await gate.grammar(Form(param="tools", grammar=slow))
    ticker.cancel()
    assert (caught.value.param, caught.value.code) == ("tools", "compile_timeout_s")
    assert ticks > 2
    gate.close()


async def test_references_of_a_tool_still_hold_where_its_schema_has_moved_to() -> None:
    body = {"messages": MESSAGES, "tools": TOOLS[:2], "tool_choice": "required"}
    plan = ToolPlanner(HERMES, "auto", Limits()).plan(parse_body(ChatCompletionRequest, body, strict=True))
    schema = plan and plan.schema()
    assert schema
    gate = _gate()
    grammar = await gate.grammar(schema_form(schema, "tools"))
    matcher = GrammarCompiler(ByteTokenizer(), 257, frozenset({EOS_ID})).matcher(grammar)
    value = [{"name": "plant", "arguments": {"root": {"next": {"enum": "#"}}}}, {"name": "move", "arguments": {"x": 7}}]
    tokens = [*json.dumps(value).encode(), EOS_ID]
    assert matcher.valid_prefix(tokens) == len(tokens)
