"""`outrider serve` in a process of its own, and a client that costs as little as it can: it shares the cores."""

import asyncio
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import aiohttp

from tests.benchmarks.environment import ROOT

READY = "Outrider is ready"
_START_TIMEOUT_S = 600.0
_STOP_TIMEOUT_S = 60.0


@contextmanager
def serve(settings: Sequence[str]) -> Iterator[str]:
    """Start the server, yield its base URL once it is ready, and stop it with everything that it started.

    Args:
        settings: values for `--set`.

    Raises:
        RuntimeError: it ended before it was ready.
    """
    port = _free_port()
    command = [sys.executable, "-m", "deployments.cli", "serve", "--port", str(port)]
    command += [part for setting in settings for part in ("--set", setting)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        if not any(READY in line for line in process.stdout):
            raise RuntimeError(f"outrider serve ended with status {process.wait()}")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Streamed:
    """What one streamed answer showed.

    Attributes:
        first_text_s: from sending the request to the first text.
        num_prompt_tokens: as the server counts them.
        num_output_tokens: as the server counts them.
    """

    first_text_s: float
    num_prompt_tokens: int
    num_output_tokens: int


class StreamClient:
    """Asks for streamed chat answers: greedy, never ending early, speculation off.

    Args:
        url: of the server.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._runner = asyncio.Runner()
        self._session = self._runner.run(self._open())
        self._model = self._runner.run(self._first_model())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._runner.run(self._session.close())
        self._runner.close()

    def ask(self, texts: Sequence[str], max_tokens: int) -> list[Streamed]:
        """Ask for all at once; returns when the last answer has ended."""
        return self._runner.run(self._ask_all(texts, max_tokens))

    async def _open(self) -> aiohttp.ClientSession:
        timeout = aiohttp.ClientTimeout(total=_START_TIMEOUT_S)
        return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout)

    async def _first_model(self) -> str:
        async with self._session.get(f"{self._url}/v1/models") as response:
            response.raise_for_status()
            return str((await response.json())["data"][0]["id"])

    async def _ask_all(self, texts: Sequence[str], max_tokens: int) -> list[Streamed]:
        return await asyncio.gather(*(self._ask(text, max_tokens) for text in texts))

    async def _ask(self, text: str, max_tokens: int) -> Streamed:
        body = {
            "model": self._model,
            "messages": [{"role": "user", "content": text}],
            "max_tokens": max_tokens,
            "temperature": 0,
            "seed": 0,
            "ignore_eos": True,
            "speculation": {"mode": "off"},
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        first_text_s, last = 0.0, b""
        started_s = time.perf_counter()
        async with self._session.post(f"{self._url}/v1/chat/completions", json=body) as response:
            response.raise_for_status()
            async for line in response.content:
                if not line.startswith(b"data: {"):
                    continue
                last = line
                if not first_text_s and _has_text(line):
                    first_text_s = time.perf_counter() - started_s
        event = json.loads(last[len(b"data: ") :])
        if "usage" not in event:
            raise RuntimeError(f"the stream ended early: {event}")
        usage = event["usage"]
        return Streamed(
            first_text_s=first_text_s,
            num_prompt_tokens=usage["prompt_tokens"],
            num_output_tokens=usage["completion_tokens"],
        )


def _has_text(line: bytes) -> bool:
    choices = json.loads(line[len(b"data: ") :])["choices"]
    return bool(choices and choices[0]["delta"].get("content"))
