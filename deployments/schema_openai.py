"""Request models of the OpenAI routes and of tokenize / detokenize."""

from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from deployments.schema import Body, Count, SamplingBody, TokenId
from deployments.schema_tools import NamedToolChoice, Tool, ToolCall


class TextPart(BaseModel):
    """One text part of a message."""

    model_config = ConfigDict(extra="ignore")

    type: Literal["text"]
    text: str


class ChatMessage(BaseModel):
    """One message of a conversation."""

    model_config = ConfigDict(extra="ignore")

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[TextPart] | None = None
    name: Annotated[str, Field(max_length=256)] | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: Annotated[str, Field(min_length=1, max_length=256)] | None = None

    @model_validator(mode="after")
    def _check(self) -> "ChatMessage":
        if self.tool_calls and self.role != "assistant":
            raise ValueError("only the assistant makes tool_calls")
        if self.content is None and not self.tool_calls:
            raise ValueError("content is missing")
        if (self.role == "tool") != (self.tool_call_id is not None):
            raise ValueError("tool_call_id goes with role tool, and with no other")
        return self

    @property
    def text(self) -> str:
        """The content as one string; empty where there is none."""
        if self.content is None or isinstance(self.content, str):
            return self.content or ""
        return "".join(part.text for part in self.content)

    @property
    def num_chars(self) -> int:
        """Of the content and of the arguments of calls."""
        return len(self.text) + sum(len(call.function.arguments) for call in self.tool_calls or ())


class ChatCompletionRequest(SamplingBody):
    """Body of `POST /v1/chat/completions`."""

    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    max_tokens: Annotated[int, Field(ge=1, le=1 << 31)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1, le=1 << 31)] | None = None
    logprobs: bool | None = False
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    chat_template_kwargs: dict[str, bool | int | str] | None = None
    tools: list[Tool] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedToolChoice | None = None
    parallel_tool_calls: bool | None = None

    refused: ClassVar[dict[str, str]] = SamplingBody.refused | {
        "functions": "use tools",
        "function_call": "use tool_choice",
        "modalities": "only text is supported",
        "audio": "only text is supported",
        "documents": "put documents into a message",
    }

    @model_validator(mode="after")
    def _check(self) -> "ChatCompletionRequest":
        if self.top_logprobs is not None and not self.logprobs:
            raise ValueError("top_logprobs needs logprobs: true")
        if (
            self.continue_final_message
            and self.add_generation_prompt
            and "add_generation_prompt" in self.model_fields_set
        ):
            raise ValueError("continue_final_message and add_generation_prompt exclude each other")
        return self

    @property
    def num_logprobs(self) -> int | None:
        """Top alternatives per token, or None for no logprobs."""
        return (self.top_logprobs or 0) if self.logprobs else None


class CompletionRequest(SamplingBody):
    """Body of `POST /v1/completions`."""

    prompt: (
        str
        | Annotated[list[TokenId], Field(min_length=1)]
        | Annotated[list[str], Field(min_length=1)]
        | Annotated[list[Annotated[list[TokenId], Field(min_length=1)]], Field(min_length=1)]
    )
    max_tokens: Count | None = None
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    echo: bool | None = False
    best_of: Annotated[int, Field(ge=1, le=1 << 16)] | None = None
    add_special_tokens: bool = True

    refused: ClassVar[dict[str, str]] = SamplingBody.refused | {"suffix": "insertion is not supported"}

    @model_validator(mode="after")
    def _check(self) -> "CompletionRequest":
        if self.best_of is not None and self.best_of != (self.n or 1):
            raise ValueError("best_of other than n is not supported")
        if self.max_tokens == 0 and not self.echo:
            raise ValueError("max_tokens = 0 needs echo: true")
        return self

    @property
    def prompts(self) -> list[str | list[int]]:
        """The prompts, one entry each."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        if isinstance(self.prompt[0], int):
            return [[item for item in self.prompt if isinstance(item, int)]]
        return [item for item in self.prompt if not isinstance(item, int)]


class TokenizeRequest(Body):
    """Body of `POST /tokenize`: a prompt or messages."""

    model: str | None = None
    prompt: str | None = None
    messages: list[ChatMessage] | None = None
    add_special_tokens: bool | None = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    return_token_strs: bool = False
    chat_template_kwargs: dict[str, bool | int | str] | None = None
    tools: list[Tool] | None = None

    refused: ClassVar[dict[str, str]] = {"chat_template": "templates come from the model alone"}

    @model_validator(mode="after")
    def _check(self) -> "TokenizeRequest":
        if (self.prompt is None) == (not self.messages):
            raise ValueError("exactly one of prompt and messages is needed")
        return self


class DetokenizeRequest(Body):
    """Body of `POST /detokenize`."""

    model: str | None = None
    tokens: list[TokenId]


class TokenizeResponse(BaseModel):
    """Answer of `POST /tokenize`."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None = None


class DetokenizeResponse(BaseModel):
    """Answer of `POST /detokenize`."""

    prompt: str


class ModelInfo(BaseModel):
    """One entry of `GET /v1/models`; what vLLM's card says plus what is in force: numerics, acceptance, drafter."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "outrider"
    root: str
    parent: str | None = None
    max_model_len: int
    numerics: str
    dtype: str
    acceptance: str
    drafter: str
    drafter_reason: str


class ModelList(BaseModel):
    """Answer of `GET /v1/models`."""

    object: Literal["list"] = "list"
    data: list[ModelInfo]
