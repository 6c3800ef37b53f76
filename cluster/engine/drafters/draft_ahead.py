"""A small model that drafts for many sequences at once, for every outcome of the round that their verifiers run.

A job has three phases (DESIGN section 7). Trunk: rows for committed tokens without KV and for the draft in flight,
which give logits at each place where the verifier may stop. Outcomes: the likeliest next tokens at each of these
places, ranked with the noise that the target will draw with. Branches: all outcomes one token deeper in each pass.

Branches fork the KV by block tables: full blocks are the sequence's own, the partly filled one is copied. Only
committed tokens count as computed; the KV of a draft in flight is kept for those of its tokens that are committed next.
No KV comes from a prefix cache, and none is published.
"""

from collections.abc import Iterator
from collections.abc import Sequence as Seq

import torch

from cluster.engine.block_pool import BlockPool
from cluster.engine.drafters.draft_branch import Branch, fork
from cluster.engine.drafters.draft_job import DraftCapacityError, DraftJob, DraftLengthError, DraftSequence
from cluster.engine.drafters.draft_rows import Span, pack
from cluster.engine.drafters.draft_sampling import DraftSampler, Int32
from cluster.engine.model_runner import ForkingRunner
from cluster.engine.sequence_blocks import num_blocks_for
from cluster.types import SamplingParams

__all__ = ["DraftCapacityError", "DraftJob", "DraftLengthError", "DraftModel", "DraftSequence"]


