import json
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
