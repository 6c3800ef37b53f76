"""A tiny engine around the scheduler: a deterministic target, and a KV store that remembers what each slot holds."""

from collections.abc import Callable, Mapping

from cluster.engine.block_pool import BlockPool, extend_block_hashes
from cluster.engine.scheduler import Plan, ScheduledSequence, Scheduler, SchedulerConfig
from cluster.engine.sequence import Sequence, SequenceStatus
from cluster.types import Request, SamplingParams

VOCAB_SIZE = 5
WRONG_TOKEN = 99

Content = tuple[str, tuple[int, ...]]


def make_scheduler(
    num_blocks: int = 64,
    block_size: int = 4,
    *,
    max_num_seqs: int = 8,
    max_num_batched_tokens: int = 64,
    prefill_chunk_tokens: int = 16,
    max_model_len: int = 128,
    enable_prefix_cache: bool = True,
    num_reserve_blocks: int = 0,
) -> Scheduler:
    config = SchedulerConfig(
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        prefill_chunk_tokens=prefill_chunk_tokens,
        max_model_len=max_model_len,
        enable_prefix_cache=enable_prefix_cache,
    )
    return Scheduler(config, BlockPool(num_blocks, block_size), num_reserve_blocks=num_reserve_blocks)


def make_sequence(
    request_id: str,
    prompt: tuple[int, ...] | range,
    *,
    max_tokens: int = 8,
    priority: int = 0,
    arrival_s: float = 0.0,
    salt: str = "",
    deadline_s: float | None = None,
    prompt_logprobs: int | None = None,
) -> Sequence:
    request = Request(
        request_id=request_id,
        prompt_token_ids=tuple(prompt),
        sampling=SamplingParams(max_tokens=max_tokens, seed=0, prompt_logprobs=prompt_logprobs),
        priority=priority,
        arrival_s=arrival_s,
        cache_salt=salt,
        deadline_s=deadline_s,
    )
    return Sequence.from_request(request)


def next_token(token_ids: list[int]) -> int:
    """The target: any function of the whole prefix will do."""
    return (sum(token_ids[-3:]) * 7 + len(token_ids) + token_ids[0]) % VOCAB_SIZE


def continuation(token_ids: list[int], num_tokens: int) -> tuple[int, ...]:
    """What the target says next: perfect drafts."""
    text = list(token_ids)
    for _ in range(num_tokens):
        text.append(next_token(text))
    return tuple(text[len(token_ids) :])


