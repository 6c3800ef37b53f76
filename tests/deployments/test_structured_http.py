"""Tools, `response_format` and `structured_outputs` over HTTP; the fake engine writes what it is told to."""

import json
from typing import Any

import pytest

from cluster.grammar.limits import GrammarLimits
from deployments.limits import Limits
from deployments.service import GatewaySettings
from tests.deployments.conftest import Serve
from tests.deployments.fake_engine import SCRIPT, ByteTokenizer, FakeEngine
from tests.deployments.http_helpers import MESSAGES, error_of, events_of
from tests.deployments.tool_samples import TOOLS

pytestmark = pytest.mark.anyio

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
CALLS = '[{"name": "move", "arguments": {"x": 5}}, {"name": "now", "arguments": {}}]'
HERMES = 'I will. <tool_call>\n{"name": "move", "arguments": {"x": 5}}\n</tool_call>'
MOVE = {"type": "function", "function": {"name": "move"}}


def _engine(**fields: Any) -> FakeEngine:
    """With room for tools in the prompt."""
    engine = FakeEngine(**fields)
    engine.max_model_len = 4096
    return engine


def _accumulate(events: list[dict[str, Any]], index: int) -> dict[str, Any]:
    """A choice put together as clients do it."""
    content, calls, reason = "", dict[int, dict[str, Any]](), None
    for event in events:
        for choice in event["choices"]:
            if choice["index"] != index:
                continue
            reason = choice["finish_reason"] or reason
            content += choice["delta"].get("content", "")
            for part in choice["delta"].get("tool_calls", ()):
                if part["index"] not in calls:
                    assert part["id"]
                    assert part["function"]["name"]
                    calls[part["index"]] = {"id": part["id"], "type": part["type"], "function": {**part["function"]}}
                else:
                    assert "name" not in part["function"]
                    calls[part["index"]]["function"]["arguments"] += part["function"]["arguments"]
    return {"content": content or None, "tool_calls": list(calls.values()), "finish_reason": reason}


@pytest.mark.parametrize("tokens_per_step", [1, 7, 200])
@pytest.mark.parametrize(
    ("script", "choice", "content"),
    [(CALLS, "required", None), (HERMES, "auto", "I will."), ('{"x": 5}', MOVE, None)],
)
async def test_calls_are_the_same_in_whole_and_streamed_answers_for_every_choice(
    serve: Serve, tokens_per_step: int, script: str, choice: object, content: str | None
) -> None:
    body = {
        "messages": MESSAGES,
        "tools": TOOLS,
        "tool_choice": choice,
        "n": 2,
        "max_tokens": 400,
        "model": "fake/bytes",
    }
    async with serve(engine=_engine(script=script, ends=True, tokens_per_step=tokens_per_step)) as server:
        whole = (await server.http.post(CHAT, json=body)).json()["choices"]
        events = events_of(await server.http.post(CHAT, json=body | {"stream": True}))
    ids, names = set(), ["move", "now"] if script == CALLS else ["move"]
    for index, told in enumerate(whole):
        streamed, message = _accumulate(events, index), told["message"]
        assert (message["content"], told["finish_reason"]) == (content, "tool_calls")
        assert (streamed["content"], streamed["finish_reason"]) == (content, "tool_calls")
        functions = [call["function"] for call in message["tool_calls"]]
        assert [call["function"] for call in streamed["tool_calls"]] == functions
        assert [function["name"] for function in functions] == names
        assert json.loads(functions[0]["arguments"]) == {"x": 5}
        ids |= {call["id"] for call in (*message["tool_calls"], *streamed["tool_calls"])}
    assert len(ids) == 4 * len(names)


async def test_an_answer_without_calls_is_content_and_ends_as_ever(serve: Serve) -> None:
    body = {"messages": MESSAGES, "tools": TOOLS, "max_tokens": 20}
    async with serve(engine=_engine()) as server:
        (choice,) = (await server.http.post(CHAT, json=body)).json()["choices"]
        events = events_of(await server.http.post(CHAT, json=body | {"stream": True}))
    assert choice["message"] == {"role": "assistant", "content": SCRIPT[:20], "refusal": None}
    assert choice["finish_reason"] == "length"
    assert _accumulate(events, 0) == {"content": SCRIPT[:20], "tool_calls": [], "finish_reason": "length"}


async def test_a_call_that_the_length_cuts_off_says_so(serve: Serve) -> None:
    body = {"messages": MESSAGES, "tools": TOOLS, "max_tokens": len(HERMES) - 15}
    async with serve(engine=_engine(script=HERMES, ends=True)) as server:
        (choice,) = (await server.http.post(CHAT, json=body)).json()["choices"]
    assert choice["finish_reason"] == "length"
    assert choice["message"]["tool_calls"][0]["function"]["arguments"].startswith('{"x": 5')


async def test_logprobs_and_token_ids_of_calls_are_all_there(serve: Serve) -> None:
    body = {"messages": MESSAGES, "tools": TOOLS, "max_tokens": 400, "logprobs": True, "return_token_ids": True}
    async with serve(engine=_engine(script=HERMES, ends=True)) as server:
        events = events_of(await server.http.post(CHAT, json=body | {"stream": True}))
    parts = [choice for event in events for choice in event["choices"]]
    assert bytes(token_id for part in parts for token_id in part.get("token_ids", ())).decode() == HERMES
    assert sum(len(part["logprobs"]["content"]) for part in parts if part["logprobs"]) == len(HERMES)


