"""Request models shared by the routes: sampling fields, speculation wishes, refused features, error bodies.

Fields and ranges are OpenAI's plus vLLM's extras. Unknown fields are ignored, unless the client asks for strictness.
"""

from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from cluster.errors import InvalidRequestError, RequestError
from deployments.schema_structured import ResponseFormat, StructuredOutputs

MAX_ECHOED_ERRORS = 10
MAX_ECHOED_CHARS = 200

Domain = Literal["code_synthesis", "structured_json", "rag_summary", "creative_writing", "general_chat"]
ServiceTier = Literal["auto", "default", "flex", "scale", "priority"]
TokenId = Annotated[int, Field(ge=0, lt=1 << 31, strict=True)]
Seed = Annotated[int, Field(ge=-(1 << 63), lt=1 << 64)]
Count = Annotated[int, Field(ge=0, le=1 << 31)]


class Body(BaseModel):
    """Base of all request models."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False, protected_namespaces=())

    refused: ClassVar[dict[str, str]] = {}
    """Fields that are known, not supported, and must not be silently dropped: name and reason."""


_HARMLESS: tuple[tuple[str, object], ...] = (("modalities", ["text"]),)
"""Values of refused fields that clients send by default and that ask for nothing."""

BodyT = TypeVar("BodyT", bound=Body)


class SpeculationBody(BaseModel):
    """Wishes about speculation; the text is the same whatever they are."""

    model_config = ConfigDict(extra="forbid")

    mode: Literal["auto", "on", "off"] = "auto"
    num_speculative_tokens: Annotated[int, Field(ge=0, le=64)] | None = None
    drafter: Annotated[str, Field(max_length=64)] | None = None


class StreamOptions(BaseModel):
    """Options of a streamed answer."""

    model_config = ConfigDict(extra="ignore")

    include_usage: bool = False
    continuous_usage_stats: bool = False
    include_obfuscation: bool | None = None


class SamplingBody(Body):
    """Fields that chat and text completions share."""

    model: Annotated[str, Field(max_length=512)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1, le=1 << 31)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Field(ge=0.01, le=100)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    n: Annotated[int, Field(ge=1, le=1 << 16)] | None = None
    seed: Seed | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[TokenId] | None = None
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True
    ignore_eos: bool = False
    min_tokens: Count = 0
    logit_bias: dict[str, Annotated[float, Field(ge=-100, le=100)]] | None = None
    allowed_token_ids: list[TokenId] | None = None
    bad_words: list[Annotated[str, Field(min_length=1, max_length=256)]] | None = None
    prompt_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    user: str | None = None
    service_tier: ServiceTier | None = None
    priority: Annotated[int, Field(ge=-(1 << 31), lt=1 << 31)] = 0
    cache_salt: Annotated[str, Field(max_length=256)] | None = None
    return_token_ids: bool = False
    speculation: SpeculationBody | None = None
    domain: Domain | None = None
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None

    refused: ClassVar[dict[str, str]] = {
        "guided_json": "use structured_outputs.json",
        "guided_regex": "use structured_outputs.regex",
        "guided_choice": "use structured_outputs.choice",
        "guided_grammar": "use structured_outputs.grammar",
        "guided_decoding_backend": "there is one",
        "guided_whitespace_pattern": "JSON is written in one style",
        "regex": "use structured_outputs.regex",
        "ebnf": "use structured_outputs.grammar",
        "chat_template": "templates come from the model alone",
        "prompt_embeds": "prompts are text or token ids",
        "logits_processors": "code from requests is never run",
        "use_beam_search": "beam search is not supported",
        "truncate_prompt_tokens": "prompts are never cut; shorten the prompt",
    }

    @model_validator(mode="after")
    def _check_form(self) -> "SamplingBody":
        if self.structured_outputs is not None and self.answer_field == "response_format":
            raise ValueError("response_format and structured_outputs exclude each other")
        return self

    @property
    def answer_field(self) -> str | None:
        """The field that demands a form of the answer; None where it is free."""
        if self.response_format is not None and self.response_format.type != "text":
            return "response_format"
        return None if self.structured_outputs is None else "structured_outputs"

    @property
    def json_form(self) -> str | None:
        """The JSON that is demanded, in the words of `response_format`; None where it need not be JSON."""
        if self.response_format is not None and self.response_format.type != "text":
            return self.response_format.type
        wish = self.structured_outputs
        if wish is None or (wish.json_ is None and not wish.json_object):
            return None
        return "json_object" if wish.json_ is None else "json_schema"


class ErrorDetail(BaseModel):
    """What went wrong."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorResponse(BaseModel):
    """Body of every answer that is not a success."""

    error: ErrorDetail


def error_body(error: RequestError) -> dict[str, Any]:
    """The body for an error."""
    return {
        "error": {"message": error.message, "type": error.type, "param": error.param, "code": error.code},
    }


def parse_body(model: type[BodyT], data: object, *, strict: bool) -> BodyT:
    """Check a decoded JSON body against its model.

    Args:
        model: the request model.
        data: the decoded body.
        strict: refuse unknown fields as well.

    Raises:
        InvalidRequestError: a field is wrong, not supported, or (strict) unknown.
    """
    if not isinstance(data, dict):
        raise InvalidRequestError("the body must be a JSON object", code="invalid_body")
    _check_refused(model, data)
    if strict:
        unknown = sorted(set(data) - set(model.model_fields) - set(model.refused))
        if unknown:
            names = ", ".join(name[:64] for name in unknown[:MAX_ECHOED_ERRORS])
            raise InvalidRequestError(f"unknown fields: {names}", param=unknown[0][:64], code="unknown_field")
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise _invalid(error) from None


def _check_refused(model: type[Body], data: dict[str, Any]) -> None:
    for name in model.refused.keys() & data.keys():
        value = data[name]
        if value in (None, False, [], {}, "none"):
            continue
        if (name, value) in _HARMLESS:
            continue
        raise InvalidRequestError(f"{name} is refused: {model.refused[name]}", param=name, code="unsupported_field")


def _invalid(error: ValidationError) -> InvalidRequestError:
    """Field names and reasons, capped so that a small body cannot draw a huge answer."""
    details = error.errors(include_url=False, include_context=False, include_input=False)
    lines = [f"{_path(item['loc'])}: {item['msg']}"[:MAX_ECHOED_CHARS] for item in details[:MAX_ECHOED_ERRORS]]
    if len(details) > MAX_ECHOED_ERRORS:
        lines.append(f"and {len(details) - MAX_ECHOED_ERRORS} more")
    return InvalidRequestError(
        "; ".join(lines), param=_path(details[0]["loc"])[:MAX_ECHOED_CHARS] or None, code="invalid_value"
    )


def _path(location: tuple[int | str, ...]) -> str:
    return ".".join(str(part) for part in location)
