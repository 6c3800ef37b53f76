"""Chat templates: the model's own, rendered in a sandbox, in a bounded worker, within a time limit.

transformers renders in jinja's `ImmutableSandboxedEnvironment`. A thread cannot be killed, so the number of workers
bounds what a template that never ends can take; the event loop is never blocked.
"""

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from cluster.errors import InvalidRequestError, UnavailableError
from deployments.schema_openai import ChatMessage

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

    def apply_chat_template(self, conversation: list[dict[str, str]], **kwargs: Any) -> Any:
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
        self._pool = ThreadPoolExecutor(MAX_WORKERS, thread_name_prefix="chat-template")
        self._num_stuck = 0

    async def render(
        self,
        messages: Sequence[ChatMessage],
        *,
        add_generation_prompt: bool,
        continue_final_message: bool = False,
        kwargs: Mapping[str, bool | int | str] | None = None,
    ) -> str:
        """The conversation as the model's prompt.

        Raises:
            InvalidRequestError: the model has no template, it refuses these messages, or it takes too long.
            UnavailableError: all workers hang in earlier renderings.
        """
        if not self._tokenizer.chat_template:
            raise InvalidRequestError("this model has no chat template; use /v1/completions", code="no_chat_template")
        if self._num_stuck >= MAX_WORKERS:
            raise UnavailableError("chat templates cannot be rendered now")
        options = {
            **check_kwargs(kwargs),
            "add_generation_prompt": add_generation_prompt and not continue_final_message,
            "continue_final_message": continue_final_message,
        }
        future = self._pool.submit(self._render, [_plain(message) for message in messages], options)
        try:
            return await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(future)), self.timeout_s)
        except TimeoutError:
            if not future.cancel():
                self._num_stuck += 1
                future.add_done_callback(self._unstick)
            raise InvalidRequestError("rendering the chat template took too long", code="template_timeout") from None

    def close(self) -> None:
        """Let the workers go; one that hangs is left behind."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _unstick(self, _: object) -> None:
        self._num_stuck -= 1

    def _render(self, messages: list[dict[str, str]], options: dict[str, object]) -> str:
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


def _plain(message: ChatMessage) -> dict[str, str]:
    role = "system" if message.role == "developer" else message.role
    return {"role": role, "content": message.text} | ({"name": message.name} if message.name else {})
