import json
import zlib
from typing import Any

from cluster.errors import UnavailableError
from deployments import sse

HEAD = {"id": "x", "object": "chat.completion.chunk"}


def _json(event: bytes) -> Any:
    assert event.startswith(b"data: ")
    assert event.endswith(b"\n\n")
    assert event.count(b"\n") == 2
    return json.loads(event[6:])


def test_chat_chunks_have_the_forms_that_clients_expect() -> None:
    writer = sse.ChunkWriter(HEAD, is_chat=True, null_usage=False)
    assert _json(writer.role(1)) == HEAD | {
        "choices": [
            {"index": 1, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
        ]
    }
    content = _json(writer.content(0, "a\nb"))["choices"][0]
    assert content == {"index": 0, "delta": {"content": "a\nb"}, "logprobs": None, "finish_reason": None}
    finish = _json(writer.finish(0, "", reason="stop", stop_reason="END", root={"metrics": {"a": 1}}))
    assert finish["choices"][0]["delta"] == {}
    assert finish["choices"][0]["finish_reason"] == "stop"
    assert finish["choices"][0]["stop_reason"] == "END"
    assert finish["metrics"] == {"a": 1}


def test_completion_chunks_have_text() -> None:
    writer = sse.ChunkWriter(HEAD, is_chat=False, null_usage=False)
    assert _json(writer.content(0, "a"))["choices"][0]["text"] == "a"
    assert _json(writer.finish(0, "z", reason="length"))["choices"][0]["text"] == "z"


def test_chunks_carry_null_usage_only_when_a_usage_chunk_follows() -> None:
    assert "usage" not in _json(sse.ChunkWriter(HEAD, is_chat=True, null_usage=False).content(0, "a"))
    writer = sse.ChunkWriter(HEAD, is_chat=True, null_usage=True)
    assert _json(writer.content(0, "a"))["usage"] is None
    assert _json(writer.usage({"total_tokens": 3}, {"metrics": {}})) == HEAD | {
        "choices": [],
        "usage": {"total_tokens": 3},
        "metrics": {},
    }


def test_text_cannot_break_out_of_its_event() -> None:
    event = sse.ChunkWriter(HEAD, is_chat=True, null_usage=False).content(0, "a\n\ndata: [DONE]\n\n\u2028\r")
    assert event.count(b"\n") == 2
    assert b"\r" not in event


def test_an_error_event_is_followed_by_done() -> None:
    first, rest = sse.error_events(UnavailableError("gone", code="c")).split(b"\n\n", 1)
    error = {"message": "gone", "type": "service_unavailable_error", "param": None, "code": "c"}
    assert json.loads(first[6:]) == {"error": error}
    assert rest == sse.DONE


def _sizes(texts: list[str]) -> set[int]:
    writer = sse.ChunkWriter(HEAD, is_chat=True, null_usage=False, is_padded=True)
    return {len(writer.content(0, text)) for text in texts}


def test_padded_chunks_have_one_size_whatever_a_round_gave() -> None:
    assert (
        len(
            _sizes(
                ["", "a", " seven words that a single round gave at once", "\u00e9" * 60, "\U0001f40e" * 30, '"' * 100]
            )
        )
        == 1
    )


def test_sizes_of_longer_padded_chunks_double() -> None:
    base = _sizes([""]).pop()
    longer = sorted(_sizes(["a" * length for length in range(0, 2000, 7)]))
    assert [size - base for size in longer] == [0, 256, 768, 1792]


def _four_chunks(writer: sse.ChunkWriter) -> tuple[bytes, ...]:
    return (
        writer.role(0),
        writer.content(0, "a\nb", token_ids=[1, 2]),
        writer.finish(0, "", reason="stop", root={"metrics": {"accepted": 12}}),
        writer.usage({"total_tokens": 3}, {"metrics": {}}),
    )


def test_every_chunk_is_padded_and_stays_what_it_was() -> None:
    plain = sse.ChunkWriter(HEAD, is_chat=True, null_usage=False)
    padded = sse.ChunkWriter(HEAD, is_chat=True, null_usage=False, is_padded=True)
    for was, said in zip(_four_chunks(plain), map(_json, _four_chunks(padded)), strict=True):
        assert len(said.pop("obfuscation")) > 0
        assert said == _json(was)


def test_the_last_chunk_of_a_choice_has_the_size_of_the_others() -> None:
    writer = sse.ChunkWriter(HEAD, is_chat=True, null_usage=False, is_padded=True)
    assert len(writer.finish(0, " end", reason="length")) == len(writer.content(0, "a"))


def test_padding_is_never_the_same_twice_and_does_not_compress_away() -> None:
    writer = sse.ChunkWriter(HEAD, is_chat=True, null_usage=False, is_padded=True)
    first, second = (_json(writer.content(0, "a"))["obfuscation"] for _ in range(2))
    assert first != second
    assert len(zlib.compress(first.encode())) > len(first) / 2
