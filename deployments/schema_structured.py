"""Request fields that demand a form of the answer: OpenAI's `response_format`, vLLM's `structured_outputs`."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

JsonSchema = dict[str, Any] | bool


class JsonSchemaFormat(BaseModel):
    """A named JSON schema. It is always kept to: `strict` and `description` are taken and change nothing."""

    model_config = ConfigDict(extra="ignore")

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
    description: Annotated[str, Field(max_length=4096)] | None = None
    schema_: JsonSchema = Field(default=True, alias="schema")
    strict: bool | None = None


class ResponseFormat(BaseModel):
    """OpenAI's way to demand JSON."""

    model_config = ConfigDict(extra="ignore")

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchemaFormat | None = None

    @model_validator(mode="after")
    def _check(self) -> "ResponseFormat":
        if (self.type == "json_schema") != (self.json_schema is not None):
            raise ValueError("json_schema goes with type json_schema, and with no other")
        return self


class StructuredOutputs(BaseModel):
    """vLLM's way to demand a form: exactly one of these."""

    model_config = ConfigDict(extra="forbid")

    json_: JsonSchema | str | None = Field(default=None, alias="json")
    regex: Annotated[str, Field(min_length=1)] | None = None
    choice: Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=1)] | None = None
    grammar: Annotated[str, Field(min_length=1)] | None = None
    json_object: bool | None = None

    @model_validator(mode="after")
    def _check(self) -> "StructuredOutputs":
        given = (self.json_, self.regex, self.choice, self.grammar, self.json_object or None)
        if sum(value is not None for value in given) != 1:
            raise ValueError("exactly one of json, regex, choice, grammar and json_object is needed")
        return self
