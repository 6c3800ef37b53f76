"""The drafter's mind: follows the sequences of many verifiers, and drafts for the outcomes of their rounds in flight.

Messages go in and out as values; sockets, processes and threads are the caller's. Its loop: `handle` what came in, then
`step` while `has_work`. Each step is one forward pass that all jobs of all verifiers share (continuous batching):
trunks of new rounds, branches of running ones, chunks of prompts. DESIGN section 7; after SSD (arXiv 2603.03251), which
makes its table for a whole batch in lock step, and StarSD (arXiv 2601.21622), one drafter for many verifiers.
"""

from cluster.clock import Clock
from cluster.engine.drafters.draft_ahead import DraftModel
from cluster.engine.drafters.fan_out import FanOut
from cluster.engine.drafters.run_ahead_book import Key, Losses, SequenceBook
from cluster.engine.drafters.run_ahead_checks import continues, is_valid_open, verify_time
from cluster.engine.drafters.run_ahead_passes import Passes
from cluster.engine.drafters.run_ahead_state import (
    Due,
    Ended,
    Followed,
    RunAheadLimits,
    RunAheadSnapshot,
    Task,
)
from cluster.engine.drafters.step_cost import PassCost
from cluster.messages import (
    PROTOCOL_VERSION,
    Close,
    Hello,
    Message,
    Open,
    Refusal,
    Round,
    Row,
    SequenceTable,
    Table,
    Welcome,
    draft_hash,
)

Outgoing = list[tuple[bytes, Message]]
"""Messages with the verifiers that they go to."""


