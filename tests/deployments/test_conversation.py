from typing import Any

import pytest

from cluster.errors import InvalidRequestError
from deployments.chat_template import ChatRenderer
from deployments.conversation import as_templates_take
from deployments.schema_openai import ChatMessage
from deployments.schema_tools import Tool

USER = {"role": "user", "content": "What is 1 + 2?"}
CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}}
CALLS = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT = {"role": "tool", "content": "3", "tool_call_id": "c1"}
ADD = Tool.model_validate({"type": "function", "function": {"name": "add", "description": "Adds.", "strict": True}})


def _take(*messages: dict[str, Any], tools: tuple[Tool, ...] = (), knows_tools: bool) -> list[dict[str, Any]]:
    return as_templates_take([ChatMessage.model_validate(m) for m in messages], tools, knows_tools=knows_tools)


def test_a_template_that_knows_tools_gets_calls_with_arguments_as_values_and_results_by_id() -> None:
    taken = _take(USER, CALLS, RESULT, tools=(ADD,), knows_tools=True)
    assert taken[0] == USER
    assert taken[1]["content"] == ""
    assert taken[1]["tool_calls"][0]["function"] == {"name": "add", "arguments": {"a": 1, "b": 2}}
    assert taken[2] == RESULT
    assert "tool_calls" not in taken[0]


def test_a_template_that_knows_no_tools_is_told_of_them_in_the_system_message_in_hermes_form() -> None:
    taken = _take(USER, CALLS, RESULT, tools=(ADD,), knows_tools=False)
    assert [message["role"] for message in taken] == ["system", "user", "assistant", "user"]
    assert '<tools>\n{"type":"function","function":{"name":"add","description":"Adds."' in taken[0]["content"]
    assert '<tool_call>\n{"name": <function name>, "arguments": ' in taken[0]["content"]
    assert taken[2]["content"] == '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call>'
    assert taken[3]["content"] == "<tool_response>\n3\n</tool_response>"


def test_the_users_own_system_message_stays_first() -> None:
    taken = _take({"role": "developer", "content": "Be brief."}, USER, tools=(ADD,), knows_tools=False)
    assert [message["role"] for message in taken] == ["system", "user"]
    assert taken[0]["content"].startswith("Be brief.\n\n# Tools")


def test_earlier_calls_become_text_even_where_no_tools_are_given_any_more() -> None:
    taken = _take(USER, CALLS | {"content": "Let me add."}, RESULT, knows_tools=False)
    assert taken[1]["content"].startswith("Let me add.\n<tool_call>")


@pytest.mark.parametrize("arguments", ["[1]", "{", "5", '{"a":' * 3000])
def test_calls_whose_arguments_are_no_object_are_refused_by_place(arguments: str) -> None:
    call = {**CALL, "function": {"name": "add", "arguments": arguments}}
    with pytest.raises(InvalidRequestError) as caught:
        _take(USER, {**CALLS, "tool_calls": [CALL, call]}, knows_tools=True)
    assert caught.value.param == "messages.1.tool_calls.1.function.arguments"


@pytest.mark.anyio
async def test_tools_reach_templates_that_know_them_and_only_those() -> None:
    seen: list[dict[str, Any]] = []

    class Tokenizer:
        def __init__(self, chat_template: object) -> None:
            self.chat_template = chat_template

        def apply_chat_template(self, conversation: list[dict[str, Any]], **kwargs: object) -> object:
            seen.append(kwargs | {"roles": [message["role"] for message in conversation]})
            return "text"

    for template in ("{{ tools }}", "{{ messages }}"):
        renderer = ChatRenderer(Tokenizer(template), 5.0)
        messages = [ChatMessage.model_validate(USER)]
        await renderer.render(messages, add_generation_prompt=True, tools=[ADD])
        await renderer.render(messages, add_generation_prompt=True)
        renderer.close()
    assert [("tools" in call, call["roles"]) for call in seen] == [
        (True, ["user"]), (False, ["user"]), (False, ["system", "user"]), (False, ["user"]),
    ]  # fmt: skip
    assert seen[0]["tools"] == [ADD.shown()]
