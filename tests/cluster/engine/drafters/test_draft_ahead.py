"""Jobs of a draft model: outcomes, branches, memory, limits."""

import random
from typing import Any

import numpy as np
import pytest

from cluster.engine.drafters.draft_ahead import DraftCapacityError, DraftJob, DraftLengthError, DraftModel
from cluster.engine.drafters.own_draws import OwnDraws
from tests.cluster.engine.drafters.draft_harness import (
    BLOCK_SIZE,
    EOS,
    MAX_LEN,
    VOCAB,
    Reference,
    entries,
    make_draft_model,
    run,
    sampling,
)

SETTINGS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "temperature": {"temperature": 0.8},
    "truncated": {"temperature": 1.0, "top_k": 20, "top_p": 0.9, "min_p": 0.01},
    "penalties": {
        "temperature": 0.7,
        "repetition_penalty": 1.3,
        "presence_penalty": 0.4,
        "frequency_penalty": 0.6,
    },
    "greedy_penalties": {"repetition_penalty": 2.0, "frequency_penalty": 0.5},
    "biased": {"temperature": 1.0, "logit_bias": ((7, 3.0), (11, -5.0), (8, 2.0), (999, 1.0))},
    "allowed": {"temperature": 1.0, "allowed_token_ids": tuple(range(2, 90, 2))},
    "min_tokens": {"temperature": 1.0, "min_tokens": 9, "stop_token_ids": (5, 10), "logit_bias": ((3, 6.0), (5, 6.0))},
    "bad_words": {"bad_words": ((7,), (12, 15))},
}


def random_tokens(generator: random.Random, length: int) -> list[int]:
    return [generator.randrange(VOCAB) for _ in range(length)]


