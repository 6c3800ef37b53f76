"""Server-sent events as OpenAI clients expect them: pure functions from values to bytes."""

from collections.abc import Mapping
from typing import Any

import msgspec

from cluster.errors import RequestError
from deployments.schema import error_body

DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": keep-alive\n\n"

_encoder = msgspec.json.Encoder()


def event(body: Mapping[str, Any]) -> bytes:
    """One event with a JSON body."""
    return b"data: " + _encoder.encode(body) + b"\n\n"


def error_events(error: RequestError) -> bytes:
    """An error in the middle of a stream, and the end of it."""
    return event(error_body(error)) + DONE


class ChunkWriter:
    """Builds the chunks of one streamed answer.

    Args:
        head: fields that every chunk carries: id, object, created, model, ...
        is_chat: chat chunks have a `delta`, completion chunks a `text`.
        null_usage: chunks carry `usage: null`, since a usage chunk follows.
    """

    def __init__(self, head: Mapping[str, Any], *, is_chat: bool, null_usage: bool) -> None:
        self._head, self._is_chat = dict(head), is_chat
        self._usage: dict[str, Any] = {"usage": None} if null_usage else {}

    def role(self, index: int) -> bytes:
        """The first chunk of a chat choice."""
        return event(self._chunk({"index": index, "delta": {"role": "assistant", "content": ""}} | _end(None, None)))

    def content(self, index: int, text: str, *, usage: Mapping[str, Any] | None = None, **extra: object) -> bytes:
        """New text of a choice; `extra` may hold logprobs and token_ids."""
        return event(self._chunk(self._body(index, text) | _end(None, None) | extra, usage))

    def finish(
        self,
        index: int,
        text: str,
        *,
        reason: str,
        stop_reason: str | int | None = None,
        usage: Mapping[str, Any] | None = None,
        root: Mapping[str, Any] | None = None,
        **extra: object,
    ) -> bytes:
        """The last chunk of a choice, with the text that is left; `root` is merged into the chunk itself."""
        return event(self._chunk(self._body(index, text) | _end(reason, stop_reason) | extra, usage) | dict(root or {}))

    def usage(self, usage: Mapping[str, Any], root: Mapping[str, Any]) -> bytes:
        """The chunk without choices that carries usage and metrics."""
        return event(self._head | {"choices": [], "usage": usage} | dict(root))

    def _body(self, index: int, text: str) -> dict[str, Any]:
        if not self._is_chat:
            return {"index": index, "text": text}
        return {"index": index, "delta": {"content": text} if text else {}}

    def _chunk(self, choice: dict[str, Any], usage: Mapping[str, Any] | None = None) -> dict[str, Any]:
        return self._head | {"choices": [choice]} | ({"usage": usage} if usage else self._usage)


def _end(reason: str | None, stop_reason: str | int | None) -> dict[str, Any]:
    end: dict[str, Any] = {"logprobs": None, "finish_reason": reason}
    return end if stop_reason is None else end | {"stop_reason": stop_reason}
