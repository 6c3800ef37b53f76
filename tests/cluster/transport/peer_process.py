"""The test's side of `peer`: start one end in a process of its own, read its reports, and end it for sure."""

import json
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from cluster.transport.address import Address
from tests.cluster.transport.helpers import LONG_S, wait_until

ROOT = Path(__file__).resolve().parents[3]


class PeerProcess:
    """A running peer; use it as a context manager.

    Args:
        arguments: of `peer`.
        prefix: command to run it under, such as `ip netns exec NAME`.
    """

    def __init__(self, *arguments: str, prefix: Sequence[str] = ()) -> None:
        command = (*prefix, sys.executable, "-m", "tests.cluster.transport.peer", *arguments)
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self.pid = self._process.pid
        self._lines: list[dict[str, Any]] = []
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()

    def kill(self) -> None:
        """kill -9, also of a paused process."""
        self._process.kill()
        self._process.wait(LONG_S)
        self._thread.join(LONG_S)

    def finish(self) -> int:
        """Let it end by itself; its exit status."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self._process.wait(LONG_S)

    def first(self) -> dict[str, Any]:
        """Its first line."""
        wait_until(lambda: bool(self._lines) or not self._thread.is_alive(), "first line of a peer")
        return self._lines[0]

    def address(self) -> Address:
        """Where it listens."""
        return Address.from_json(self.first())

    def report(self) -> dict[str, Any]:
        """Its latest report, empty before the first."""
        line = self._lines[-1] if self._lines else {}
        return line if "at_s" in line else {}

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.append(json.loads(line))
