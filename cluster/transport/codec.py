"""Messages as bytes: msgpack by msgspec, and everything that is checked before the rest of the program sees a message.

Only lengths that the input really holds are allocated: msgspec compares a claimed length with the bytes that are left.
"""

import math
from collections.abc import Callable
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import Any

import msgspec

from cluster.errors import OutriderError
from cluster.messages import (
    MAX_MESSAGE_BYTES,
    MAX_TRACE_BYTES,
    Close,
    Entry,
    Hello,
    Lost,
    Message,
    Open,
    Ping,
    Pong,
    Refusal,
    Round,
    Row,
    Table,
    Welcome,
)
from cluster.types import SamplingParams

# Numbers above 64 bits do not exist in msgpack.
_MAX_INT32 = 2**31 - 1
_MAX_UINT32 = 2**32 - 1
_MAX_TEXT_LENGTH = 1024

_num_accepted = attrgetter("num_accepted")
_token_ids = attrgetter("token_ids")
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Message)


class MalformedMessageError(OutriderError):
    """Bytes that are no valid message, or a message that cannot become bytes; the text says why."""


def encode(message: Message) -> bytes:
    """The message as bytes.

    Raises:
        MalformedMessageError: longer than `MAX_MESSAGE_BYTES`, or a number or text that msgpack cannot hold.
    """
    try:
        data = _encoder.encode(message)
    except (OverflowError, UnicodeEncodeError) as error:
        raise MalformedMessageError(f"{type(message).__name__}: {error}") from error
    if len(data) > MAX_MESSAGE_BYTES:
        raise MalformedMessageError(f"{type(message).__name__} of {len(data)} bytes, allowed are {MAX_MESSAGE_BYTES}")
    return data


def decode(data: bytes) -> Message:
    """The message in `data`.

    Raises:
        MalformedMessageError: and nothing else, whatever the bytes are.
    """
    if len(data) > MAX_MESSAGE_BYTES:
        raise MalformedMessageError(f"{len(data)} bytes, allowed are {MAX_MESSAGE_BYTES}")
    try:
        message = _decoder.decode(data)
    except (msgspec.MsgspecError, RecursionError, MemoryError) as error:
        raise MalformedMessageError(str(error)) from error
    _CHECKS[type(message)](message)
    return message


def _require(is_right: bool, what: str) -> None:
    if not is_right:
        raise MalformedMessageError(what)


def _check_token_ids(token_ids: tuple[int, ...]) -> None:
    # Builtins on the whole tuple: a loop in Python would cost more than the decoding.
    if token_ids and (min(token_ids) < 0 or max(token_ids) > _MAX_INT32):
        raise MalformedMessageError("a token id is out of range")


def _check_numbers(message: Ping | Pong | Welcome, *, fields: tuple[str, ...]) -> None:
    for field in fields:
        _require(getattr(message, field) >= 0, f"{field} is negative")


def _check_text(text: str) -> None:
    _require(len(text) <= _MAX_TEXT_LENGTH, "a text is too long")


def _check_hello(message: Hello) -> None:
    _require(message.version >= 0 and message.incarnation >= 0, "a number is negative")
    for text in (message.model_hash, message.tokenizer_hash, message.name):
        _check_text(text)


def _check_refusal(message: Refusal) -> None:
    _check_text(message.reason)


def _check_open(message: Open) -> None:
    _check_place(message.sequence, message.epoch, len(message.token_ids))
    _require(0 <= message.num_prompt_tokens <= len(message.token_ids), "num_prompt_tokens is out of range")
    _check_token_ids(message.token_ids)
    _require(len(message.trace) <= MAX_TRACE_BYTES, "the trace context is too long")
    _check_sampling(message.sampling)


def _check_sampling(sampling: SamplingParams) -> None:
    _require(sampling.seed >= 0, "seed is negative")
    _require(1 <= sampling.max_tokens <= _MAX_INT32, "max_tokens is out of range")
    for count in (sampling.top_k, sampling.min_tokens, sampling.logprobs or 0, sampling.prompt_logprobs or 0):
        _require(0 <= count <= _MAX_INT32, "a count of the sampling settings is out of range")
    for ratio in (sampling.top_p, sampling.min_p):
        _require(0.0 <= ratio <= 1.0, "a ratio of the sampling settings is out of range")
    biases = [bias for _, bias in sampling.logit_bias]
    for number in (sampling.temperature, sampling.repetition_penalty, sampling.presence_penalty, *biases):
        _require(math.isfinite(number), "a sampling setting is not finite")
    _require(math.isfinite(sampling.frequency_penalty) and sampling.temperature >= 0.0, "a sampling setting is wrong")
    _check_token_ids(tuple(token_id for token_id, _ in sampling.logit_bias))
    for token_ids in (sampling.allowed_token_ids, sampling.stop_token_ids, *sampling.bad_words):
        _check_token_ids(token_ids)


def _check_place(sequence: int, epoch: int, base_length: int) -> None:
    if not (0 <= sequence <= _MAX_INT32 and 0 <= epoch <= _MAX_INT32 and 1 <= base_length <= _MAX_INT32):
        raise MalformedMessageError("sequence, epoch or length is out of range")


def _check_round(message: Round) -> None:
    _require(message.number >= 0, "number is negative")
    _require(0.0 <= message.verify_s < math.inf, "verify_s is out of range")
    for row in message.rows:
        _check_row(row)


def _check_row(row: Row) -> None:
    _check_place(row.sequence, row.epoch, row.base_length)
    _require(len(row.new_token_ids) <= row.base_length, "base_length does not count the new tokens")
    _require(0 <= row.num_tokens <= _MAX_INT32, "num_tokens is out of range")
    _check_token_ids(row.new_token_ids)
    _check_token_ids(row.draft_token_ids)


def _check_table(message: Table) -> None:
    _require(message.incarnation >= 0 and message.number >= 0, "a number is negative")
    for table in message.sequences:
        _check_place(table.sequence, table.epoch, table.base_length)
        _require(0 <= table.draft_hash <= _MAX_UINT32, "draft_hash is out of range")
        if table.entries:
            _check_entries(table.entries)


def _check_entries(entries: tuple[Entry, ...]) -> None:
    # The message of every round: builtins over all entries at once halve the time of a loop.
    counts = tuple(map(_num_accepted, entries))
    _require(min(counts) >= 0 and max(counts) <= _MAX_INT32, "num_accepted is out of range")
    drafts = tuple(map(_token_ids, entries))
    _require(all(drafts), "an entry has no token")
    _check_token_ids(tuple(chain.from_iterable(drafts)))


def _check_lost(message: Lost) -> None:
    _check_sequences(message)
    _check_text(message.reason)


def _check_sequences(message: Lost | Close) -> None:
    for sequence in message.sequences:
        _require(0 <= sequence <= _MAX_INT32, "a sequence is out of range")


_CHECKS: dict[type[Message], Callable[[Any], None]] = {
    Hello: _check_hello,
    Welcome: partial(_check_numbers, fields=("version", "incarnation", "num_speculative_tokens", "max_model_len")),
    Refusal: _check_refusal,
    Open: _check_open,
    Round: _check_round,
    Table: _check_table,
    Lost: _check_lost,
    Close: _check_sequences,
    Ping: partial(_check_numbers, fields=("number",)),
    Pong: partial(_check_numbers, fields=("number",)),
}
