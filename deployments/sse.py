"""Server-sent events as OpenAI clients expect them: pure functions from values to bytes."""

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from cluster.errors import RequestError
from deployments.schema import error_body

DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": keep-alive\n\n"

PADDED_BYTES = 256
"""What a padded chunk says takes this much, or this much times a power of two."""

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
        is_padded: chunks carry `obfuscation`, so that their sizes do not tell how many tokens a round gave.
    """

    def __init__(self, head: Mapping[str, Any], *, is_chat: bool, null_usage: bool, is_padded: bool = False) -> None:
        self._head, self._is_chat = dict(head), is_chat
        self._usage: dict[str, Any] = {"usage": None} if null_usage else {}
        self._num_empty_bytes = len(self._encode_empty()) if is_padded else None

    def role(self, index: int) -> bytes:
        """The first chunk of a chat choice."""
        return self._event(
            self._chunk({"index": index, "delta": {"role": "assistant", "content": ""}} | _end(None, None))
        )

    def content(
        self,
        index: int,
        text: str,
        *,
        calls: Sequence[Mapping[str, Any]] = (),
        usage: Mapping[str, Any] | None = None,
        **extra: object,
    ) -> bytes:
        """New text of a choice, and parts of its tool calls; `extra` may hold logprobs and token_ids."""
        return self._event(self._chunk(self._body(index, text, calls) | _end(None, None) | extra, usage))

    def finish(
        self,
        index: int,
        text: str,
        *,
        reason: str,
        calls: Sequence[Mapping[str, Any]] = (),
        stop_reason: str | int | None = None,
        usage: Mapping[str, Any] | None = None,
        root: Mapping[str, Any] | None = None,
        **extra: object,
    ) -> bytes:
        """The last chunk of a choice, with the text that is left; `root` is merged into the chunk itself."""
        choice = self._body(index, text, calls) | _end(reason, stop_reason) | extra
        return self._event(self._chunk(choice, usage) | dict(root or {}))

    def usage(self, usage: Mapping[str, Any], root: Mapping[str, Any]) -> bytes:
        """The chunk without choices that carries usage and metrics."""
        return self._event(self._head | {"choices": [], "usage": usage} | dict(root))

    def _event(self, chunk: dict[str, Any]) -> bytes:
        if self._num_empty_bytes is None:
            return event(chunk)
        encoded = _encoder.encode(chunk)
        padding = _padding(len(encoded) - self._num_empty_bytes)
        return b"data: " + encoded[:-1] + b',"obfuscation":"' + padding + b'"}\n\n'

    def _encode_empty(self) -> bytes:
        return _encoder.encode(self._chunk(self._body(0, "") | _end(None, None)))

    def _body(self, index: int, text: str, calls: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
        if not self._is_chat:
            return {"index": index, "text": text}
        delta: dict[str, Any] = {"content": text} if text else {}
        return {"index": index, "delta": delta | {"tool_calls": calls} if calls else delta}

    def _chunk(self, choice: dict[str, Any], usage: Mapping[str, Any] | None = None) -> dict[str, Any]:
        return self._head | {"choices": [choice]} | ({"usage": usage} if usage else self._usage)


def _padding(num_bytes: int) -> bytes:
    """What brings a number of bytes to the next size; random, so that no compression on the way takes it out again."""
    size = PADDED_BYTES
    while size < num_bytes:
        size *= 2
    num_missing = size - num_bytes
    return secrets.token_urlsafe(num_missing)[:num_missing].encode()


def _end(reason: str | None, stop_reason: str | int | None) -> dict[str, Any]:
    end: dict[str, Any] = {"logprobs": None, "finish_reason": reason}
    return end if stop_reason is None else end | {"stop_reason": stop_reason}
