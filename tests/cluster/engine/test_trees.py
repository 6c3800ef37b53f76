"""Whole engines whose drafts are trees: the tokens are those of plain decoding, whatever the trees."""

import random
from collections.abc import Sequence as Seq
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.engine import token_tree
from cluster.engine.drafters.base import Draft
from cluster.grammar.limits import GrammarLimits
from cluster.grammar.source import regex_grammar
from cluster.types import Request, SpeculationParams, StepStats
from tests.cluster.engine.engine_harness import (
    BLOCK_SIZE,
    Result,
    ScriptedRunner,
    make_engine,
    random_prompt,
    request,
    run,
    run_alone,
    tokenizer,
)
from tests.cluster.engine.tree_toys import Guess, TreeDrafter, random_tree, tree_around
from tests.tiny import VOCAB_SIZE

GRAMMAR = regex_grammar("[a-d]{2,4}( [a-d]{2,4}){3,6}", GrammarLimits())
MIXES: tuple[dict[str, Any], ...] = (
    {"temperature": 0.0},
    {"temperature": 0.7, "top_p": 0.9},
    {"temperature": 1.0, "logprobs": 2},
    {"temperature": 0.0, "repetition_penalty": 1.3, "frequency_penalty": 0.5},
    {"temperature": 0.9, "grammar": GRAMMAR},
)


def around(generator: random.Random, right: Seq[int]) -> tuple[Seq[int], Seq[int]]:
    return tree_around(generator, right, VOCAB_SIZE)


def anything(generator: random.Random, right: Seq[int]) -> tuple[Seq[int], Seq[int]]:
    return random_tree(generator, generator.randrange(1, 9), VOCAB_SIZE)


def nonsense(generator: random.Random, right: Seq[int]) -> tuple[Seq[int], Seq[int]]:
    """Ids that are no tokens among right ones, and more levels than asked for."""
    token_ids, parents = tree_around(generator, [*right, *range(3)], VOCAB_SIZE, width=4)
    strange = (-1, -(1 << 31), VOCAB_SIZE, 1 << 40)
    wrong = [token_id if generator.random() < 0.8 else generator.choice(strange) for token_id in token_ids]
    nodes = list(zip(token_tree.parents_of(len(wrong), parents), wrong, strict=True))
    return (wrong, parents) if len(set(nodes)) == len(nodes) else (token_ids, parents)


def requests_of(seed: int) -> list[Request]:
    return [
        request(str(index), random_prompt(seed + index, 9 + 11 * index), seed=seed + index, max_tokens=24, **mix)
        for index, mix in enumerate(MIXES)
    ]


def expected_of(items: Seq[Request]) -> dict[str, Result]:
    return {item.request_id: run_alone(item) for item in items}


def check_equal(guess: Guess, seed: int, *, steps: list[StepStats] | None = None, **settings: Any) -> TreeDrafter:
    """The drafter, after the texts with its trees were those without any."""
    items = requests_of(seed)
    expected = expected_of(items)
    drafter = TreeDrafter({key: result.token_ids for key, result in expected.items()}, guess)
    options = {"num_speculative_tokens": 5, "draft_budget": "fixed", "enable_prefix_cache": False, **settings}
    found = run(make_engine(drafter=drafter, **options), items, steps)
    for key, result in expected.items():
        assert found[key].same_as(result), key
    assert drafter.num_trees
    return drafter


@pytest.mark.parametrize("guess", [around, anything, nonsense])
def test_tokens_are_those_without_speculation(guess: Guess) -> None:
    check_equal(guess, 1)


def test_also_when_preempted() -> None:
    steps: list[StepStats] = []
    check_equal(around, 2, steps=steps, prefill_chunk_tokens=16, num_blocks=5, max_num_seqs=4)
    assert sum(step.num_preempted for step in steps) > 0


def test_also_when_blocks_are_cached() -> None:
    check_equal(around, 2, prefill_chunk_tokens=16, enable_prefix_cache=True)


@pytest.mark.slow
@settings(derandomize=True, deadline=None, max_examples=12)
@given(st.integers(0, 1000), st.sampled_from([around, anything, nonsense]), st.integers(1, 9), st.integers(3, 40))
def test_whatever_the_trees_and_the_room_for_them(seed: int, guess: Guess, depth: int, num_rows: int) -> None:
    options: dict[str, Any] = {
        "num_speculative_tokens": depth,
        "max_num_batched_tokens": max(16, num_rows),
        "max_num_seqs": 5,
    }
    check_equal(guess, seed, prefill_chunk_tokens=16, **options)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_grammar_is_followed_on_each_path(temperature: float) -> None:
    """Wrong siblings that the grammar allows stay; masks and penalties are those of each node's own path."""
    letters = [tokenizer().encode(letter)[0] for letter in "abcd"]

    def guess(generator: random.Random, right: Seq[int]) -> tuple[Seq[int], Seq[int]]:
        token_ids, parents = tree_around(generator, right, 4, width=4, wrong=letters)
        return token_ids, parents

    items = [
        request(str(seed), random_prompt(seed, 12), seed=seed, grammar=GRAMMAR, max_tokens=30, temperature=temperature)
        for seed in range(4)
    ]
    expected = expected_of(items)
    drafter = TreeDrafter({key: result.token_ids for key, result in expected.items()}, guess)
    found = run(make_engine(drafter=drafter, num_speculative_tokens=5, draft_budget="fixed"), items)
    assert {key: result.token_ids for key, result in found.items()} == {k: r.token_ids for k, r in expected.items()}
    assert sum(bool(draft.parents) and accepted > 1 for draft, accepted in drafter.observed) > 5


