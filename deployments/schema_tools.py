"""Request fields about tools."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

ToolName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,128}$")]


class ToolFunction(BaseModel):
    """A function that the model may call.

    Where calls are forced (`tool_choice` required, or a function by name) arguments always keep to the schema, with or
    without `strict`; where the model is free to call, they are passed on as it writes them.
    """

    model_config = ConfigDict(extra="ignore")

    name: ToolName
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(BaseModel):
    """One tool."""

    model_config = ConfigDict(extra="ignore")

    type: Literal["function"]
    function: ToolFunction

    def shown(self) -> dict[str, Any]:
        """As chat templates take it."""
        function = {"name": self.function.name, "description": self.function.description or ""}
        return {"type": "function", "function": function | {"parameters": self.parameters}}

    @property
    def parameters(self) -> dict[str, Any]:
        """Schema of the arguments, which are an object."""
        given = self.function.parameters or {}
        is_typed = any(key in given for key in ("type", "$ref", "anyOf", "allOf", "oneOf"))
        return given if is_typed else {"type": "object", "properties": {}} | given


class NamedFunction(BaseModel):
    """The name of a function."""

    model_config = ConfigDict(extra="ignore")

    name: ToolName


class NamedToolChoice(BaseModel):
    """The one function that must be called."""

    model_config = ConfigDict(extra="ignore")

    type: Literal["function"]
    function: NamedFunction


class CalledFunction(BaseModel):
    """A call that the assistant made: name, and arguments as JSON text."""

    model_config = ConfigDict(extra="ignore")

    name: Annotated[str, Field(min_length=1, max_length=128)]
    arguments: str


class ToolCall(BaseModel):
    """A call in an assistant's message."""

    model_config = ConfigDict(extra="ignore")

    id: Annotated[str, Field(min_length=1, max_length=256)]
    type: Literal["function"] = "function"
    function: CalledFunction
