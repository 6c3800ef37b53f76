"""Random traffic on tiny pools; `FakeEngine` checks every plan, slot and published block on the way."""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from cluster.engine.sequence import Sequence, SequenceStatus
from tests.cluster.engine.scheduler_harness import (
    VOCAB_SIZE,
    WRONG_TOKEN,
    FakeEngine,
    continuation,
    make_scheduler,
    make_sequence,
)

MAX_MODEL_LEN = 24

# Few distinct starts, so that prefixes are often shared.
PROMPTS = st.tuples(st.sampled_from([(0,) * 9, (1, 2, 3, 4, 0, 1), (2,)]), st.lists(st.integers(0, 2), max_size=8)).map(
    lambda parts: (*parts[0], *parts[1])
)


class RandomTraffic(RuleBasedStateMachine):
    """Adds, aborts, drafts, acceptances and preemptions in any order."""

    @initialize(
        block_size=st.integers(1, 5),
        num_spare_blocks=st.integers(0, 12),
        num_reserve_blocks=st.integers(0, 6),
        max_num_seqs=st.integers(1, 5),
        num_extra_rows=st.integers(0, 12),
        prefill_chunk_tokens=st.integers(1, 12),
        enable_prefix_cache=st.booleans(),
    )
    def start(
        self,
        *,
        block_size: int,
        num_spare_blocks: int,
        num_reserve_blocks: int,
        max_num_seqs: int,
        num_extra_rows: int,
        prefill_chunk_tokens: int,
        enable_prefix_cache: bool,
    ) -> None:
        self.engine = FakeEngine(
            make_scheduler(
                -(-MAX_MODEL_LEN // block_size) + num_spare_blocks + num_reserve_blocks,
                block_size,
                max_num_seqs=max_num_seqs,
                max_num_batched_tokens=max_num_seqs + num_extra_rows,
                prefill_chunk_tokens=prefill_chunk_tokens,
                max_model_len=MAX_MODEL_LEN,
                enable_prefix_cache=enable_prefix_cache,
                num_reserve_blocks=num_reserve_blocks,
            )
        )

    @rule(
        prompt=PROMPTS,
        max_tokens=st.integers(1, 30),
        priority=st.integers(-2, 2),
        salt=st.sampled_from(["", "", "other"]),
        num_choices=st.sampled_from([1, 1, 1, 4]),
        prompt_logprobs=st.sampled_from([None, None, 1]),
    )
    def add(
        self,
        *,
        prompt: tuple[int, ...],
        max_tokens: int,
        priority: int,
        salt: str,
        num_choices: int,
        prompt_logprobs: int | None,
    ) -> None:
        for _ in range(num_choices):
            self.engine.add(
                make_sequence(
                    f"request-{len(self.engine.sequences)}",
                    prompt,
                    max_tokens=max_tokens,
                    priority=priority,
                    arrival_s=self.engine.now_s,
                    salt=salt,
                    prompt_logprobs=prompt_logprobs,
                )
            )

    def unfinished(self) -> list[Sequence]:
        return [s for s in self.engine.sequences if s.status is not SequenceStatus.FINISHED]

    @precondition(lambda self: self.engine.scheduler.has_work)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        self.engine.scheduler.finish(data.draw(st.sampled_from(self.unfinished())))

    def draw_drafts(self, data: st.DataObject) -> dict[str, tuple[int, ...]]:
        """For any sequence, also one that is not decoding: k right tokens, then wrong ones."""
        drafts = {}
        for sequence in self.unfinished():
            num_right, num_wrong = data.draw(st.tuples(st.integers(0, 6), st.integers(0, 3)))
            drafts[sequence.request_id] = continuation(sequence.token_ids, num_right) + (WRONG_TOKEN,) * num_wrong
        return drafts

    @precondition(lambda self: self.engine.scheduler.has_work)
    @rule(data=st.data(), with_drafts=st.booleans(), abort_in_flight=st.booleans())
    def step(self, data: st.DataObject, *, with_drafts: bool, abort_in_flight: bool) -> None:
        drafts = self.draw_drafts(data) if with_drafts else {}
        in_flight = (lambda: self.abort(data)) if abort_in_flight else (lambda: None)
        assert self.engine.step(drafts, in_flight=in_flight).scheduled

    @precondition(lambda self: self.engine.scheduler.has_work)
    @rule(data=st.data())
    def plan_again_before_the_answer(self, data: st.DataObject) -> None:
        """A second plan may preempt what is in flight; the first plan's answers then come late."""
        scheduler = self.engine.scheduler
        first = scheduler.schedule(self.engine.now_s, self.draw_drafts(data))
        self.engine.step(self.draw_drafts(data))
        for item in first.scheduled:
            if item.is_stale:
                before = (list(item.sequence.block_table), item.sequence.num_computed_tokens)
                scheduler.advance(item, item.start + item.num_rows)
                assert before == (item.sequence.block_table, item.sequence.num_computed_tokens)

    @rule(data=st.data(), withholds_reserve=st.booleans())
    def change_limits(self, data: st.DataObject, *, withholds_reserve: bool) -> None:
        """A change of role: nobody is preempted for it, and no block is lost."""
        scheduler = self.engine.scheduler
        before = [(s.status, list(s.block_table), s.epoch) for s in self.engine.sequences]
        max_num_seqs = data.draw(st.integers(1, min(5, scheduler.config.max_num_batched_tokens)))
        scheduler.set_limits(max_num_seqs=max_num_seqs, withholds_reserve=withholds_reserve)
        assert before == [(s.status, s.block_table, s.epoch) for s in self.engine.sequences]

    @rule(seconds=st.integers(1, 30))
    def wait(self, seconds: int) -> None:
        self.engine.now_s += seconds

    @invariant()
    def books_balance(self) -> None:
        scheduler = self.engine.scheduler
        scheduler.check_integrity()
        pool = scheduler.pool
        assert pool.num_free_blocks + pool.num_used_blocks + pool.num_withheld_blocks == pool.num_blocks
        assert scheduler.num_running + scheduler.num_waiting == len(self.unfinished())

    def teardown(self) -> None:
        """Everything finishes, with the text that the target alone would have written."""
        if not hasattr(self, "engine"):
            return
        aborted = {s.request_id for s in self.engine.sequences if s.status is SequenceStatus.FINISHED}
        self.engine.drain(lambda s: (*continuation(s.token_ids, 2), WRONG_TOKEN))
        for sequence in self.engine.sequences:
            prompt = list(sequence.request.prompt_token_ids)
            assert tuple(sequence.token_ids[len(prompt) :]) == continuation(prompt, sequence.num_output_tokens)
            assert all(0 <= token < VOCAB_SIZE for token in sequence.token_ids)
            if sequence.request_id not in aborted:
                length = min(len(prompt) + sequence.request.sampling.max_tokens, MAX_MODEL_LEN)
                assert sequence.num_tokens == length


TestRandomTraffic = RandomTraffic.TestCase
TestRandomTraffic.settings = settings(
    max_examples=60,
    stateful_step_count=25,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
