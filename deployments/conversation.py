"""Messages as chat templates take them, and what stands in for tools where a template knows none."""

from collections.abc import Sequence
from typing import Any

import msgspec

from cluster.errors import InvalidRequestError
from deployments.schema_openai import ChatMessage
from deployments.schema_tools import Tool

TOOLS_PROMPT = """\
# Tools

You may call one or more functions to help the user. Their signatures stand between <tools></tools> tags:
<tools>
{tools}
</tools>

For each function call, write a JSON object with the function's name and arguments between <tool_call></tool_call> tags:
<tool_call>
{{"name": <function name>, "arguments": <arguments as a JSON object>}}
</tool_call>"""
"""What the system message says where a template knows no tools: the way of Hermes, which many models have seen."""


def as_templates_take(
    messages: Sequence[ChatMessage], tools: Sequence[Tool], *, knows_tools: bool
) -> list[dict[str, Any]]:
    """The messages as plain values.

    Args:
        messages: of the request.
        tools: that the model may call.
        knows_tools: the template shows tools and calls itself; otherwise they become text.

    Raises:
        InvalidRequestError: the arguments of a call are no JSON object.
    """
    if knows_tools:
        return [_plain(message, index) for index, message in enumerate(messages)]
    spoken = [_spoken(message) for message in messages]
    if not tools:
        return spoken
    lines = "\n".join(msgspec.json.encode(tool.shown()).decode() for tool in tools)
    prompt = TOOLS_PROMPT.format(tools=lines)
    if spoken[0]["role"] == "system":
        first = {**spoken[0], "content": f"{spoken[0]['content']}\n\n{prompt}"}
        return [first, *spoken[1:]]
    return [{"role": "system", "content": prompt}, *spoken]


def _plain(message: ChatMessage, index: int) -> dict[str, Any]:
    plain = _head(message) | ({"tool_call_id": message.tool_call_id} if message.tool_call_id else {})
    if not message.tool_calls:
        return plain
    calls = [
        {
            "id": call.id,
            "type": call.type,
            "function": {
                "name": call.function.name,
                "arguments": _arguments(call.function.arguments, f"messages.{index}.tool_calls.{number}"),
            },
        }
        for number, call in enumerate(message.tool_calls)
    ]
    return plain | {"tool_calls": calls}


def _arguments(text: str, place: str) -> dict[str, Any]:
    """Templates write them themselves, so they take the object and not its text."""
    try:
        return msgspec.json.decode(text or "{}", type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError):
        param = f"{place}.function.arguments"
        raise InvalidRequestError(f"{param} is no JSON object", param=param, code="invalid_value") from None


def _spoken(message: ChatMessage) -> dict[str, Any]:
    """Calls and results as text between tags, in roles that every template has."""
    plain = _head(message)
    if message.role == "tool":
        return {"role": "user", "content": f"<tool_response>\n{message.text}\n</tool_response>"}
    if message.tool_calls:
        calls = [
            f'<tool_call>\n{{"name": {_quoted(call.function.name)}, "arguments": {call.function.arguments or "{}"}}}\n'
            "</tool_call>"
            for call in message.tool_calls
        ]
        plain["content"] = "\n".join([message.text, *calls] if message.text else calls)
    return plain


def _head(message: ChatMessage) -> dict[str, Any]:
    role = "system" if message.role == "developer" else message.role
    return {"role": role, "content": message.text} | ({"name": message.name} if message.name else {})


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()