class DraftModel:
    """A draft model and its KV blocks. Not thread safe.

    Args:
        runner: the model; its logits have one column per entry of `target_ids`.
        target_ids: token id of each column, strictly rising; None when column i is token i.
        vocab_size: ids that the embedding knows; others are read as 0. None: as many as there are columns.
        eos_token_ids: of the target. A draft ends behind them unless a choice ignores EOS.
        max_num_batched_tokens: most rows of one pass.
        prefill_chunk_tokens: most trunk rows of one job in a pass.
    """

    def __init__(
        self,
        runner: ForkingRunner,
        *,
        target_ids: Int32 | None = None,
        vocab_size: int | None = None,
        eos_token_ids: frozenset[int] = frozenset(),
        max_num_batched_tokens: int = 256,
        prefill_chunk_tokens: int = 128,
    ) -> None:
        assert 1 <= prefill_chunk_tokens <= max_num_batched_tokens
        self._runner = runner
        num_columns = runner.vocab_size if target_ids is None else len(target_ids)
        self._vocab_size = vocab_size or num_columns
        self._sampler = DraftSampler(num_columns, target_ids, eos_token_ids)
        self._pool = BlockPool(runner.num_kv_blocks, runner.block_size)
        self._max_rows, self._chunk_tokens = max_num_batched_tokens, prefill_chunk_tokens
        self._sequences: dict[int, DraftSequence] = {}

    @property
    def runner(self) -> ForkingRunner:
        """The model, for timing its passes and setting its threads before the first sequence."""
        return self._runner

    @property
    def max_model_len(self) -> int:
        """Longest sequence in tokens."""
        return self._runner.max_model_len

    @property
    def num_sequences(self) -> int:
        """Sequences that are open."""
        return len(self._sequences)

    @property
    def num_free_blocks(self) -> int:
        """KV blocks that nobody holds."""
        return self._pool.num_free_blocks

    @property
    def num_used_blocks(self) -> int:
        """KV blocks of sequences and branches."""
        return self._pool.num_used_blocks

    def open(self, token_ids: Seq[int], num_prompt_tokens: int, sampling: SamplingParams) -> DraftSequence:
        """Follow a sequence; its KV is computed by its first jobs.

        Args:
            token_ids: all committed tokens, at least one.
            num_prompt_tokens: how many of them are prompt.
            sampling: how tokens are drawn.

        Raises:
            DraftLengthError: longer than `max_model_len`.
            DraftCapacityError: too few free blocks, one spare block for each followed sequence included.
        """
        assert token_ids, "a sequence has at least one token"
        if len(token_ids) > self.max_model_len:
            raise DraftLengthError(f"{len(token_ids)} tokens, the draft model's limit is {self.max_model_len}")
        num_blocks = num_blocks_for(len(token_ids), self._pool.block_size)
        if num_blocks + len(self._sequences) + 1 > self._pool.num_free_blocks:
            raise DraftCapacityError(f"{num_blocks} KV blocks are needed, {self._pool.num_free_blocks} are free")
        sequence = DraftSequence(
            token_ids=list(token_ids),
            num_prompt_tokens=num_prompt_tokens,
            sampling=sampling,
            settings=self._sampler.settings(sampling, token_ids[:num_prompt_tokens]),
            block_table=self._pool.allocate(num_blocks) or [],
        )
        self._sequences[id(sequence)] = sequence
        return sequence

    def extend(self, sequence: DraftSequence, token_ids: Seq[int]) -> None:
        """Append committed tokens. Cancels the sequence's live job, which they make stale.

        Beyond `max_model_len` the sequence gives its blocks back and gets no drafts any more (`is_too_long`).
        """
        self._cancel_live(sequence)
        sequence.commit(token_ids)
        if len(sequence.token_ids) > self.max_model_len:
            sequence.is_too_long = True
            self._release(sequence.block_table)

    def close(self, sequence: DraftSequence) -> None:
        """Free everything of a sequence, its live job included. Closing it again does nothing."""
        self._cancel_live(sequence)
        self._release(sequence.block_table)
        self._sequences.pop(id(sequence), None)

    def start(self, sequence: DraftSequence, draft_token_ids: Seq[int], num_tokens: int, fan_out: Seq[int]) -> DraftJob:
        """Begin a job, in place of the sequence's live one; nothing is computed yet.

        A local draft of n tokens is the job without a draft in flight, n - 1 tokens and a fan-out of (1,).

        Args:
            sequence: an open sequence.
            draft_token_ids: the draft in flight.
            num_tokens: tokens behind each outcome's token, >= 0.
            fan_out: outcomes wanted for k = 0..len(draft_token_ids) accepted tokens; missing entries count as 0.
        """
        assert id(sequence) in self._sequences, "the sequence is not open"
        self._cancel_live(sequence)
        num_places = min(len(draft_token_ids) + 1, sequence.num_places(self.max_model_len), self._chunk_tokens)
        wanted = [max(0, count) for count in fan_out[:num_places]]
        while wanted and wanted[-1] == 0:
            wanted.pop()
        job = DraftJob(sequence, tuple(draft_token_ids), num_tokens, tuple(wanted), is_done=not wanted)
        sequence.job = None if job.is_done else job
        return job

    def step(self, jobs: Seq[DraftJob]) -> None:
        """One forward pass for all live jobs together, whatever their phase.

        When the pass is full, later jobs wait for the next call; jobs with more trunk rows than a chunk come last.
        Never raises for lack of blocks: there are fewer branches then, or the job ends (`lacks_blocks`).
        """
        live = sorted((job for job in jobs if not job.is_done), key=lambda job: job.num_rows > self._chunk_tokens)
        planned: list[tuple[DraftJob, list[Span]]] = []
        num_left = self._max_rows
        for job in live:
            spans = list(self._spans(job, num_left))
            num_left -= sum(len(span.token_ids) for span in spans)
            if spans:
                planned.append((job, spans))
        if planned:
            self._run(planned)

    def cancel(self, job: DraftJob) -> None:
        """End a job and free its branches' blocks; what it drafted so far stays in `entries`."""
        for branch in job.branches or ():
            branch.free(self._pool)
        job.is_done = True
        if job.sequence.job is job:
            job.sequence.job = None

    def close_model(self) -> None:
        """Release the model; nothing can be called afterwards."""
        self._runner.close()

    def check_integrity(self) -> None:
        """Check that every block is free, or belongs to exactly one sequence or branch.

        Raises:
            AssertionError: the books do not balance.
        """
        self._pool.check_integrity()
        held: list[int] = []
        for sequence in self._sequences.values():
            held += sequence.block_table
            for branch in (sequence.job and sequence.job.branches) or ():
                held += branch.own_blocks
            assert sequence.num_computed <= len(sequence.token_ids), "tokens count as computed that nobody committed"
        assert len(held) == len(set(held)), "a block has two holders"
        assert len(held) == self._pool.num_used_blocks, "a block is held by nobody"

    def _spans(self, job: DraftJob, num_left: int) -> Iterator[Span]:
        """Rows of a job in a pass with room for `num_left` rows; none when they do not fit."""
        if job.branches is None:
            yield from self._trunk_spans(job, num_left)
            return
        live = [branch for branch in job.branches if not branch.is_done]
        if len(live) > num_left:
            return
        for branch in live:
            output = [*job.in_flight[: branch.num_accepted], *branch.token_ids]
            yield Span(
                token_ids=branch.token_ids[-1:],
                start=branch.start + len(branch.token_ids) - 1,
                block_table=branch.block_table,
                draws=((0, job.draw_row(output)),),
            )

    def _trunk_spans(self, job: DraftJob, num_left: int) -> Iterator[Span]:
        """The next chunk of committed tokens; the last one comes with the draft in flight, for all logits at once."""
        if not self._reserve(job):
            job.lacks_blocks = True
            self.cancel(job)
            return
        token_ids, draft, table = job.sequence.token_ids, job.in_flight, job.sequence.block_table
        last = len(token_ids) - 1
        start = min(job.sequence.num_computed, last)
        if last - start + 1 + len(draft) <= min(num_left, self._chunk_tokens):
            draws = [(last - start + k, job.outcome_row(k)) for k in job.places]
            yield Span(token_ids=[*token_ids[start:], *draft], start=start, block_table=table, draws=draws)
        elif num_rows := min(last - start, num_left, self._chunk_tokens):
            yield Span(token_ids=token_ids[start : start + num_rows], start=start, block_table=table)

    def _reserve(self, job: DraftJob) -> bool:
        """Blocks for the trunk; with too few free ones the draft in flight is followed less far. False: not at all."""
        table, block_size = job.sequence.block_table, self._pool.block_size
        num_tokens = len(job.sequence.token_ids)
        room = (len(table) + self._pool.num_free_blocks) * block_size - num_tokens
        if room < 0:
            return False
        job.fan_out = job.fan_out[: room + 1]
        num_missing = num_blocks_for(num_tokens + len(job.in_flight), block_size) - len(table)
        table += self._pool.allocate(max(0, num_missing)) or []
        return True

    def _run(self, planned: Seq[tuple[DraftJob, Seq[Span]]]) -> None:
        spans = [span for _, own in planned for span in own]
        logits = self._runner.forward(pack(spans, block_size=self._pool.block_size, vocab_size=self._vocab_size))
        rows = [row for span in spans for _, row in span.draws]
        drawn = iter(self._sampler.draw(logits.to("cpu", torch.float32).numpy(), rows) if rows else ())
        copies: list[tuple[int, int]] = []
        for job, own in planned:
            candidates = [next(drawn) for span in own for _ in span.draws]
            if job.branches is None:
                copies += self._take_trunk(job, own[0], candidates)
            else:
                self._take_branches(job, candidates)
            if job.branches is not None and all(branch.is_done for branch in job.branches):
                self.cancel(job)
        if copies:
            self._runner.copy_kv_blocks(*zip(*copies, strict=True))

    def _take_trunk(self, job: DraftJob, span: Span, candidates: Seq[Seq[int]]) -> list[tuple[int, int]]:
        """Count a chunk as computed; at its end, fork the branches. Returns the blocks to copy: (from, to)."""
        sequence, end = job.sequence, span.start + len(span.token_ids)
        num_tokens = len(sequence.token_ids)
        sequence.num_computed = min(end, num_tokens)
        sequence.tail = job.in_flight if end >= num_tokens else ()
        if end < num_tokens:
            return []
        outcomes = job.rank(list(zip(job.places, candidates, strict=True)))[: self._max_rows]
        forks = [self._fork(job, num_accepted, token_id) for num_accepted, token_id in outcomes]
        job.branches = [branch for branch in forks if branch is not None]
        job.lacks_blocks = bool(outcomes) and not job.branches
        return [
            (sequence.block_table[branch.num_shared_blocks], branch.own_blocks[0])
            for branch in job.branches
            if branch.own_blocks and branch.start % self._pool.block_size
        ]

    def _fork(self, job: DraftJob, num_accepted: int, token_id: int) -> Branch | None:
        """A branch for an outcome; None when too few blocks are free.

        What is drawn with its own noise needs the blocks of the whole length even where its first token ends the text:
        else a full pool would let through just the drafts that end (`acceptance_rules`, on length).
        """
        sequence = job.sequence
        max_tokens = min(1 + job.num_tokens, sequence.num_places(self.max_model_len) - num_accepted)
        branch = Branch(num_accepted, [token_id], max_tokens, len(sequence.token_ids) + num_accepted)
        if job.own is None:
            branch.end_at(sequence.settings.stop_ids)
        if not branch.is_done and not fork(self._pool, sequence.block_table, branch):
            return None
        branch.end_at(sequence.settings.stop_ids)
        if branch.is_done:
            branch.free(self._pool)
        return branch

    def _take_branches(self, job: DraftJob, candidates: Seq[Seq[int]]) -> None:
        live = [branch for branch in job.branches or () if not branch.is_done]
        for branch, token_ids in zip(live, candidates, strict=True):
            branch.token_ids += token_ids
            if not token_ids:  # The logits were not finite, or everything was masked.
                branch.max_tokens = len(branch.token_ids)
            branch.end_at(job.sequence.settings.stop_ids)
            if branch.is_done:
                branch.free(self._pool)

    def _cancel_live(self, sequence: DraftSequence) -> None:
        if sequence.job is not None:
            self.cancel(sequence.job)

    def _release(self, block_table: list[int]) -> None:
        self._pool.release(block_table)
        block_table.clear()
