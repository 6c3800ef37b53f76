"""What a request wants with its tools, checked against limits and against what the model's chat template can do."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import msgspec

from cluster.errors import InvalidRequestError
from deployments.limits import Limits, check_count
from deployments.schema_openai import ChatCompletionRequest
from deployments.schema_tools import NamedToolChoice, Tool
from deployments.tool_calls.framing import FORCED, FRAMINGS, Framing, ParserName, traits_of
from deployments.tool_calls.parser import FramedParser, NamedParser, Parser

ToolMode = Literal["auto", "required", "named"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolPlan:
    """How the tools of a request are shown, forced and found.

    Attributes:
        tools: shown to the model.
        mode: who decides about calls.
        forced: the one tool that must be called; None otherwise.
        framing: how calls stand in the answer; None leaves the text as it is.
        max_calls: of an answer; None for no limit.
        has_short_ids: ids of calls must be nine letters or digits, for this model's template.
    """

    tools: tuple[Tool, ...]
    mode: ToolMode
    forced: Tool | None = None
    framing: Framing | None = None
    max_calls: int | None = None
    has_short_ids: bool = False

    def parser(self) -> Parser | None:
        """A new parser for one answer; None where the text stays as it is."""
        if self.forced is not None:
            return NamedParser(self.forced.function.name)
        if self.framing is None:
            return None
        return FramedParser(self.framing, frozenset(tool.function.name for tool in self.tools), self.max_calls)

    def schema(self) -> Mapping[str, Any] | None:
        """The schema that answers keep to: a list of calls, or the arguments of one; None where the model is free."""
        if self.forced is not None:
            return self.forced.parameters
        if self.mode == "auto":
            return None
        items = [_call_schema(tool, f"#/items/anyOf/{index}") for index, tool in enumerate(self.tools)]
        return {"type": "array", "items": {"anyOf": items}, "minItems": 1, "maxItems": self.max_calls}


class ToolPlanner:
    """Plans for requests of one gateway.

    Args:
        template: the model's chat template.
        parser: how calls are found; `auto` reads it off the template, `none` leaves them in the text.
        limits: bounds on requests.
    """

    def __init__(self, template: object, parser: ParserName, limits: Limits) -> None:
        traits = traits_of(template)
        self._framing = traits.framing if parser == "auto" else FRAMINGS.get(parser)
        self._is_unknown = parser == "auto" and traits.framing is None
        self._is_short = self._framing is not None and self._framing.has_short_ids
        self._limits = limits

    def plan(self, body: ChatCompletionRequest) -> ToolPlan | None:
        """What to do about tools; None where there are none to call.

        Raises:
            InvalidRequestError: a limit is exceeded, or the fields do not go together.
        """
        tools, choice = tuple(body.tools or ()), body.tool_choice
        self.check(tools)
        if not tools and choice not in (None, "none", "auto"):
            raise _invalid("tool_choice needs tools", "tool_choice")
        if not tools or choice == "none":
            return None
        if body.answer_field is not None:
            raise _invalid(f"{body.answer_field} goes with tool_choice none alone", body.answer_field)
        max_calls = 1 if body.parallel_tool_calls is False else None
        plan = ToolPlan(
            tools=tools, mode="auto", framing=self._framing, max_calls=max_calls, has_short_ids=self._is_short
        )
        if isinstance(choice, NamedToolChoice):
            return replace(plan, mode="named", forced=_named(tools, choice), framing=None)
        if choice == "required":
            most = max_calls or self._limits.max_tool_calls
            return replace(plan, mode="required", framing=FORCED, max_calls=most)
        if self._is_unknown:
            raise InvalidRequestError(
                "this model's chat template teaches a way to call tools that is not known here: set tool_call_parser "
                "on the server, or ask with tool_choice required",
                param="tools",
                code="no_tool_call_parser",
            )
        return plan

    def check(self, tools: Sequence[Tool]) -> None:
        """Refuse tools beyond limits, and those that nobody can call.

        Raises:
            InvalidRequestError: there is one.
        """
        check_count(self._limits, "max_tools", len(tools), "tools")
        num_bytes = sum(len(msgspec.json.encode(tool.shown())) for tool in tools)
        if num_bytes > self._limits.max_tool_bytes:
            raise InvalidRequestError(
                f"tools have {num_bytes} bytes; at most {self._limits.max_tool_bytes} are allowed",
                param="tools",
                code="max_tool_bytes",
            )
        if len({tool.function.name for tool in tools}) < len(tools):
            raise _invalid("two tools have the same name", "tools")
        for index, tool in enumerate(tools):
            if tool.parameters.get("type", "object") != "object":
                raise _invalid("arguments are an object", f"tools.{index}.function.parameters.type")


def _named(tools: Sequence[Tool], choice: NamedToolChoice) -> Tool:
    name = choice.function.name
    found = next((tool for tool in tools if tool.function.name == name), None)
    if found is None:
        raise _invalid(f"there is no tool named {name}", "tool_choice.function.name")
    return found


def _call_schema(tool: Tool, place: str) -> dict[str, Any]:
    """Schema of a call; the tool's own references follow it to its new place."""
    arguments = _moved(tool.parameters, f"{place}/properties/arguments")
    return {
        "type": "object",
        "properties": {"name": {"const": tool.function.name}, "arguments": arguments},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }


def _moved(value: Any, place: str) -> Any:
    """A schema with its references to itself put right; bounded by the depth that a body may have."""
    if isinstance(value, list):
        return [_moved(item, place) for item in value]
    if not isinstance(value, dict):
        return value
    moved: dict[str, Any] = {}
    for key, item in value.items():
        if key == "$ref" and isinstance(item, str):
            moved[key] = place + item[1:] if item.startswith("#") else item
        elif key == "enum" and isinstance(item, list):
            moved[key] = item
        elif key != "$id" or not isinstance(item, str):  # an address of its own would change what "#" means
            moved[key] = _moved(item, place)
    return moved


def _invalid(message: str, param: str) -> InvalidRequestError:
    return InvalidRequestError(message, param=param, code="invalid_value")