@pytest.fixture(scope="module", params=[False, True], ids=["whole_head", "part_of_the_vocabulary"])
def part(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(scope="module")
def reference(part: bool) -> Reference:
    return Reference(part=part, eos_token_ids=EOS)


@pytest.mark.parametrize("name", SETTINGS)
def test_entries_equal_drafting_by_full_recomputation(name: str, part: bool, reference: Reference) -> None:
    generator = random.Random(name)
    model = make_draft_model(part=part, eos_token_ids=EOS)
    params = sampling(**SETTINGS[name])
    for length in (1, 31, 32, 33, 70):
        prompt = random_tokens(generator, length)
        output = random_tokens(generator, 5)
        draft = tuple(random_tokens(generator, 4))
        sequence = model.open([*prompt, *output], length, params)
        job = model.start(sequence, draft, 4, (3, 2, 1, 0, 4))
        run(model, job)
        path = [*prompt, *output]
        assert entries(job) == reference.entries(
            path, length, params, draft=draft, num_tokens=4, fan_out=(3, 2, 1, 0, 4)
        )
        model.close(sequence)
    assert model.num_used_blocks == 0


class Follower:
    """One sequence under random rounds, and what its job must answer."""

    def __init__(self, model: DraftModel, generator: random.Random, reference: Reference) -> None:
        self._model, self._generator, self._reference = model, generator, reference
        self.num_compared = 0
        self._expected: tuple[list[int], int, list[int]] | None = None
        self._open()

    def _open(self) -> None:
        generator = self._generator
        self._num_prompt = generator.choice((1, 20, 31, 32, 64, 90))
        self._tokens = random_tokens(generator, self._num_prompt)
        self._params = sampling(**SETTINGS[generator.choice(list(SETTINGS))], seed=generator.randrange(1 << 64))
        self._expected = None
        self._sequence = self._model.open(self._tokens, self._num_prompt, self._params)
        self.job: DraftJob | None = None

    def act(self) -> None:
        """Start, commit, cancel, or begin anew."""
        generator = self._generator
        if self.job is not None and not self.job.is_done and generator.random() < 0.8:
            return
        choice = generator.random()
        if len(self._tokens) > MAX_LEN - 40 or choice < 0.05:
            self._model.close(self._sequence)
            self._open()
        elif choice < 0.15 and self.job is not None:
            self._model.cancel(self.job)
        elif choice < 0.6:
            self._commit()
        else:
            self._start()

    def check(self) -> None:
        """Compare a job that ended by itself."""
        if self._expected is None or self.job is None or not self.job.is_done or self._was_cancelled():
            return
        path, num_tokens, fan_out = self._expected
        expected = self._reference.entries(
            path,
            self._num_prompt,
            self._params,
            draft=self.job.draft_token_ids,
            num_tokens=num_tokens,
            fan_out=fan_out,
        )
        assert entries(self.job) == expected
        self.num_compared += 1
        self._expected = None

    def _was_cancelled(self) -> bool:
        assert self.job is not None
        return self.job.branches is None or not all(branch.is_done for branch in self.job.branches)

    def _start(self) -> None:
        generator = self._generator
        draft = tuple(random_tokens(generator, generator.randrange(5)))
        if self.job is not None and self.job.entries and generator.random() < 0.5:
            draft = generator.choice(self.job.entries).token_ids
        num_tokens, fan_out = generator.randrange(5), [generator.randrange(4) for _ in range(len(draft) + 1)]
        fan_out[generator.randrange(len(fan_out))] = 2
        self._expected = (list(self._tokens), num_tokens, fan_out)
        self.job = self._model.start(self._sequence, draft, num_tokens, fan_out)

    def _commit(self) -> None:
        """What a verdict brings: a part of the draft in flight and one token more, or just something."""
        generator = self._generator
        new = random_tokens(generator, generator.randrange(1, 4))
        if self.job is not None and generator.random() < 0.8:
            draft = self.job.draft_token_ids
            new = [*draft[: generator.randrange(len(draft) + 1)], generator.randrange(VOCAB)]
        self._tokens += new
        self._model.extend(self._sequence, new)
        self._expected = None


@pytest.mark.parametrize("seed", range(4))
def test_random_rounds_of_many_sequences_equal_full_recomputation(seed: int, part: bool, reference: Reference) -> None:
    generator = random.Random(seed)
    model = make_draft_model(part=part, eos_token_ids=EOS, max_num_batched_tokens=48, prefill_chunk_tokens=20)
    followers = [Follower(model, generator, reference) for _ in range(4)]
    for _ in range(250):
        for follower in followers:
            follower.act()
            model.check_integrity()
        jobs = [follower.job for follower in followers if follower.job is not None and generator.random() < 0.8]
        model.step(jobs)
        model.check_integrity()
        for follower in followers:
            follower.check()
    assert sum(follower.num_compared for follower in followers) > 60


def test_committed_tokens_are_computed_once() -> None:
    """Only the token behind an accepted draft is new to the draft model."""
    model = make_draft_model()
    sequence = model.open([1, 2, 3, 4], 4, sampling())
    run(model, model.start(sequence, (5, 6, 7), 2, (1, 1, 1, 1)))
    assert sequence.num_computed == 4
    model.extend(sequence, (5, 6, 9))
    assert sequence.num_computed == 6
    model.extend(sequence, (8,))
    assert sequence.num_computed == 6


def test_a_cancelled_job_keeps_what_it_drafted_and_gives_its_blocks_back() -> None:
    model = make_draft_model()
    sequence = model.open([1, 2, 3], 3, sampling())
    job = model.start(sequence, (4,), 5, (2, 2))
    for _ in range(3):
        model.step([job])
    held = model.num_used_blocks
    model.cancel(job)
    assert {len(entry.token_ids) for entry in job.entries} == {3}
    assert (held, model.num_used_blocks) == (5, 1)
    model.step([job])
    assert {len(entry.token_ids) for entry in job.entries} == {3}
    model.check_integrity()


@pytest.mark.parametrize("end", ["extend", "close", "start"])
def test_what_makes_a_job_stale_ends_it(end: str) -> None:
    model = make_draft_model()
    sequence = model.open([1, 2, 3], 3, sampling())
    job = model.start(sequence, (4,), 5, (2, 2))
    model.step([job])
    if end == "extend":
        model.extend(sequence, (4, 5))
    elif end == "close":
        model.close(sequence)
    else:
        model.start(sequence, (9,), 1, (1,))
    assert job.is_done
    model.check_integrity()


def test_acceptance_after_a_spell_without_drafts_is_as_before() -> None:
    """Case A10: with a draft model that equals its target, every draft token is right, before and after."""
    target = Reference()
    params = sampling(temperature=1.0, seed=3)
    model = make_draft_model(max_num_batched_tokens=16, prefill_chunk_tokens=8)
    tokens = [1, 2, 3]
    sequence = model.open(tokens, 3, params)

    def committed(count: int) -> list[int]:
        path = list(tokens)
        for _ in range(count):
            path.append(target.ranked(path, 3, params)[0])
        return path[len(tokens) :]

    def drafted() -> tuple[int, ...]:
        job = model.start(sequence, (), 3, (1,))
        run(model, job)
        return job.entries[0].token_ids

    assert list(drafted()) == committed(4)
    spell = committed(50)
    tokens += spell
    for token_id in spell:
        model.extend(sequence, (token_id,))
    assert sequence.num_computed < len(tokens) - 40
    assert list(drafted()) == committed(4)
    for _ in range(5):
        new = committed(5)
        assert list(drafted()) == new[:4]
        tokens += new
        model.extend(sequence, new)


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0, 1.5])
def test_a_draft_model_equal_to_the_target_is_always_right(temperature: float) -> None:
    """Case B6: shared noise makes equal distributions draw equal tokens, so the first guess is what happens."""
    target, params = Reference(), sampling(temperature=temperature, seed=11)
    model = make_draft_model()
    tokens = [4, 8, 15]
    sequence = model.open(tokens, 3, params)
    for _ in range(6):
        path = list(tokens)
        for _ in range(8):
            path.append(target.ranked(path, 3, params)[0])
        right = path[len(tokens) :]
        wrong = (*right[:2], (right[2] + 1) % VOCAB, 0)
        job = model.start(sequence, wrong, 3, (1, 1, 1, 1, 1))
        run(model, job)
        assert dict(entries(job))[2] == tuple(right[2:6])
        job = model.start(sequence, right[:4], 3, (1, 1, 1, 1, 1))
        run(model, job)
        assert dict(entries(job))[4] == tuple(right[4:8])
        tokens += right[:5]
        model.extend(sequence, right[:5])


