import math
import tracemalloc
from contextlib import suppress
from dataclasses import replace
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cluster.messages import (
    MAX_MESSAGE_BYTES,
    MAX_TRACE_BYTES,
    Close,
    Entry,
    Message,
    Open,
    Ping,
    Refusal,
    Round,
    Row,
    Table,
)
from cluster.transport.codec import MalformedMessageError, decode, encode
from tests.cluster.transport.samples import (
    ENTRIES,
    ROW,
    SAMPLES,
    SAMPLING,
    SEQUENCE_TABLE,
    messages,
    round_of,
    table_of,
)

RAW = msgspec.msgpack.Encoder()
HUGE = tuple(
    bytes.fromhex(claim)
    for claim in ("ddffffffff", "dd7fffffff", "dcffff", "dfffffffff", "c6ffffffff", "dbffffffff", "c9ffffffff01")
)
"""Arrays, maps, binaries, texts and extensions that claim to be long."""


def _open(**sampling: Any) -> Open:
    return Open(sequence=1, epoch=0, num_prompt_tokens=1, token_ids=(1,), sampling=replace(SAMPLING, **sampling))


def _row(**fields: Any) -> Round:
    return Round(number=1, verify_s=0.1, rows=(msgspec.structs.replace(ROW, **fields),))


def _table(**fields: Any) -> Table:
    return Table(incarnation=1, number=1, sequences=(msgspec.structs.replace(SEQUENCE_TABLE, **fields),))


def _decodes_or_is_malformed(data: bytes) -> None:
    with suppress(MalformedMessageError):
        assert isinstance(decode(data), Message)


def test_there_is_a_sample_of_every_message() -> None:
    assert {type(sample) for sample in SAMPLES} == set(get_args(Message))


@pytest.mark.parametrize("message", SAMPLES, ids=lambda message: type(message).__name__)
def test_a_message_comes_back_as_it_was(message: Message) -> None:
    assert decode(encode(message)) == message


@given(messages)
def test_any_valid_message_comes_back_as_it_was(message: Message) -> None:
    assert decode(encode(message)) == message


@given(st.binary(max_size=300))
@example(b"")
@example(b"\xc1")
def test_random_bytes_are_a_message_or_malformed(data: bytes) -> None:
    _decodes_or_is_malformed(data)


@given(st.integers(0, 9), st.binary(max_size=100))
def test_random_bytes_behind_a_valid_tag_are_a_message_or_malformed(tag: int, tail: bytes) -> None:
    for length in (2, 3, 4, 5, 6):
        _decodes_or_is_malformed(bytes([0x90 | length, tag]) + tail)


@pytest.mark.parametrize("message", SAMPLES, ids=lambda message: type(message).__name__)
def test_a_message_cut_anywhere_is_malformed(message: Message) -> None:
    data = encode(message)
    for length in range(len(data)):
        with pytest.raises(MalformedMessageError):
            decode(data[:length])