class RunAhead:
    """Serves verifiers from one draft model. Not thread safe; never raises for what a verifier sends.

    Args:
        model: the draft model; nobody else opens sequences in it.
        clock: for deadlines and idle times, and to time passes.
        incarnation: random number of this process, in every answer.
        tokenizer_hash: of the target's vocabulary; verifiers with another one are refused.
        vocab_size: the target's; ids from it on are nonsense.
        limits: of sequences, drafts and passes.
        cost: of a pass, as far as it was measured.
    """

    def __init__(
        self,
        model: DraftModel,
        *,
        clock: Clock,
        incarnation: int,
        tokenizer_hash: str,
        vocab_size: int,
        limits: RunAheadLimits | None = None,
        cost: PassCost | None = None,
    ) -> None:
        self._model, self._clock, self._limits = model, clock, limits or RunAheadLimits()
        self._incarnation, self._tokenizer_hash, self._vocab_size = incarnation, tokenizer_hash, vocab_size
        self._book = SequenceBook(model, clock=clock, limits=self._limits)
        self._passes = Passes(model, self._book, clock=clock, limits=self._limits, cost=cost)
        self._refused: set[bytes] = set()

    @property
    def has_work(self) -> bool:
        """True while a step would compute something."""
        return bool(self._book.tasks)

    def handle(self, peer: bytes, message: Message) -> Outgoing:
        """Take in one message; what no verifier says is ignored.

        Args:
            peer: the connection.
            message: what it sent.

        Returns:
            Answers, all to this peer. Tables come from `step`.
        """
        if isinstance(message, Hello):
            return [(peer, self._greet(peer, message))]
        if peer in self._refused:
            return []
        losses = Losses(self._book.peer(peer).counters)
        if isinstance(message, Open):
            self._open(peer, message, losses)
        elif isinstance(message, Round):
            self._begin_round(peer, message, losses)
        elif isinstance(message, Close):
            for sequence_id in message.sequences:
                self._book.forget((peer, sequence_id))
        return [(peer, lost) for lost in losses.messages()]

    def step(self) -> Outgoing:
        """Run one forward pass, if there is work.

        Returns:
            One table for each round of which sequences got ready, and sequences that ran out of room.
        """
        if not self.has_work:
            return []
        ended = self._passes.step()
        ready: dict[tuple[bytes, int], list[SequenceTable]] = {}
        for item in ended:
            if item.task.due is not None and item.task.has_drafts:
                ready.setdefault((item.key[0], item.task.due.number), []).append(self._table(item))
        out: Outgoing = [
            (peer, Table(incarnation=self._incarnation, number=number, sequences=tuple(tables)))
            for (peer, number), tables in ready.items()
        ]
        for item in ended:
            if item.task.job.lacks_blocks:
                out += self._make_room(item)
        return out

    def drop_peer(self, peer: bytes) -> None:
        """A verifier is gone: free everything of it. Unknown ones are ignored."""
        self._refused.discard(peer)
        self._book.drop_peer(peer)

    def evict_idle(self) -> int:
        """Drop sequences without news for `idle_s`; to be called now and then. Returns how many there were."""
        num_evicted = 0
        while self._book.evict_oldest(self._limits.idle_s):
            num_evicted += 1
        return num_evicted

    def snapshot(self) -> RunAheadSnapshot:
        """Counters and gauges now."""
        used, free = self._model.num_used_blocks, self._model.num_free_blocks
        return RunAheadSnapshot(
            num_sequences=self._book.num_sequences,
            num_jobs=len(self._book.tasks),
            num_steps=self._passes.num_steps,
            forward_s=self._passes.forward_s,
            kv_cache_usage_ratio=used / (used + free),
            pass_s=self._passes.cost.seconds(1),
            counters=self._book.counters,
            peers=self._book.peer_snapshots(),
        )

    def check_integrity(self) -> None:
        """Check that sequences, jobs and KV blocks belong together.

        Raises:
            AssertionError: the books do not balance.
        """
        self._book.check_integrity()

    def _greet(self, peer: bytes, message: Hello) -> Message:
        reason = ""
        if message.version != PROTOCOL_VERSION:
            reason = f"protocol version {message.version}, this drafter speaks {PROTOCOL_VERSION}"
        elif message.tokenizer_hash != self._tokenizer_hash:
            reason = f"tokenizer {message.tokenizer_hash!r}, this drafter's is {self._tokenizer_hash!r}"
        known = self._book.peers.get(peer)
        if reason or (known is not None and known.incarnation not in (None, message.incarnation)):
            self.drop_peer(peer)  # What was known under this name is void: it is another process now, or refused.
        if reason:
            self._refused.add(peer)
            return Refusal(reason=reason)
        self._refused.discard(peer)
        state = self._book.peer(peer)
        state.name, state.incarnation = message.name, message.incarnation
        return Welcome(
            version=PROTOCOL_VERSION,
            incarnation=self._incarnation,
            num_speculative_tokens=self._limits.num_speculative_tokens,
            max_model_len=self._model.max_model_len,
        )

    def _open(self, peer: bytes, message: Open, losses: Losses) -> None:
        key = (peer, message.sequence)
        if not is_valid_open(message, self._vocab_size):
            self._book.forget(key)
            losses.add(message.sequence, "unknown")
            return
        opened = self._book.open(peer, message)
        if isinstance(opened, str):
            losses.add(message.sequence, opened)
        else:
            self._catch_up(key, opened)

    def _begin_round(self, peer: bytes, message: Round, losses: Losses) -> None:
        state = self._book.peer(peer)
        state.counters.num_rounds += 1
        wanting: dict[int, tuple[Row, Followed]] = {}
        for row in message.rows:
            wanting.pop(row.sequence, None)  # The last row of a sequence counts.
            followed = self._take_news(peer, row, losses)
            if followed is not None and row.num_tokens > 0:
                wanting[row.sequence] = row, followed
            elif followed is not None:
                self._catch_up((peer, row.sequence), followed)
        verify_s = verify_time(message.verify_s)
        verdict_s = self._passes.arrival_s() + verify_s
        fan_outs = self._passes.plan(state, list(wanting.values()), verify_s)
        for (row, followed), fan_out in zip(wanting.values(), fan_outs, strict=True):
            self._draft((peer, row.sequence), followed, row, fan_out, Due(number=message.number, verdict_s=verdict_s))

    def _take_news(self, peer: bytes, row: Row, losses: Losses) -> Followed | None:
        """Bring a sequence up to date; None when it cannot be drafted for."""
        state, key = self._book.peer(peer), (peer, row.sequence)
        followed = state.sequences.get(row.sequence)
        if followed is not None:
            state.touch(row.sequence, self._clock.now_s())
            if followed.sequence is None:
                return None
        max_in_flight = self._limits.max_in_flight_tokens
        if followed is None or not continues(row, followed, self._vocab_size, max_in_flight):
            self._book.forget(key)
            losses.add(row.sequence, "unknown")
            return None
        assert followed.sequence is not None
        self._book.end_task(key)
        followed.acceptance.observe(followed.in_flight, row.new_token_ids)
        followed.in_flight = row.draft_token_ids
        self._model.extend(followed.sequence, row.new_token_ids)
        if followed.sequence.is_too_long:
            self._model.close(followed.sequence)
            followed.sequence = None
            losses.add(row.sequence, "length")
            return None
        return followed

    def _draft(self, key: Key, followed: Followed, row: Row, fan_out: FanOut, due: Due) -> None:
        assert followed.sequence is not None
        if not fan_out.num_branches:
            self._catch_up(key, followed)
            return
        job = self._model.start(followed.sequence, row.draft_token_ids, fan_out.num_tokens, fan_out.guesses)
        if not job.is_done:
            self._book.tasks[key] = Task(job=job, due=due, draft_hash=draft_hash(row.draft_token_ids))

    def _catch_up(self, key: Key, followed: Followed) -> None:
        """Compute a long backlog while no round waits for it: the prompt, say, while the verifier computes it too."""
        if followed.sequence is not None and followed.num_missing >= self._limits.catch_up_tokens:
            job = self._model.start(followed.sequence, (), 0, (1,))
            if not job.is_done:
                self._book.tasks[key] = Task(job=job)

    def _table(self, item: Ended) -> SequenceTable:
        peer, sequence_id = item.key
        state = self._book.peers[peer]
        entries = item.task.entries
        state.counters.count_table(entries, is_short=item.is_short, is_late=item.is_late)
        return SequenceTable(
            sequence=sequence_id,
            epoch=state.sequences[sequence_id].epoch,
            base_length=len(item.task.job.sequence.token_ids),
            draft_hash=item.task.draft_hash,
            entries=entries,
        )

    def _make_room(self, item: Ended) -> Outgoing:
        """A job found no block. An idle sequence goes, or branches of others will; else the sequence cannot grow."""
        peer, sequence_id = item.key
        has_branches = any(task.job.branches is not None for task in (item.task, *self._book.tasks.values()))
        if self._book.evict_oldest(self._limits.evictable_s) or has_branches:
            return []
        losses = Losses(self._book.peers[peer].counters)
        self._book.forget(item.key)
        losses.add(sequence_id, "capacity")
        return [(peer, lost) for lost in losses.messages()]
