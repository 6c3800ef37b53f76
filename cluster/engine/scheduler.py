"""Which rows run in the next round: continuous batching with chunked prefill over a paged KV cache.

Order of a round: a slot for the next row of every decoding sequence (preempting if it must), prefill chunks of the
running, admissions, and last the lookahead slots of drafts, so that a draft never costs another sequence its blocks.

Rank. Waiting, block allocation and preemption share one order: `priority * ageing_s + arrival`, lower first. A sequence
thus gains one priority step per `ageing_s` waited, and FIFO holds inside a priority. A rank never changes, so a
sequence is overtaken only by those that arrive within a bounded time after it, and the best-ranked running one is
never preempted: everything that is added finishes.
"""

from collections.abc import Container, Mapping
from dataclasses import replace
from types import MappingProxyType

from cluster.engine.block_pool import BlockPool
from cluster.engine.plan import Plan, ScheduledSequence, SchedulerConfig
from cluster.engine.scheduler_queue import Entry, Rank, put, rank_of, remove
from cluster.engine.sequence import Sequence, SequenceStatus
from cluster.engine.sequence_blocks import SequenceBlocks, is_held_back

__all__ = ["Plan", "ScheduledSequence", "Scheduler", "SchedulerConfig"]

_NO_TREES: Mapping[str, tuple[int, ...]] = MappingProxyType({})

# How many waiting sequences a round looks past because a sibling is computing their prefix; bounds the scan.
_MAX_HELD_BACK = 16