@pytest.mark.parametrize(
    ("path", "fields", "has_grammar"),
    [
        (CHAT, {"response_format": {"type": "json_object"}}, True),
        (CHAT, {"response_format": {"type": "text"}}, False),
        (CHAT, {"tools": TOOLS, "tool_choice": "required"}, True),
        (CHAT, {"tools": TOOLS, "tool_choice": MOVE}, True),
        (CHAT, {"tools": TOOLS}, False),
        (CHAT, {"tools": TOOLS, "tool_choice": "none", "structured_outputs": {"choice": ["a"]}}, True),
        (COMPLETIONS, {"structured_outputs": {"regex": "[a-z]+"}}, True),
        (COMPLETIONS, {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}}}, True),
        (COMPLETIONS, {}, False),
    ],
)
async def test_the_grammar_of_a_demanded_form_reaches_the_engine(
    serve: Serve, path: str, fields: dict[str, object], has_grammar: bool
) -> None:
    body = {"messages": MESSAGES} if path == CHAT else {"prompt": ["a", "b"]}
    async with serve(engine=_engine()) as server:
        answer = await server.http.post(path, json=body | {"max_tokens": 1, "n": 2} | fields, headers={"x-strict": "1"})
        assert answer.status_code == 200
        assert {bool(request.grammar) for request in server.engine.seen} == {has_grammar}
        assert len({request.grammar for request in server.engine.seen}) == 1


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"structured_outputs": {"regex": "(a"}}, "invalid_grammar"),
        ({"structured_outputs": {"choice": ["a"] * 3000}}, "invalid_grammar"),
        ({"tools": TOOLS * 2}, "max_tools"),
        ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "x"}}}, "invalid_value"),
        ({"tools": TOOLS, "response_format": {"type": "json_object"}}, "invalid_value"),
    ],
)
async def test_what_is_refused_is_refused_before_the_engine_sees_it(
    serve: Serve, fields: dict[str, object], code: str
) -> None:
    async with serve(settings=GatewaySettings(max_resumes=0, limits=Limits(max_tools=4))) as server:
        answer = await server.http.post(CHAT, json={"messages": MESSAGES} | fields)
        assert server.engine.seen == []
    assert answer.status_code == 400
    assert error_of(answer)["code"] == code
    assert error_of(answer)["param"] in (
        *fields,
        "structured_outputs.regex",
        "structured_outputs.choice",
        "tool_choice.function.name",
    )


async def test_tools_stand_in_the_prompt_unless_nobody_may_call_them_and_count_in_tokenize(serve: Serve) -> None:
    body = {"messages": MESSAGES, "tools": TOOLS, "max_tokens": 1}
    async with serve(engine=_engine()) as server:
        await server.http.post(CHAT, json=body)
        await server.http.post(CHAT, json=body | {"tool_choice": "none"})
        counted = (await server.http.post("/tokenize", json={"messages": MESSAGES, "tools": TOOLS})).json()
        prompts = [each.prompt_token_ids for each in server.engine.seen]
    shown, hidden = (ByteTokenizer().decode(each, skip_special_tokens=False) for each in prompts)
    assert '"name":"move"' in shown
    assert "move" not in hidden
    assert counted["count"] == len(shown.encode())


async def test_limits_of_grammars_and_the_parser_are_settings(serve: Serve) -> None:
    class Llama(ByteTokenizer):
        chat_template: object = "{{ tools }} <|python_tag|>"

    script = '{"name": "move", "parameters": {"x": 1}}'
    body = {"messages": MESSAGES, "tools": TOOLS, "max_tokens": 400}
    for parser, reason in (("auto", "tool_calls"), ("none", "stop"), ("hermes", "stop"), ("llama3_json", "tool_calls")):
        settings = GatewaySettings(max_resumes=0, tool_call_parser=parser)  # type: ignore[arg-type]
        engine = _engine(script=script, ends=True)
        async with serve(engine=engine, settings=settings, tokenizer=Llama()) as server:
            answer = await server.http.post(CHAT, json=body)
            assert answer.json()["choices"][0]["finish_reason"] == reason
    async with serve(grammar=GrammarLimits(max_choices=2)) as server:
        answer = await server.http.post(
            COMPLETIONS, json={"prompt": "a", "structured_outputs": {"choice": ["a", "b", "c"]}}
        )
    assert "at most 2" in error_of(answer)["message"]


async def test_special_tokens_are_shown_where_a_call_begins_with_one(serve: Serve) -> None:
    class Mistral(ByteTokenizer):
        chat_template: object = "{{ tools }} [TOOL_CALLS]"

        def convert_ids_to_tokens(self, ids: int) -> str | None:
            return "[TOOL_CALLS]" if ids >= 256 else super().convert_ids_to_tokens(ids)

    body = {"messages": MESSAGES, "max_tokens": 1}
    async with serve(engine=_engine(), tokenizer=Mistral()) as server:
        for fields in ({"tools": TOOLS}, {"tools": TOOLS, "tool_choice": "required"}, {}):
            await server.http.post(CHAT, json=body | fields)
        assert [request.sampling.skip_special_tokens for request in server.engine.seen] == [False, True, True]