@given(messages, st.data())
def test_flipped_bits_are_a_message_or_malformed(message: Message, data: st.DataObject) -> None:
    damaged = bytearray(encode(message))
    for place in data.draw(st.lists(st.integers(0, 8 * len(damaged) - 1), min_size=1, max_size=4)):
        damaged[place // 8] ^= 1 << place % 8
    _decodes_or_is_malformed(bytes(damaged))


@pytest.mark.parametrize("message", SAMPLES, ids=lambda message: type(message).__name__)
@pytest.mark.parametrize("claim", HUGE, ids=bytes.hex)
def test_a_huge_length_is_malformed_wherever_it_is_claimed_and_allocates_nothing(
    message: Message, claim: bytes
) -> None:
    data = encode(message)
    tracemalloc.start()
    try:
        for place in range(len(data) + 1):
            _decodes_or_is_malformed(data[:place] + claim + data[place + 1 :])
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_what_follows_a_message_is_malformed() -> None:
    with pytest.raises(MalformedMessageError):
        decode(encode(Ping(number=1)) * 2)


@pytest.mark.parametrize("opening", [b"\x92\x08", b"\x93\x08\x01", b"\x92\x07", b"\x92\x04\x01"], ids=bytes.hex)
@pytest.mark.parametrize("nest", [b"\x91", b"\x81\x01", b"\x92\x01"], ids=bytes.hex)
def test_deep_nesting_is_a_message_or_malformed(opening: bytes, nest: bytes) -> None:
    _decodes_or_is_malformed(opening + nest * 1_000_000 + b"\x01")


@pytest.mark.parametrize(
    "value", [None, True, 1, -1, 1.5, math.nan, "text", b"bytes", [], {}, [[]], {"a": 1}, 2**64 - 1]
)
@pytest.mark.parametrize("message", SAMPLES, ids=lambda message: type(message).__name__)
def test_a_value_of_the_wrong_type_is_malformed(message: Message, value: object) -> None:
    parts = msgspec.msgpack.decode(encode(message))
    for place in range(len(parts)):
        wrong = [*parts[:place], value, *parts[place + 1 :]]
        _decodes_or_is_malformed(RAW.encode(wrong))
        if type(value) is not type(parts[place]) and not isinstance(value, int | float):
            with pytest.raises(MalformedMessageError):
                decode(RAW.encode(wrong))


@pytest.mark.parametrize("value", [None, True, 10, 99, -1, "0", [], 1.0])
def test_an_unknown_kind_of_message_is_malformed(value: object) -> None:
    with pytest.raises(MalformedMessageError):
        decode(RAW.encode([value, 1, 2, 3]))


@pytest.mark.parametrize("token_id", [-1, -(2**31), 2**31, 2**32, 2**63, 2**64 - 1])
def test_a_token_id_outside_of_int32_is_malformed_wherever_it_stands(token_id: int) -> None:
    for message in (
        Open(sequence=1, epoch=0, num_prompt_tokens=1, token_ids=(1, token_id, 2), sampling=SAMPLING),
        _open(logit_bias=((token_id, 1.0),)),
        _open(allowed_token_ids=(token_id,)),
        _open(stop_token_ids=(1, token_id)),
        _open(bad_words=((1,), (2, token_id))),
        _row(new_token_ids=(1, token_id)),
        _row(draft_token_ids=(token_id,)),
        _table(entries=(*ENTRIES, Entry(num_accepted=0, token_ids=(1, token_id)))),
    ):
        with pytest.raises(MalformedMessageError):
            decode(encode(message))


@pytest.mark.parametrize("number", [-1, 2**31, 2**64 - 1])
@pytest.mark.parametrize("field", ["sequence", "epoch", "base_length", "num_tokens"])
def test_a_number_of_a_row_outside_of_int32_is_malformed(field: str, number: int) -> None:
    with pytest.raises(MalformedMessageError):
        decode(encode(_row(**{field: number})))


@pytest.mark.parametrize(
    "message",
    [
        Round(number=-1, verify_s=0.1, rows=()),
        Round(number=1, verify_s=-0.1, rows=()),
        Round(number=1, verify_s=math.nan, rows=()),
        Round(number=1, verify_s=math.inf, rows=()),
        _row(base_length=1),
        _row(base_length=0, new_token_ids=()),
        _table(draft_hash=-1),
        _table(draft_hash=2**32),
        _table(base_length=0),
        _table(entries=(Entry(num_accepted=-1, token_ids=(1,)),)),
        _table(entries=(*ENTRIES, Entry(num_accepted=1, token_ids=()))),
        Close(sequences=(1, -1)),
        Ping(number=-1),
        Refusal(reason="x" * 2000),
        Open(sequence=1, epoch=0, num_prompt_tokens=0, token_ids=(), sampling=SAMPLING),
        Open(sequence=1, epoch=0, num_prompt_tokens=2, token_ids=(1,), sampling=SAMPLING),
        Open(sequence=1, epoch=0, num_prompt_tokens=-1, token_ids=(1,), sampling=SAMPLING),
        msgspec.structs.replace(_open(), trace=b"x" * (MAX_TRACE_BYTES + 1)),
        *(_open(temperature=value) for value in (-1.0, math.nan, math.inf)),
        *(_open(top_p=value) for value in (-0.1, 1.1, math.nan)),
        *(_open(frequency_penalty=value) for value in (math.nan, -math.inf)),
        _open(logit_bias=((1, math.nan),)),
        _open(max_tokens=0),
        _open(seed=-1),
        _open(top_k=-1),
        _open(logprobs=-1),
    ],
    ids=str,
)
def test_a_value_that_makes_no_sense_is_malformed(message: Message) -> None:
    with pytest.raises(MalformedMessageError):
        decode(encode(message))


def test_a_message_may_be_as_long_as_the_limit_and_no_longer() -> None:
    longest = (MAX_MESSAGE_BYTES - 100) // 5
    fits = Close(sequences=(2**31 - 1,) * longest)
    assert decode(encode(fits)) == fits
    too_long = Close(sequences=(2**31 - 1,) * (longest + 100))
    with pytest.raises(MalformedMessageError, match="allowed are 8388608"):
        encode(too_long)
    with pytest.raises(MalformedMessageError, match="allowed are 8388608"):
        decode(RAW.encode(too_long))


@pytest.mark.parametrize("message", [Ping(number=2**64), Ping(number=-(2**70)), Refusal(reason="\ud800")])
def test_what_msgpack_cannot_hold_is_refused_at_the_sender(message: Message) -> None:
    with pytest.raises(MalformedMessageError):
        encode(message)


def test_a_prompt_of_a_million_tokens_fits() -> None:
    message = Open(sequence=1, epoch=0, num_prompt_tokens=1, token_ids=(151_000,) * 1_000_000, sampling=SAMPLING)
    assert decode(encode(message)) == message


def test_a_round_and_its_table_take_at_most_a_kilobyte() -> None:
    assert len(encode(round_of(10_000))) + len(encode(table_of(10_000))) <= 1024


def test_a_row_of_this_size_is_what_the_samples_hold() -> None:
    assert isinstance(ROW, Row) and len(ENTRIES) == 20 and {len(entry.token_ids) for entry in ENTRIES} == {5}
