"""Dual streams: while one half of the batch is verified, local drafters draft for the other half.

A round runs one half. Between the start and the end of its forward pass the draft thread lets a drafter's model draft
for the sequences of the other half; the engine joins it before anything is committed. So no call of a drafter ever
overlaps another one, and nothing that a drafter reads changes under it. All else of drafting, grammars above all, is
done in the engine's thread: a call that has not returned in time shares nothing with the rounds that follow but what it
reads. What was drafted waits for its half's turn and is dropped where its sequence has ended or changed by then.

It costs a second pass over the weights for the second half, and a core: `OverlapCheck` measures whether it pays. With
drafters that cost no passes here (prompt lookup, grammars, tables of a drafter actor) there is nothing to hide.
"""

import os
import threading
from collections.abc import Collection, Iterator, Mapping
from collections.abc import Sequence as Seq
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from cluster.clock import Clock
from cluster.config import Overlap
from cluster.engine.cpu_share import Pinning, limit_threads
from cluster.engine.draft_thread import DRAFT_THREADS, CpuLane, CudaLane, DraftThread
from cluster.engine.drafters.collect import Drafting, PendingDrafts
from cluster.engine.halves import Halves, HeldDrafts
from cluster.engine.model_runner import ModelRunner
from cluster.engine.native.runner import NativeRunner, worker_pool
from cluster.engine.overlap_check import OverlapCheck
from cluster.engine.plan import ScheduledSequence
from cluster.engine.scheduler import Scheduler
from cluster.engine.sequence import Sequence
from cluster.types import StepStats

STALL_S = 2.0
"""A drafter that takes longer beyond the pass is left behind: rounds go on without drafts until it returns."""

_LONG_GAP_S = 0.1
"""So long between two rounds, and they do not follow each other."""


@dataclass(slots=True)
class _Beside:
    """A job of the draft thread, and when it ran."""

    sequences: Seq[Sequence]
    pending: PendingDrafts
    began_s: float = 0.0
    ended_s: float = 0.0