def test_logits_after_a_spell_have_the_bits_of_a_fresh_computation() -> None:
    class Recording:
        def __init__(self, inner: Any) -> None:
            self.inner, self.logits = inner, np.zeros((0, 0))

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inner, name)

        def forward(self, batch: Any) -> Any:
            result = self.inner.forward(batch)
            self.logits = result.numpy().copy()
            return result

    model = make_draft_model(max_num_batched_tokens=40, prefill_chunk_tokens=24)
    recording = Recording(model._runner)
    model._runner = recording
    tokens = random_tokens(random.Random(1), 130)
    sequence = model.open(tokens[:10], 10, sampling())
    run(model, model.start(sequence, (1, 2, 3), 4, (2, 2, 2, 2)))
    model.extend(sequence, tokens[10:])
    run(model, model.start(sequence, (), 0, (1,)))
    assert np.array_equal(recording.logits[0], Reference().logits(tokens))


def test_a_sequence_at_the_limit_gets_shorter_tables_and_beyond_it_none() -> None:
    """Case D1: the others are not touched."""
    model = make_draft_model(max_len=64)
    with pytest.raises(DraftLengthError, match="65 tokens"):
        model.open([1] * 65, 65, sampling())
    other = model.open([5, 6], 2, sampling())
    alone = model.start(other, (7,), 3, (1, 1))
    run(model, alone)
    expected = entries(alone)
    long = model.open(random_tokens(random.Random(0), 60), 60, sampling())
    lengths = []
    for _ in range(6):
        jobs = [model.start(long, (1, 2, 3), 3, (1, 1, 1, 1)), model.start(other, (7,), 3, (1, 1))]
        run(model, *jobs)
        assert entries(jobs[1]) == expected
        lengths.append({k: len(token_ids) for k, token_ids in entries(jobs[0])})
        model.extend(long, (9,))
    assert lengths == [
        {0: 4, 1: 4, 2: 3, 3: 2},
        {0: 4, 1: 3, 2: 2, 3: 1},
        {0: 3, 1: 2, 2: 1},
        {0: 2, 1: 1},
        {0: 1},
        {},
    ]
    assert long.is_too_long
    assert not long.block_table
    model.check_integrity()


def test_no_outcome_is_prepared_beyond_max_tokens() -> None:
    model = make_draft_model()
    sequence = model.open([1, 2, 3, 4], 3, sampling(max_tokens=5))
    job = model.start(sequence, (5, 6, 7), 4, (1, 1, 1, 1))
    run(model, job)
    assert {k: len(token_ids) for k, token_ids in entries(job)} == {0: 3, 1: 2, 2: 1}


def test_nothing_is_drafted_behind_a_token_that_ends_the_text() -> None:
    model = make_draft_model(eos_token_ids=EOS)
    biased = sampling(logit_bias=((3, 100.0),))
    job = model.start(model.open([1, 2], 2, biased), (), 4, (1,))
    run(model, job)
    assert entries(job) == ((0, (3,)),)
    job = model.start(model.open([1, 2], 2, sampling(logit_bias=((3, 100.0),), ignore_eos=True)), (), 4, (1,))
    run(model, job)
    assert entries(job) == ((0, (3, 3, 3, 3, 3)),)


