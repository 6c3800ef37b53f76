"""Forward passes of a drafter: what fits in, who takes part in the next one, how long it took, what it completed."""

import math
from collections.abc import Sequence as Seq

from cluster.clock import Clock
from cluster.engine.drafters.draft_ahead import DraftModel
from cluster.engine.drafters.fan_out import FanOut, RowLimits, Want, plan
from cluster.engine.drafters.pass_choice import Candidate, choose
from cluster.engine.drafters.run_ahead_book import Key, SequenceBook
from cluster.engine.drafters.run_ahead_state import Ended, Followed, Peer, RunAheadLimits, Task
from cluster.engine.drafters.step_cost import PassCost, StepCost
from cluster.messages import Row

_BLOCKS_PER_BRANCH = 2  # The copy of the sequence's last block, and one more if the draft passes its end.

_LONGEST_PASS_RATIO = 0.2  # Of a verify time, for passes that other verifiers wait for.


class Passes:
    """Runs the tasks of a book, pass by pass.

    Args:
        model: the draft model.
        book: whose tasks; those that end are taken out.
        clock: for times to verdict, and to time passes.
        limits: of passes.
        cost: of a pass, to start from; None knows nothing yet.

    Attributes:
        cost: of a pass, learnt from those that ran.
        num_steps: passes so far.
        forward_s: seconds spent in them.
    """

    def __init__(
        self,
        model: DraftModel,
        book: SequenceBook,
        *,
        clock: Clock,
        limits: RunAheadLimits,
        cost: PassCost | None = None,
    ) -> None:
        self._model, self._book, self._clock, self._limits = model, book, clock, limits
        self.cost = cost or StepCost()
        self.num_steps, self.forward_s = 0, 0.0
        self._last_start_s = self._last_end_s = -math.inf

    def plan(self, peer: Peer, wanting: Seq[tuple[Row, Followed]], verify_s: float) -> tuple[FanOut, ...]:
        """Fit the drafts of a round into its verify time and the verifier's share of the passes.

        Args:
            peer: the verifier; what it gets is noted there as its claim.
            wanting: rows that want drafts, and their sequences.
            verify_s: seconds until the verdict.

        Returns:
            What to draft, one entry per row.
        """
        now_s = self._clock.now_s()
        time_s = self.arrival_s() + verify_s - now_s
        others = [other for other in self._book.peers.values() if other is not peer and other.busy_until_s > now_s]
        fan_outs = plan(
            [self._want(row, followed) for row, followed in wanting],
            time_s=time_s * self._limits.time_ratio,
            cost=self.cost,
            limits=RowLimits(
                max_rows=self._limits.max_rows,
                max_fan_out=self._limits.max_fan_out,
                max_guesses=self._num_affordable(),
                other_rows=tuple(other.num_rows for other in others),
            ),
        )
        peer.num_rows = sum(fan_out.num_branches for fan_out in fan_outs)
        # The claim outlives the jobs, so that verifiers whose rounds alternate find their parts in time.
        peer.verify_s, peer.busy_until_s = verify_s, now_s + 2.0 * verify_s
        return fan_outs

    def arrival_s(self) -> float:
        """When a message came in that is handled now: if a pass just ended, perhaps at its beginning."""
        now_s = self._clock.now_s()
        last_s = self._last_end_s - self._last_start_s
        return self._last_start_s if now_s - self._last_end_s < 0.1 * last_s else now_s

    def step(self) -> list[Ended]:
        """Run one pass.

        Returns:
            Tasks that ended by it: done, or cut short because their time is up and a shorter draft is there.
        """
        started_s = self._clock.now_s()
        tasks, num_rows = self._next(started_s)
        self._model.step([task.job for task in tasks])
        now_s = self._clock.now_s()
        self.num_steps += 1
        self.forward_s += now_s - started_s
        self._last_start_s, self._last_end_s = started_s, now_s
        if num_rows:
            self.cost.observe(num_rows, now_s - started_s)
        next_end_s = now_s + self.cost.seconds(max(1, num_rows))
        ended = [self._end(key, task, now_s, next_end_s) for key, task in list(self._book.tasks.items())]
        return [item for item in ended if item is not None]

    def _num_affordable(self) -> int:
        """Branches that there are blocks for, when each sequence may need one more for itself."""
        num_spare = self._model.num_free_blocks - self._model.num_sequences
        return max(0, num_spare // _BLOCKS_PER_BRANCH)

    def _want(self, row: Row, followed: Followed) -> Want:
        backlog, num_in_flight = followed.num_missing, len(row.draft_token_ids)
        return Want(
            num_tokens=min(row.num_tokens, self._limits.num_speculative_tokens),
            num_in_flight=num_in_flight,
            acceptance=followed.acceptance.value,
            # A long backlog takes passes of its own, and must not make the other drafts of the round shorter.
            num_trunk_rows=backlog + num_in_flight if backlog <= self._limits.catch_up_tokens else 0,
        )

    def _next(self, now_s: float) -> tuple[list[Task], int]:
        """The tasks of the next pass, and its rows; 0 when prompts take part, whose rows have another cost."""
        items = list(self._book.tasks.items())
        candidates = [self._candidate(key, task, now_s) for key, task in items]
        chosen = choose(
            candidates, cost=self.cost, max_rows=self._limits.max_rows, longest_s=self._longest_pass_s(now_s)
        )
        for _, task in items:
            task.num_skipped += 1
        for index in chosen:
            items[index][1].num_skipped = 0
        has_prompts = any(candidates[index].is_catching_up for index in chosen)
        num_rows = 0 if has_prompts else sum(candidates[index].num_rows for index in chosen)
        return [items[index][1] for index in chosen], num_rows

    def _longest_pass_s(self, now_s: float) -> float:
        """A pass cannot be interrupted: while it runs, the next round of a verifier without work here would wait."""
        working = {peer_id for peer_id, _ in self._book.tasks}
        waiting = [
            peer.verify_s
            for peer_id, peer in self._book.peers.items()
            if peer_id not in working and peer.busy_until_s > now_s
        ]
        return min(waiting, default=math.inf) * _LONGEST_PASS_RATIO

    def _candidate(self, key: Key, task: Task, now_s: float) -> Candidate:
        num_rows = task.job.num_rows
        return Candidate(
            peer=key[0],
            num_rows=min(num_rows, self._limits.max_rows),
            num_steps_left=task.job.num_steps_left,
            left_s=task.verdict_s - now_s,
            is_catching_up=num_rows > self._limits.catch_up_tokens and task.job.branches is None,
            num_skipped=task.num_skipped,
        )

    def _end(self, key: Key, task: Task, now_s: float, next_end_s: float) -> Ended | None:
        is_short = not task.job.is_done and next_end_s > task.verdict_s and task.has_drafts
        if is_short:
            self._model.cancel(task.job)
        if not task.job.is_done:
            return None
        del self._book.tasks[key]
        return Ended(key=key, task=task, is_short=is_short, is_late=now_s > task.verdict_s)