class DualStreams:
    """Decides for each round whether drafting runs beside the pass, and runs it there.

    Calls in a round, all from the engine's thread: `begin_round`, `beside` around the forward pass, `end_round`.

    Args:
        mode: what the user asks for.
        runner: the target.
        clock: times rounds and drafts.
        live: ids of the engine's unfinished choices, as they are at any time.
        stall_s: how long a round waits for a drafter beyond its pass.

    Attributes:
        half: request ids that decode in this round; None for all, without anything beside the pass.
        wait_s: how long the round waited for drafts.
        hidden_s: time in which this round drafted and verified at once.
    """

    def __init__(
        self,
        mode: Overlap,
        *,
        runner: ModelRunner,
        clock: Clock,
        live: Collection[str],
        stall_s: float = STALL_S,
    ) -> None:
        self._mode, self._runner, self._clock, self._live, self._stall_s = mode, runner, clock, live, stall_s
        self._check = OverlapCheck()
        self._halves, self._held = Halves(), HeldDrafts()
        self._thread: DraftThread | None = None
        self._pinning = Pinning()
        self._is_on = self._is_judged = False
        # A drafter that has not returned in time, and what it was asked through.
        self._stalled: Drafting | None = None
        self._ended_s = self._gap_s = 0.0
        self.half: frozenset[str] | None = None
        self.wait_s = self.hidden_s = 0.0

    @property
    def is_usual(self) -> bool:
        """False in rounds of a look, whose times say little of other rounds."""
        return not self._check.is_looking

    def begin_round(
        self, drafting: Drafting, decoding: Seq[Sequence], num_prompt_rows: int
    ) -> Mapping[str, tuple[int, ...]]:
        """Settle who decodes in this round, and the drafts to verify in it.

        Args:
            drafting: source of drafts.
            decoding: sequences that could decode, best rank first.
            num_prompt_rows: as for `Drafting.propose`.

        Returns:
            Draft token ids by request id.
        """
        self.wait_s = self.hidden_s = 0.0
        self._gap_s = self._clock.now_s() - self._ended_s
        self._meet_again()
        self._turn(is_on=self._wants(drafting, len(decoding)))
        if self._is_on:  # Nobody waits: who has no draft yet decodes plainly, once.
            self.half = self._halves.take(decoding)
            return self._held.take([s for s in decoding if s.request_id in self.half])
        self.half = None
        if not self._held:
            drafts = drafting.propose(decoding, num_prompt_rows)
        else:  # The first round after a change: some were drafted for already.
            known = self._held.take(decoding)
            self._held.clear()
            others = [s for s in decoding if s.request_id not in known]
            drafts = {**known, **drafting.propose(others, num_prompt_rows)}
        self.wait_s = drafting.wait_s
        return drafts

    @contextmanager
    def beside(self, drafting: Drafting, scheduler: Scheduler, items: Seq[ScheduledSequence]) -> Iterator[None]:
        """Draft for the half that waits while the body runs; the forward pass of `items`, and nothing else."""
        job = self._start(drafting, scheduler, items) if self.half is not None else None
        if job is None:
            yield
            return
        began_s = self._clock.now_s()
        try:
            yield
        finally:
            self._join(drafting, job, (began_s, self._clock.now_s()))

    def end_round(self, stats: StepStats) -> None:
        """Learn from a round whether drafting beside the pass pays."""
        self._ended_s = self._clock.now_s()
        if not self._is_judged:
            return
        self._is_judged = False
        self._check.observe(
            num_tokens=stats.num_output_tokens,
            seconds=stats.duration_s + self._gap_s,
            is_clean=stats.num_prompt_tokens == 0 and self._gap_s < _LONG_GAP_S,
        )

    def forget(self, request_id: str) -> None:
        """Drop a finished sequence; unknown ids are ignored."""
        self._halves.forget(request_id)
        self._held.forget(request_id)

    def clear(self) -> None:
        """Drop what was drafted: another source of drafts comes, between two rounds."""
        self._held.clear()
        self._halves.clear()
        self._turn(is_on=False)

    def close(self) -> None:
        """End the draft thread; a drafter that does not return for long is left behind as it is."""
        self._turn(is_on=False)
        if self._thread is not None and self._thread.close(self._stall_s):
            self._meet_again()
        self._thread = None

    def _wants(self, drafting: Drafting, num_decoding: int) -> bool:
        if self._mode == "off" or num_decoding < 2 or not drafting.computes or self._stalled is not None:
            return False
        if self._mode == "on":
            return True
        self._is_judged = self._has_room
        return self._is_judged and self._check.choose(num_decoding)

    @property
    def _has_room(self) -> bool:
        """True where the drafter can have something for itself: a core of the target's, or a stream."""
        if isinstance(self._runner, NativeRunner):
            return self._runner.num_threads > DRAFT_THREADS
        return torch.cuda.is_available()

    def _turn(self, *, is_on: bool) -> None:
        """Change the way of rounds, and who uses which cores."""
        if is_on == self._is_on:
            return
        self._is_on = is_on
        if not is_on:
            self._pinning.release()
            limit_threads(None)
            return
        if self._thread is None:
            self._thread = DraftThread(CudaLane(torch.cuda) if self._is_on_gpu else CpuLane())
        if isinstance(self._runner, NativeRunner):
            num_threads = self._runner.num_threads
            limit_threads(max(1, num_threads - DRAFT_THREADS))
            self._pin(self._thread, num_threads)

    @property
    def _is_on_gpu(self) -> bool:
        return torch.cuda.is_available() and not isinstance(self._runner, NativeRunner)

    def _pin(self, thread: DraftThread, num_threads: int) -> None:
        """Give the draft thread cores of its own, if all cores are the target's: others would be pinned to the same."""
        cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
        if len(cores) != num_threads or num_threads <= DRAFT_THREADS:
            return
        target_ids = (threading.get_native_id(), *worker_pool().thread_ids)
        self._pinning.pin(target_ids, cores[:-DRAFT_THREADS])
        self._pinning.pin((thread.thread_id,), cores[-DRAFT_THREADS:])

    def _start(self, drafting: Drafting, scheduler: Scheduler, items: Seq[ScheduledSequence]) -> _Beside | None:
        """Let the draft thread work for those that the pass does not run; None where nobody needs a draft."""
        running = {item.sequence.request_id for item in items}
        sequences = [s for s in scheduler.decoding() if s.request_id not in running and not self._held.has(s)]
        if not sequences:
            return None
        clock, asked_s = self._clock, self._clock.now_s()
        pending = drafting.begin(sequences, scheduler.num_prompt_rows_due)
        if pending is None or pending.call is None:  # No model has anything to compute.
            self._held.put(sequences, {} if pending is None else drafting.finish(pending))
            self.wait_s = clock.now_s() - asked_s
            return None
        job, call = _Beside(sequences, pending), pending.call
        self.wait_s = clock.now_s() - asked_s

        def draft() -> None:
            job.began_s = clock.now_s()
            call.run()
            job.ended_s = clock.now_s()

        assert self._thread is not None, "the way is on"
        self._thread.start(draft)
        return job

    def _join(self, drafting: Drafting, job: _Beside, forward: tuple[float, float]) -> None:
        """Wait for the draft thread, and keep what it drafted."""
        began_s, ended_s = forward
        if self._await(drafting, self._stall_s):
            call = job.pending.call
            if call is not None and call.offered is None:  # The thread failed around the call.
                call.offered = {}
            self._held.put(job.sequences, drafting.finish(job.pending))
            self.wait_s += self._clock.now_s() - ended_s
        else:
            self.wait_s += self._clock.now_s() - ended_s
            self._stalled = drafting
            drafting.suspend()
            return
        self.hidden_s = max(0.0, min(ended_s, job.ended_s) - max(began_s, job.began_s))

    def _await(self, drafting: Drafting, timeout_s: float) -> bool:
        """Join the draft thread; an error of it is one of the drafter, never of the round."""
        assert self._thread is not None, "the way is on"
        try:
            return self._thread.join(timeout_s)
        except Exception as error:  # noqa: BLE001 -- whatever it is, decoding goes on without the drafts
            drafting.count_failure(error)
            return True

    def _meet_again(self) -> None:
        """Take a drafter back that had not returned in time. It starts anew: it may have read while rounds went on."""
        if self._stalled is not None and (self._thread is None or self._thread.is_idle):
            if self._thread is not None:
                self._await(self._stalled, 0.0)
            self._stalled.resume(self._live)
            self._stalled = None