def test_a_sequence_is_refused_while_blocks_are_short() -> None:
    model = make_draft_model(num_blocks=4)
    first = model.open([1] * 40, 40, sampling())
    with pytest.raises(DraftCapacityError, match="1 KV blocks are needed, 2 are free"):
        model.open([1], 1, sampling())
    assert model.num_used_blocks == 2
    model.close(first)
    model.close(first)
    assert (model.num_used_blocks, model.num_sequences) == (0, 0)
    model.open([1], 1, sampling())


def test_the_likeliest_branches_are_kept_when_blocks_are_short() -> None:
    roomy = make_draft_model()
    job = roomy.start(roomy.open([1, 2, 3], 3, sampling()), (4, 5), 3, (3, 2, 2))
    run(roomy, job)
    model = make_draft_model(num_blocks=4)
    short = model.start(model.open([1, 2, 3], 3, sampling()), (4, 5), 3, (3, 2, 2))
    run(model, short)
    assert entries(short) == entries(job)[:3]
    assert not short.lacks_blocks


def test_a_sequence_that_cannot_grow_ends_its_job_and_goes_on_when_blocks_are_free() -> None:
    model = make_draft_model(num_blocks=5)
    first = model.open([1] * 30, 30, sampling())
    second = model.open([2] * 30, 30, sampling())
    model.extend(first, [1] * 100)
    starved = model.start(first, (4, 5), 2, (1, 1, 1))
    model.extend(second, [2] * 60)
    run(model, model.start(second, (), 2, (1,)))
    model.step([starved])
    assert starved.is_done
    assert starved.lacks_blocks
    assert starved.entries == ()
    model.check_integrity()
    model.close(second)
    again = model.start(first, (4, 5), 0, (1, 1, 1))
    run(model, again)
    assert len(again.entries) == 3


def test_a_draft_is_followed_less_far_when_its_blocks_are_missing() -> None:
    model = make_draft_model(num_blocks=2)
    sequence = model.open([1], 1, sampling())
    model.extend(sequence, [1] * (2 * BLOCK_SIZE - 3))
    job = model.start(sequence, (4, 5, 6, 7), 0, (1, 1, 1, 1, 1))
    run(model, job)
    assert [k for k, _ in entries(job)] == [0, 1, 2]


def test_ids_that_no_embedding_has_harm_only_their_own_sequence() -> None:
    model = make_draft_model()
    good = model.start(model.open([5, 6, 7], 3, sampling()), (8,), 3, (2, 2))
    run(model, good)
    bad = model.open([-1, 1 << 30, VOCAB], 3, sampling(logit_bias=((1 << 40, 1.0),), repetition_penalty=1.5))
    jobs = [
        model.start(bad, (-5, 1 << 31), 3, (2, 2, 2)),
        model.start(model.open([5, 6, 7], 3, sampling()), (8,), 3, (2, 2)),
    ]
    run(model, *jobs)
    assert entries(jobs[1]) == entries(good)
    assert all(0 <= token_id < VOCAB for _, token_ids in entries(jobs[0]) for token_id in token_ids)


def test_short_jobs_do_not_wait_for_long_prompts() -> None:
    model = make_draft_model(max_num_batched_tokens=32, prefill_chunk_tokens=16)
    long = [model.start(model.open([token] * 150, 150, sampling()), (), 2, (1,)) for token in (1, 2)]
    short = model.start(model.open([1] * 5, 5, sampling()), (3,), 2, (2, 2))
    for _ in range(3):
        model.step([*long, short])
    assert short.is_done
    assert [job.is_done for job in long] == [False, False]
    assert all(job.sequence.num_computed > 16 for job in long)


@pytest.mark.parametrize("num_blocks", [3, 4])
def test_whether_a_drawn_draft_exists_does_not_depend_on_its_first_token(num_blocks: int) -> None:
    """The pool is full with three blocks: two are the sequence's own, and a draft of its own noise needs two more."""
    model = make_draft_model(num_blocks=num_blocks, eos_token_ids=EOS)
    params = sampling(temperature=1.0, logit_bias=((3, 9.0), (8, 9.0)))
    sequence = model.open([*range(10, 10 + BLOCK_SIZE + 8)], 4, params)
    found = []
    for seed in range(30):
        job = model.start(sequence, (), BLOCK_SIZE, (1,))
        job.own = OwnDraws(seed)
        run(model, job)
        found.append(job.entries)
        assert len(job.own.rows) >= 1
    if num_blocks == 3:
        assert not any(found)
    else:
        assert len({entries_[0].token_ids[0] in EOS for entries_ in found}) == 2
    model.close(sequence)
    assert model.num_used_blocks == 0
