"""Chat templates and tools for tests."""

from typing import Any

HERMES = "{% if tools %}<tools>{{ tools | tojson }}</tools> write <tool_call>{...}</tool_call>{% endif %}"
LLAMA_31 = "{%- if tools %}Given the following functions{{ '<|python_tag|>' }}{% endif %}"
LLAMA_32 = """{%- if tools %}{{- '{"name": function name, "parameters": dictionary of ...}' }}{% endif %}"""
MISTRAL = '{{ "[AVAILABLE_TOOLS] [" }}{% for tool in tools %}{% endfor %}{{ "[TOOL_CALLS] [" }}'
QWEN_CODER = "{% for tool in tools %}{% endfor %}<tool_call>\n<function=example>"
PLAIN = "{% for message in messages %}{{ message['content'] }}{% endfor %}"

POINT = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"], "additionalProperties": False}
TREE = {
    "$id": "https://example.com/tree",
    "type": "object",
    "$defs": {
        "node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}, "enum": {"$ref": "#/$defs/leaf"}}},
        "leaf": {"enum": ["#", "b"]},
    },
    "properties": {"root": {"$ref": "#/$defs/node"}},
    "required": ["root"],
}  # fmt: skip


def tool(name: str, parameters: object = None) -> dict[str, Any]:
    """A tool as requests have it."""
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


TOOLS = [tool("move", POINT), tool("plant", TREE), tool("now")]
