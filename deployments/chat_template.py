"""Chat templates: the model's own, rendered in a sandbox, in a bounded worker, within a time limit.

transformers renders in jinja's `ImmutableSandboxedEnvironment`; a template that never ends costs its caller the time
limit, and nobody the event loop.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from cluster.errors import InvalidRequestError
from deployments.conversation import as_templates_take
from deployments.schema_openai import ChatMessage
from deployments.schema_tools import Tool
from deployments.tool_calls.framing import traits_of
from deployments.worker_pool import WorkerPool

ALLOWED_KWARGS = frozenset({"enable_thinking", "thinking", "reasoning_effort", "date_string"})
"""Keys of `chat_template_kwargs` that may reach a template; everything else could override its inputs."""

MAX_KWARG_CHARS = 64
MAX_WORKERS = 2


class TemplateTokenizer(Protocol):
    """The part of a transformers tokenizer that renders."""

    @property
    def chat_template(self) -> object:
        """The template; None or empty if the model has none."""
        ...

    def apply_chat_template(self, conversation: list[dict[str, Any]], **kwargs: Any) -> Any:
        """The conversation as one string (with tokenize=False)."""
        ...


class ChatRenderer:
    """Renders conversations with the model's template.

    Args:
        tokenizer: has the template.
        timeout_s: longest time a client waits for one rendering.
    """

    def __init__(self, tokenizer: TemplateTokenizer, timeout_s: float) -> None:
        self._tokenizer, self.timeout_s = tokenizer, timeout_s
        self._knows_tools = traits_of(tokenizer.chat_template).knows_tools
        self._workers = WorkerPool(
            MAX_WORKERS, refusal="chat templates cannot be rendered now; try again", thread_name="chat-template"
        )

    async def render(
        self,
        messages: Sequence[ChatMessage],
        *,
        add_generation_prompt: bool,
        continue_final_message: bool = False,
        kwargs: Mapping[str, bool | int | str] | None = None,
        tools: Sequence[Tool] = (),
    ) -> str:
        """The conversation as the model's prompt.

        Raises:
            InvalidRequestError: the model has no template, it refuses these messages, or it takes too long.
            UnavailableError: all workers are taken by other renderings.
        """
        if not self._tokenizer.chat_template:
            raise InvalidRequestError("this model has no chat template; use /v1/completions", code="no_chat_template")
        options = {
            **check_kwargs(kwargs),
            "add_generation_prompt": add_generation_prompt and not continue_final_message,
            "continue_final_message": continue_final_message,
        }
        if tools and self._knows_tools:
            options["tools"] = [tool.shown() for tool in tools]
        plain = as_templates_take(messages, tools, knows_tools=self._knows_tools)
        try:
            return await self._workers.run(lambda: self._render(plain, options), self.timeout_s)
        except TimeoutError:
            raise InvalidRequestError("rendering the chat template took too long", code="template_timeout") from None

    def close(self) -> None:
        """Let the workers go; one that hangs is left behind."""
        self._workers.close()

    def _render(self, messages: list[dict[str, Any]], options: dict[str, object]) -> str:
        try:
            text = self._tokenizer.apply_chat_template(messages, tokenize=False, **options)
        except Exception as error:
            raise InvalidRequestError(
                "the model's chat template refuses these messages: " + str(error)[:200],
                param="messages",
                code="template_error",
            ) from error
        assert isinstance(text, str)
        return text


def check_kwargs(kwargs: Mapping[str, bool | int | str] | None) -> dict[str, object]:
    """Template arguments of a request, if they are all allowed.

    Raises:
        InvalidRequestError: a key is not on the list, or a value is too long.
    """
    for name, value in (kwargs or {}).items():
        if name not in ALLOWED_KWARGS or (isinstance(value, str) and len(value) > MAX_KWARG_CHARS):
            raise InvalidRequestError(
                f"chat_template_kwargs allows short values for {', '.join(sorted(ALLOWED_KWARGS))} only",
                param="chat_template_kwargs",
                code="invalid_value",
            )
    return dict(kwargs or {})