class FakeEngine:
    """Runs plans and checks each of them against what the contract of the scheduler promises."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.now_s = 0.0
        self.sequences: list[Sequence] = []
        self.kv: dict[tuple[int, int], Content] = {}
        self.num_rounds = 0

    def add(self, sequence: Sequence) -> Sequence:
        self.scheduler.add(sequence)
        self.sequences.append(sequence)
        return sequence

    def rank(self, sequence: Sequence) -> tuple[float, int]:
        request = sequence.request
        ageing_s = self.scheduler.config.ageing_s
        return request.priority * ageing_s + request.arrival_s, self.sequences.index(sequence)

    def step(
        self, drafts: Mapping[str, tuple[int, ...]] | None = None, *, in_flight: Callable[[], None] = lambda: None
    ) -> Plan:
        """One round; `in_flight` runs between the forward pass and the commit."""
        running_before = self._with_status(SequenceStatus.RUNNING)
        waiting_before = self._with_status(SequenceStatus.WAITING)
        plan = self.scheduler.schedule(self.now_s, drafts or {})
        self.check_plan(plan, drafts or {}, num_running_before=len(running_before))
        self._check_order(plan, running_before, waiting_before)
        for item in plan.scheduled:
            self._forward(item)
        in_flight()
        for item in plan.scheduled:
            self._commit(item)
        self.scheduler.check_integrity()
        self.check_published()
        self.num_rounds += 1
        return plan

    def drain(self, draft: Callable[[Sequence], tuple[int, ...]] = lambda _: (), *, max_rounds: int = 5000) -> None:
        """Run until everything is finished."""
        for _ in range(max_rounds):
            if not self.scheduler.has_work:
                break
            plan = self.step({s.request_id: draft(s) for s in self.scheduler.decoding()})
            assert plan.scheduled, "work is left but nothing was scheduled"
        assert not self.scheduler.has_work, "not everything finished"
        assert self.scheduler.pool.num_used_blocks == 0

    def check_plan(self, plan: Plan, drafts: Mapping[str, tuple[int, ...]], *, num_running_before: int) -> None:
        config, pool = self.scheduler.config, self.scheduler.pool
        num_seats = max(config.max_num_seqs, num_running_before)  # More than allowed may run, but none comes to them.
        assert plan.num_rows <= config.max_num_batched_tokens
        assert len({id(item.sequence) for item in plan.scheduled}) == len(plan.scheduled) <= num_seats
        assert self.scheduler.num_running <= num_seats
        assert sum(bool(item.draft_token_ids) for item in plan.scheduled) <= config.max_num_seqs
        for item in plan.scheduled:
            sequence, draft = item.sequence, item.draft_token_ids
            assert not item.is_stale
            assert 1 <= item.num_tokens <= max(1, config.prefill_chunk_tokens)
            assert len(sequence.block_table) * pool.block_size >= item.start + item.num_rows
            if draft:
                assert item.samples
                assert item.num_tokens == 1
                assert draft == drafts[sequence.request_id][: len(draft)]
                assert sequence.num_tokens + len(draft) + 1 <= config.max_model_len
        is_decode = [item.num_tokens == 1 and item.samples for item in plan.scheduled]
        first_prefill = is_decode.index(False) if False in is_decode else len(is_decode)
        assert not any(item.draft_token_ids for item in plan.scheduled[first_prefill:]), "decodes come first"

    def _check_order(self, plan: Plan, running: list[Sequence], waiting: list[Sequence]) -> None:
        kept = [s for s in running if s not in plan.preempted]
        assert all(self.rank(victim) > self.rank(other) for victim in plan.preempted for other in kept)
        assert all(s.epoch == s.num_preemptions and not s.block_table for s in plan.preempted)
        admitted = [s for s in waiting if s.status is SequenceStatus.RUNNING]
        passed = [s for s in waiting if s.status is SequenceStatus.WAITING]
        for sequence in passed:
            if any(self.rank(other) > self.rank(sequence) for other in admitted):
                # Only one that waits for a sibling's prefix may be passed.
                size = self.scheduler.pool.block_size
                heads = [i.sequence.token_ids[:size] for i in plan.scheduled]
                assert sequence.token_ids[:size] in heads

    def _with_status(self, status: SequenceStatus) -> list[Sequence]:
        return [s for s in self.sequences if s.status is status]

    def _slot(self, sequence: Sequence, position: int) -> tuple[int, int]:
        block, offset = divmod(position, self.scheduler.pool.block_size)
        return sequence.block_table[block], offset

    def _forward(self, item: ScheduledSequence) -> None:
        sequence, salt = item.sequence, item.sequence.request.cache_salt
        for position in range(item.start):
            held = self.kv.get(self._slot(sequence, position))
            assert held == (salt, tuple(sequence.token_ids[: position + 1])), "KV of another text would be read"
        row_ids = [*sequence.token_ids[: item.start + item.num_tokens], *item.draft_token_ids]
        for position in range(item.start, item.start + item.num_rows):
            block_id, offset = self._slot(sequence, position)
            assert self.scheduler.pool.num_references(block_id) == 1, "a shared block would be written"
            assert not self.scheduler.pool.is_published(block_id), "a published block would be written"
            self.kv[block_id, offset] = salt, tuple(row_ids[: position + 1])

    def _commit(self, item: ScheduledSequence) -> None:
        sequence = item.sequence
        if item.is_stale:
            state = (list(sequence.block_table), sequence.num_computed_tokens, sequence.epoch)
            self.scheduler.advance(item, item.start + item.num_tokens)
            assert state == (sequence.block_table, sequence.num_computed_tokens, sequence.epoch)
            return
        if not item.samples:
            self.scheduler.advance(item, item.start + item.num_tokens)
            return
        num_accepted = 0
        for draft in (*item.draft_token_ids, None):
            token = next_token(sequence.token_ids)
            sequence.token_ids.append(token)
            num_accepted += token == draft
            if self._is_complete(sequence) or token != draft:
                break
        self.scheduler.advance(item, item.start + item.num_tokens + num_accepted)
        if self._is_complete(sequence):
            self.scheduler.finish(sequence)

    def _is_complete(self, sequence: Sequence) -> bool:
        at_limit = sequence.num_tokens >= self.scheduler.config.max_model_len
        return at_limit or sequence.num_output_tokens >= sequence.request.sampling.max_tokens

    def check_published(self) -> None:
        """Every findable block holds exactly what its hash says, and only committed tokens."""
        size = self.scheduler.pool.block_size
        for block_hash, block_id in self.scheduler.pool._block_of.items():
            salt, text = self.kv[block_id, size - 1]
            hashes: list[bytes] = []
            extend_block_hashes(hashes, text, size, salt)
            assert hashes[-1] == block_hash
            assert all(
                self.kv[block_id, offset] == (salt, text[: len(text) - size + 1 + offset]) for offset in range(size)
            )
            assert any(
                s.request.cache_salt == salt and tuple(s.token_ids[: len(text)]) == text for s in self.sequences
            ), "tokens that nobody committed are published"


def rows_of(plan: Plan) -> dict[str, int]:
    return {item.sequence.request_id: item.num_rows for item in plan.scheduled}


def drafts_of(plan: Plan) -> dict[str, int]:
    return {i.sequence.request_id: len(i.draft_token_ids) for i in plan.scheduled if i.draft_token_ids}


def decoding_engine(scheduler: Scheduler, *sequences: Sequence) -> FakeEngine:
    """An engine in which all these sequences are decoding."""
    engine = FakeEngine(scheduler)
    for sequence in sequences:
        engine.add(sequence)
    while len(scheduler.decoding()) < len(sequences):
        engine.step()
    return engine
