"""Reading answers in tests."""

import json
from typing import Any

import httpx

MESSAGES = [{"role": "user", "content": "hi"}]


def events_of(response: httpx.Response) -> list[dict[str, Any]]:
    """The JSON events of a stream, which must end in [DONE]."""
    assert response.headers["content-type"].startswith("text/event-stream")
    lines = [line for line in response.text.split("\n\n") if line and not line.startswith(":")]
    assert all(line.startswith("data: ") for line in lines)
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line[6:]) for line in lines[:-1]]


def error_of(response: httpx.Response) -> dict[str, Any]:
    """The error of an answer, which must have OpenAI's form."""
    body = response.json()
    assert set(body) == {"error"}
    error: dict[str, Any] = body["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error
