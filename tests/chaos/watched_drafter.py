"""A drafter in a process of its own that writes down what it holds, for tests that count from outside.

`watched_drafter` starts one. Each line of its file is a `Sight` as JSON; the last one is never older than a second.
"""

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from cluster.config import DraftConfig, EngineConfig
from cluster.engine.drafters.run_ahead import RunAhead
from cluster.engine.drafters.run_ahead_state import Counters
from cluster.engine.model_input import ModelInput
from cluster.engine.model_runner import ForkingRunner
from cluster.messages import Close, Message
from deployments.drafter_core import Outgoing
from deployments.drafter_process import DrafterProcess, drafter_process, main
from deployments.pairing import Candidate, candidates_of

FILE_VARIABLE, PACE_VARIABLE = "OUTRIDER_TEST_SIGHTS", "OUTRIDER_TEST_PACE"
_INTERVAL_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """A drafter at one moment.

    Attributes:
        at_s: the machine's monotonic clock.
        num_sequences: followed.
        kv_cache_usage_ratio: 0 when no KV block is in use.
        by_verifier: sequences of each verifier that is here, by its name.
        counters: since it started.
    """

    at_s: float
    num_sequences: int
    kv_cache_usage_ratio: float
    by_verifier: Mapping[str, int]
    counters: Counters

    @property
    def is_empty(self) -> bool:
        """Nothing is held for anybody."""
        return not self.num_sequences and not self.kv_cache_usage_ratio


@dataclass(frozen=True, slots=True)
class Pace:
    """What a pass of the draft model takes longer: it sleeps, which costs no core.

    Attributes:
        fixed_s: seconds, whatever its rows.
        row_s: seconds for each row.
    """

    fixed_s: float = 0.0
    row_s: float = 0.0


class PacedRunner:
    """A draft model whose capacity does not depend on who else uses the core."""

    def __init__(self, runner: ForkingRunner, pace: Pace) -> None:
        self.vocab_size, self.num_kv_blocks, self.block_size = (
            runner.vocab_size,
            runner.num_kv_blocks,
            runner.block_size,
        )
        self.max_model_len, self.dtype, self.numerics = runner.max_model_len, runner.dtype, runner.numerics
        self.close, self.copy_kv_blocks = runner.close, runner.copy_kv_blocks
        self._runner, self._pace = runner, pace

    def forward(self, batch: ModelInput) -> torch.Tensor:
        logits_NV = self._runner.forward(batch)
        time.sleep(self._pace.fixed_s + self._pace.row_s * len(batch.token_ids))
        return logits_NV


class WatchedRunAhead:
    """`RunAhead` that writes down what it holds; at once when a verifier or a sequence is gone, else now and then.

    Args:
        ahead: the drafter's mind.
        path: file to append to.
    """

    def __init__(self, ahead: RunAhead, path: Path) -> None:
        self._ahead, self._path, self._next_s = ahead, path, 0.0

    @property
    def has_work(self) -> bool:
        return self._ahead.has_work

    def handle(self, peer: bytes, message: Message) -> Outgoing:
        out = self._ahead.handle(peer, message)
        self._note(is_due=isinstance(message, Close))
        return out

    def step(self) -> Outgoing:
        return self._ahead.step()

    def drop_peer(self, peer: bytes) -> None:
        self._ahead.drop_peer(peer)
        self._ahead.check_integrity()  # All that is held belongs to those who are left.
        self._note(is_due=True)

    def evict_idle(self) -> int:
        num_evicted = self._ahead.evict_idle()
        self._note(is_due=True)
        return num_evicted

    def check_integrity(self) -> None:
        """Raise unless sequences, jobs and KV blocks belong together."""
        self._ahead.check_integrity()

    def _note(self, *, is_due: bool = False) -> None:
        now_s = time.monotonic()
        if not is_due and now_s < self._next_s:
            return
        self._next_s = now_s + _INTERVAL_S
        snapshot = self._ahead.snapshot()
        sight = Sight(
            at_s=now_s,
            num_sequences=snapshot.num_sequences,
            kv_cache_usage_ratio=snapshot.kv_cache_usage_ratio,
            by_verifier={peer.name: peer.num_sequences for peer in snapshot.peers},
            counters=snapshot.counters,
        )
        with self._path.open("a") as file:
            file.write(json.dumps(asdict(sight)) + "\n")


@dataclass(frozen=True, slots=True)
class WatchedDrafter:
    """A drafter that was started.

    Attributes:
        running: the process.
        path: what it writes.
    """

    running: DrafterProcess
    path: Path

    @property
    def candidate(self) -> Candidate:
        """How verifiers know it."""
        (candidate,) = candidates_of([self.running.record])
        return candidate

    def sights(self) -> list[Sight]:
        """What was written so far."""
        lines = self.path.read_text().splitlines(keepends=True) if self.path.exists() else []
        data = [json.loads(line) for line in lines if line.endswith("\n")]
        return [Sight(**{**each, "counters": Counters(**each["counters"])}) for each in data]

    def wait_for(self, condition: Callable[[Sight], bool], *, timeout_s: float = 20.0) -> Sight:
        """The first sight from now on that is so; fails when none comes in time."""
        since_s = time.monotonic()
        end_s = since_s + timeout_s
        while True:
            found = [sight for sight in self.sights() if sight.at_s >= since_s]
            if match := next(filter(condition, found), None):
                return match
            assert time.monotonic() < end_s, f"not in {timeout_s:g} s; the last sight was {found[-1:]}"
            time.sleep(0.02)

    def stop(self) -> int:
        """End it; returns its exit status, which is 0 when its books were balanced."""
        self.running.stop()
        return self.running.process.wait()


@contextmanager
def watched_drafter(
    engine: EngineConfig, draft: DraftConfig, folder: Path, *, pace: Pace | None = None
) -> Iterator[WatchedDrafter]:
    """A drafter that is gone at the end of the block, and whose books are balanced then.

    Args:
        engine: names the target.
        draft: the draft model.
        folder: for its file.
        pace: what its passes take longer.
    """
    path = folder / "sights.jsonl"
    os.environ[FILE_VARIABLE], os.environ[PACE_VARIABLE] = str(path), json.dumps(asdict(pace or Pace()))
    with drafter_process(engine, draft, module=__name__) as running:
        watched = WatchedDrafter(running, path)
        yield watched
        assert watched.stop() == 0


def wrap(ahead: RunAhead) -> WatchedRunAhead:
    """Watch and pace a drafter's mind, as the environment says."""
    model = ahead._model
    model._runner = PacedRunner(model._runner, Pace(**json.loads(os.environ[PACE_VARIABLE])))
    return WatchedRunAhead(ahead, Path(os.environ[FILE_VARIABLE]))


if __name__ == "__main__":
    ended = main(wrap)
    assert isinstance(ended, WatchedRunAhead)
    ended.check_integrity()