class Scheduler:
    """Owns the queues and the blocks of all sequences. One plan at a time: schedule, run, commit, advance each item.

    The limits of a round may change while sequences run: one that runs keeps its place until it ends.

    Args:
        config: limits of a round.
        pool: the blocks; nobody else may take from it.
        num_reserve_blocks: blocks that are withheld from newcomers, now and whenever `set_limits` says so.
    """

    def __init__(self, config: SchedulerConfig, pool: BlockPool, *, num_reserve_blocks: int = 0) -> None:
        self.config = config
        self.pool = pool
        self._num_reserve_blocks = num_reserve_blocks
        pool.withhold(num_reserve_blocks)
        self._entries: dict[str, Entry] = {}
        self._waiting: list[Entry] = []
        self._running: list[Entry] = []
        self._num_added = 0
        # A newcomer that takes the very last blocks is the first to lose them again, with its prefill.
        self._num_spare_blocks = pool.num_blocks // 100

    @property
    def num_running(self) -> int:
        """Sequences that hold blocks."""
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        """Sequences that wait for their first or next admission."""
        return len(self._waiting)

    @property
    def has_work(self) -> bool:
        """True while any sequence is unfinished."""
        return bool(self._entries)

    @property
    def capacity_tokens(self) -> int:
        """Longest sequence that is sure to fit on its own, whenever the reserve is withheld."""
        return (self.pool.num_blocks - self._num_reserve_blocks) * self.pool.block_size

    def can_ever_fit(self, num_tokens: int) -> bool:
        """True when a sequence of this length, prompt plus output, is sure to fit into the pool on its own."""
        return num_tokens <= self.capacity_tokens

    def set_limits(self, *, max_num_seqs: int, withholds_reserve: bool) -> None:
        """Admit up to so many sequences from now on, and keep the reserve from newcomers or not; preempts nobody."""
        self.config = replace(self.config, max_num_seqs=max_num_seqs)
        self.pool.withhold(self._num_reserve_blocks if withholds_reserve else 0)

    def add(self, sequence: Sequence) -> None:
        """Queue a waiting sequence.

        Args:
            sequence: its id is not in use; `can_ever_fit(min(prompt + max_tokens, max_model_len))` holds.
        """
        request = sequence.request
        num_tokens = min(sequence.num_prompt_tokens + request.sampling.max_tokens, self.config.max_model_len)
        assert sequence.status is SequenceStatus.WAITING, sequence.status
        assert sequence.request_id not in self._entries, f"{sequence.request_id} is in use"
        assert self.can_ever_fit(max(num_tokens, sequence.num_tokens)), f"{sequence.request_id} can never fit"
        # The client of a resumed one is in the middle of its text: it goes a step before newcomers.
        head_start_s = self.config.ageing_s if request.output_token_ids else 0.0
        entry = Entry(
            sequence=sequence,
            blocks=SequenceBlocks(sequence, self.pool, enable_prefix_cache=self.config.enable_prefix_cache),
            rank=Rank(request.priority * self.config.ageing_s + request.arrival_s - head_start_s, self._num_added),
        )
        self._num_added += 1
        self._entries[sequence.request_id] = entry
        put(self._waiting, entry)

    def finish(self, sequence: Sequence) -> None:
        """Drop a sequence, waiting or running, and free its blocks at once; does nothing when it is finished already.

        What its last round computed is published only if `advance` came first.
        """
        if sequence.status is SequenceStatus.FINISHED:
            return
        entry = self._entries.pop(sequence.request_id)
        assert entry.sequence is sequence
        remove(self._running if sequence.status is SequenceStatus.RUNNING else self._waiting, entry)
        entry.blocks.release()
        sequence.status = SequenceStatus.FINISHED

    def expired(self, now_s: float) -> list[Sequence]:
        """Unfinished sequences whose deadline has come; the caller finishes them."""
        sequences = (entry.sequence for entry in self._entries.values())
        return [s for s in sequences if s.request.deadline_s is not None and s.request.deadline_s <= now_s]

    def decoding(self) -> list[Sequence]:
        """Running sequences with one token left to compute, best rank first: those that a draft can serve."""
        return [entry.sequence for entry in self._running if entry.sequence.is_decoding]

    @property
    def num_prompt_rows_due(self) -> int:
        """About how many prompt tokens the next round will compute beside the decoding sequences."""
        num_rows = sum(e.sequence.num_uncomputed_tokens for e in self._running if not e.sequence.is_decoding)
        if self._waiting and len(self._running) < self.config.max_num_seqs:
            num_rows += self._waiting[0].sequence.num_uncomputed_tokens
        return min(num_rows, self.config.prefill_chunk_tokens, self.config.max_num_batched_tokens)

    def schedule(
        self,
        now_s: float,
        drafts: Mapping[str, tuple[int, ...]],
        trees: Mapping[str, tuple[int, ...]] = _NO_TREES,
        among: Container[str] | None = None,
    ) -> Plan:
        """Plan a round and take the blocks that it writes to.

        Args:
            now_s: clock time, for `Sequence.first_scheduled_s`.
            drafts: draft token ids by request id, for sequences of `decoding()`; others are ignored, none is kept.
            trees: the parents of those drafts that are trees.
            among: request ids of those that may decode in this round, None for all; prompts go on in every round.

        Returns:
            The plan; empty only when nothing is unfinished.
        """
        preempted = self._reserve_decode_rows(among)
        due = [entry for entry in self._running if entry.sequence.is_decoding]
        decodes = [entry for entry in due if among is None or entry.sequence.request_id in among]
        num_rows = self.config.max_num_batched_tokens - len(decodes)
        cut = self._cut_drafts(decodes, drafts, num_rows, are_prompts_due=self._are_prompts_due(len(due)))
        num_rows -= sum(map(len, cut))
        chunks = self._continue_prefills(num_rows, num_decodes=len(due))
        if not preempted:  # Blocks that were taken from somebody are for those that still run.
            self._admit(chunks, num_rows - sum(chunks.values()), now_s)
        scheduled = [
            ScheduledSequence.of(
                entry.sequence, 1, entry.blocks.fit_lookahead(draft), trees.get(entry.sequence.request_id, ())
            )
            for entry, draft in zip(decodes, cut, strict=True)
        ]
        num_offered = sum(len(drafts.get(entry.sequence.request_id, ())) for entry in decodes) if drafts else 0
        num_kept = sum(len(item.draft_token_ids) for item in scheduled)
        scheduled += [ScheduledSequence.of(entry.sequence, num_tokens) for entry, num_tokens in chunks.items()]
        return Plan(scheduled=tuple(scheduled), preempted=tuple(preempted), num_cut_draft_tokens=num_offered - num_kept)

    def advance(self, item: ScheduledSequence, num_computed_tokens: int) -> None:
        """Take in the result of one item, after its tokens were committed and before the sequence is finished.

        Sets `num_computed_tokens`, publishes the blocks that became full of committed tokens with KV, and gives
        lookahead blocks back. A stale item changes nothing.

        Args:
            item: from the last plan.
            num_computed_tokens: leading committed tokens whose KV is right: `start + num_tokens + accepted drafts`.
        """
        if item.is_stale:
            return
        sequence = item.sequence
        upper = min(item.start + item.num_rows, sequence.num_tokens)
        assert item.start <= num_computed_tokens <= upper, (item.start, num_computed_tokens, upper)
        sequence.num_computed_tokens = num_computed_tokens
        self._entries[sequence.request_id].blocks.commit()

    def _reserve_decode_rows(self, among: Container[str] | None) -> list[Sequence]:
        preempted: list[Sequence] = []
        for entry in tuple(self._running):
            if among is not None and entry.sequence.request_id not in among:
                continue
            # Victims of better-ranked ones wait by now, hence are not decoding.
            while entry.sequence.is_decoding and not entry.blocks.grow(entry.sequence.num_tokens):
                preempted.append(self._preempt_worst())
        return preempted

    def _preempt_worst(self) -> Sequence:
        entry = self._running.pop()
        sequence = entry.sequence
        entry.blocks.release()
        sequence.status = SequenceStatus.WAITING
        sequence.num_computed_tokens = 0
        sequence.epoch += 1
        sequence.num_preemptions += 1
        put(self._waiting, entry)
        return sequence

    def _are_prompts_due(self, num_decoding: int) -> bool:
        waits_for_rows = bool(self._waiting) and len(self._running) < self.config.max_num_seqs
        return num_decoding < len(self._running) or waits_for_rows

    def _cut_drafts(
        self, decodes: list[Entry], drafts: Mapping[str, tuple[int, ...]], num_rows: int, *, are_prompts_due: bool
    ) -> list[tuple[int, ...]]:
        """Cut each draft to the model's length and to the rows left, best rank first."""
        if not drafts:
            return [()] * len(decodes)
        if are_prompts_due:
            num_rows //= 2  # Drafts must not take all rows round after round.
        cut = []
        for index, entry in enumerate(decodes):
            # The token drawn after the last draft needs a place too.
            num_fitting = max(0, self.config.max_model_len - entry.sequence.num_tokens - 1)
            if index >= self.config.max_num_seqs:
                num_fitting = 0  # More run after `set_limits` than slots for drafts were planned for.
            draft = drafts.get(entry.sequence.request_id, ())[: min(num_rows, num_fitting)]
            num_rows -= len(draft)
            cut.append(draft)
        return cut

    def _continue_prefills(self, num_rows: int, *, num_decodes: int) -> dict[Entry, int]:
        """Rows of the next chunk of each running prefill; its blocks were taken at admission."""
        chunks: dict[Entry, int] = {}
        if num_decodes == len(self._running):
            return chunks
        for entry in self._running:
            if num_rows and entry.sequence.num_uncomputed_tokens > 1:
                chunks[entry] = self._chunk(entry, num_rows)
                num_rows -= chunks[entry]
        return chunks

    def _admit(self, chunks: dict[Entry, int], num_rows: int, now_s: float) -> None:
        """Move waiting sequences to running while rows, seats and blocks last; adds their chunks to `chunks`.

        The best-ranked one that does not fit stops the rest, or a long prompt would starve.
        """
        num_seats = self.config.max_num_seqs - len(self._running)
        if num_seats <= 0:
            return
        for entry in self._waiting[: num_seats + _MAX_HELD_BACK]:
            if num_rows == 0 or len(self._running) == self.config.max_num_seqs:
                return
            cached = entry.blocks.match_prefix()
            if is_held_back(entry.blocks, len(cached), (leader.blocks for leader in chunks)):
                self.pool.release(cached)
                continue
            if not entry.blocks.take(cached, num_spare_blocks=self._num_spare_blocks if self._running else 0):
                return
            self._start(entry, now_s)
            chunks[entry] = self._chunk(entry, num_rows)
            num_rows -= chunks[entry]

    def _start(self, entry: Entry, now_s: float) -> None:
        sequence = entry.sequence
        remove(self._waiting, entry)
        put(self._running, entry)
        sequence.status = SequenceStatus.RUNNING
        if sequence.first_scheduled_s is None:
            sequence.first_scheduled_s = now_s
            sequence.num_cached_tokens = min(sequence.num_computed_tokens, sequence.num_prompt_tokens)

    def _chunk(self, entry: Entry, num_rows: int) -> int:
        return min(entry.sequence.num_uncomputed_tokens, self.config.prefill_chunk_tokens, num_rows)

    def check_integrity(self) -> None:
        """Check queues, statuses and that the block tables account for every reference in the pool.

        Raises:
            AssertionError: the books do not balance.
        """
        self.pool.check_integrity()
        for queue, status in ((self._waiting, SequenceStatus.WAITING), (self._running, SequenceStatus.RUNNING)):
            assert all(entry.sequence.status is status for entry in queue), f"wrong status among {status}"
            assert queue == sorted(queue, key=rank_of), f"{status} is out of order"
        assert set(self._waiting + self._running) == set(self._entries.values()), "a sequence is lost"
        assert not any(entry.sequence.block_table for entry in self._waiting), "a waiting sequence holds blocks"
        self.pool.check_holders(entry.sequence.block_table for entry in self._running)
        for sequence in (entry.sequence for entry in self._running):
            assert sequence.num_computed_tokens <= len(sequence.block_table) * self.pool.block_size
