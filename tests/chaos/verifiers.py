"""Verifiers, in processes of their own or in this one; see `verifier_process`."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cluster.config import EngineConfig
from deployments.discovery import DrafterRecord
from tests.chaos.verifier_process import Job, Report, Verifier

_ROOT = Path(__file__).parents[2]
_PATIENCE_S = 120.0


@dataclass(frozen=True, slots=True)
class VerifierProcess:
    """A verifier that was started.

    Attributes:
        name: as drafters know it.
        process: the running one.
    """

    name: str
    process: "subprocess.Popen[str]"

    def begin(self, jobs: Sequence[Job], *, batch: int = 64) -> None:
        """Let it serve these jobs, at most so many at a time; `report` tells what happened."""
        assert self.process.stdin is not None
        work = {"jobs": [asdict(job) for job in jobs], "batch": batch}
        self.process.stdin.write(json.dumps(work) + "\n")
        self.process.stdin.flush()

    def report(self) -> Report:
        """What became of the work that was begun first; waits for it."""
        return Report(**json.loads(self._line()))

    def serve(self, jobs: Sequence[Job], *, batch: int = 64) -> Report:
        """Begin and report."""
        self.begin(jobs, batch=batch)
        return self.report()

    def kill(self) -> None:
        """Kill -9."""
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def wait_until_ready(self) -> None:
        """Its model is loaded, and a drafter has welcomed it if it knows any."""
        assert self._line() == "ready\n"

    def _line(self) -> str:
        """The next line of its output; one that hangs is killed, which ends the wait."""
        assert self.process.stdout is not None
        watchdog = threading.Timer(_PATIENCE_S, self.process.kill)
        watchdog.start()
        line = self.process.stdout.readline()
        watchdog.cancel()
        assert line, f"{self.name} ended without an answer"
        return line


def settings(
    engine: EngineConfig,
    drafters: Sequence[DrafterRecord],
    *,
    name: str = "v",
    forward_s: float = 0.0,
    draft_wait_s: float = 0.0,
    step_ratios: Sequence[tuple[int, float]] = (),
) -> dict[str, Any]:
    """What a `Verifier` is made of.

    Args:
        engine: its engine; drafts come from the drafters alone.
        drafters: it may use; without any there is no speculation.
        name: of the verifier.
        forward_s: what each pass of its target takes longer.
        draft_wait_s: how long a round may wait for tables.
        step_ratios: as in `PacedRunner`: time of a pass by its rows.
    """
    return {
        "engine": asdict(engine) | {"drafter": "off"},
        "records": [record.to_json() for record in drafters],
        "name": name,
        "forward_s": forward_s,
        "draft_wait_s": draft_wait_s,
        "step_ratios": list(step_ratios),
    }


@contextmanager
def verifier_here(engine: EngineConfig, drafters: Sequence[DrafterRecord], **others: Any) -> Iterator[Verifier]:
    """A verifier in this process, connected; see `settings` for the arguments."""
    verifier = Verifier(settings(engine, drafters, **others))
    try:
        verifier.connect()
        yield verifier
    finally:
        verifier.close()


def start(engine: EngineConfig, drafters: Sequence[DrafterRecord], **others: Any) -> VerifierProcess:
    """Start a verifier in a process of its own, to be used within `stopping`; see `settings` for the arguments."""
    settled = settings(engine, drafters, **others)
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.chaos.verifier_process"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=_ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        start_new_session=True,
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps(settled) + "\n")
    process.stdin.flush()
    return VerifierProcess(settled["name"], process)


@contextmanager
def stopping(*verifiers: VerifierProcess) -> Iterator[tuple[VerifierProcess, ...]]:
    """Verifiers that are ready at the start of the block and gone at its end."""
    try:
        for verifier in verifiers:
            verifier.wait_until_ready()
        yield verifiers
    finally:
        for verifier in verifiers:
            verifier.process.kill()
            verifier.process.wait()
            for stream in (verifier.process.stdin, verifier.process.stdout):
                if stream is not None:
                    stream.close()