def test_a_right_path_is_accepted_wherever_it_stands() -> None:
    drafter = check_equal(around, 3)
    free = [(draft, accepted) for draft, accepted in drafter.observed if draft.parents]
    assert sum(accepted for _, accepted in free) > 0.9 * sum(
        min(5, token_tree.depth(len(draft.token_ids), draft.parents)) for draft, _ in free
    )


def test_a_chain_given_as_a_tree_is_the_chain() -> None:
    item = request("a", random_prompt(1, 20), max_tokens=20)
    text = run_alone(item).token_ids
    steps: list[StepStats] = []
    drafter = TreeDrafter({"a": text}, lambda _, right: (right, range(-1, len(right) - 1)))
    engine = make_engine(drafter=drafter, num_speculative_tokens=4, draft_budget="fixed")
    assert run(engine, [item], steps)["a"].token_ids == text
    assert sum(step.num_draft_tokens for step in steps) == sum(map(sum, (s.accepted_per_position for s in steps)))


def test_nodes_and_depths_are_counted() -> None:
    prompt, script = random_prompt(1, 10), [11, 12, 13, 14, 15, 16, 17]

    def guess(_: random.Random, right: Seq[int]) -> tuple[Seq[int], Seq[int]]:
        # The right path is nodes 1, 3, 4; the draft may be as deep as it.
        return ([9, right[0], 8, right[1], right[2]], [-1, -1, 0, 1, 3]) if len(right) > 2 else ((), ())

    class MovingRunner(ScriptedRunner):
        def move_kv(self, sources: Seq[int], destinations: Seq[int]) -> None:
            moves.append((list(sources), list(destinations)))

    moves: list[tuple[list[int], list[int]]] = []
    steps: list[StepStats] = []
    engine = make_engine(
        runner=MovingRunner([0] * 9 + script),
        drafter=TreeDrafter({"a": script}, guess),
        num_speculative_tokens=3,
        draft_budget="fixed",
        eos_token_ids=(),
    )
    result = run(engine, [request("a", prompt, max_tokens=5)], steps)["a"]
    assert result.token_ids == script[:5]
    drafted = next(step for step in steps if step.num_drafts)
    assert (drafted.num_rows, drafted.num_draft_tokens, drafted.num_tried_tokens) == (6, 5, 3)
    assert drafted.accepted_per_position == (1, 1, 1)
    assert drafted.num_output_tokens == 4
    assert result.speculation is not None
    assert result.speculation.accepted_per_draft == (0, 0, 0, 1)
    # Nodes 1, 3, 4 lie behind slot 10, the last committed token's, in its only block.
    first = moves[0][0][0] - 1
    assert first % BLOCK_SIZE == 11
    assert moves == [([first + 1, first + 3, first + 4], [first, first + 1, first + 2])]


def test_a_runner_that_moves_no_kv_is_given_no_trees() -> None:
    drafter = TreeDrafter({"a": [11] * 8}, around)
    runner = ScriptedRunner([11])
    engine = make_engine(runner=runner, drafter=drafter, num_speculative_tokens=3, draft_budget="fixed")
    steps: list[StepStats] = []
    run(engine, [request("a", random_prompt(1, 4), max_tokens=8)], steps)
    assert drafter.num_trees
    assert not any(draft.parents for draft, _ in drafter.observed)


def test_the_prefix_cache_never_sees_a_losing_branch() -> None:
    """A second request reads what the first one wrote as output, beside and between wrong siblings."""
    prompt = random_prompt(4, 20)
    first = request("a", prompt, max_tokens=90, ignore_eos=True)
    text = run_alone(first).token_ids
    drafter = TreeDrafter({"a": text}, around)
    engine = make_engine(drafter=drafter, num_speculative_tokens=4, draft_budget="fixed", enable_prefix_cache=True)
    assert run(engine, [first])["a"].token_ids == text
    again = request("b", (*prompt, *text[:80]), max_tokens=10, ignore_eos=True, speculation=SpeculationParams())
    result = run(engine, [again])["b"]
    assert result.num_cached_tokens >= 3 * BLOCK_SIZE
    assert result.token_ids == text[80:90]


def test_a_budget_cuts_trees_and_learns_from_them() -> None:
    item = request("a", random_prompt(5, 30), max_tokens=60, ignore_eos=True)
    text = run_alone(item).token_ids
    drafter = TreeDrafter({"a": text}, around, confidence=0.6)
    engine = make_engine(drafter=drafter, num_speculative_tokens=4)
    assert run(engine, [item])["a"].token_ids == text
    assert any(draft.parents for draft, _ in drafter.observed)
    assert engine._drafting.acceptance.sources == ("tree",)


def test_expected_tokens_of_a_tree_are_the_sum_over_its_nodes() -> None:
    tree = Draft(token_ids=(1, 2, 3), source="x", confidences=(0.5, 0.25, 0.5), parents=(-1, -1, 0))
    assert tree.expected_tokens == 0.5 + 0.25 + 0.25
    assert Draft(token_ids=(1, 2, 3), source="x", parents=(-1, -1, 0)).expected_tokens == 2
    assert tree.first(1) == Draft(token_ids=(1,), source="x", confidences=(0.5,))
    assert tree.select([0, 2]) == Draft(token_ids=(1, 3), source="x", confidences=(0.5, 0.5))
