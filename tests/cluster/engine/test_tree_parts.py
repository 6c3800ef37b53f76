"""The walk down a tree, and what sampler, grammar, budget and heads make of trees."""

import random
from collections import defaultdict
from collections.abc import Sequence as Seq
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.engine import token_tree
from cluster.engine.acceptance import Verdict, accept, walk
from cluster.engine.acceptance_model import AcceptanceModel
from cluster.engine.batch import build_model_input, sampling_rows
from cluster.engine.drafters.base import Draft, Features
from cluster.engine.drafters.best_draft import BestDraft
from cluster.engine.drafters.valid_draft import valid_draft
from cluster.engine.features import RoundFeatures
from cluster.engine.plan import ScheduledSequence
from cluster.engine.sampler import NO_TOKEN, Sampler
from cluster.engine.sequence import Sequence
from cluster.engine.verification import kv_moves, verify
from tests.cluster.engine.drafters.test_best_draft import encode, propose, under
from tests.cluster.engine.drafters.test_guard import FixedDrafter
from tests.cluster.engine.drafters.test_head_drafter import make_drafter
from tests.cluster.engine.engine_harness import make_engine, random_prompt, request, run, run_alone
from tests.cluster.engine.test_trees import around
from tests.cluster.engine.tree_toys import Tree, TreeDrafter, random_tree

few = settings(derandomize=True, deadline=None, max_examples=60)
trees = st.builds(
    lambda seed, size: random_tree(random.Random(seed), size, 3), st.integers(0, 1 << 30), st.integers(1, 10)
)


@few
@given(trees, st.integers(0, 1 << 30))
def test_the_walk_commits_the_targets_own_draws_and_ends_where_no_child_equals_one(tree: Tree, seed: int) -> None:
    token_ids, parents = tree
    generator = random.Random(seed)
    sampled = [generator.randrange(3) for _ in range(len(token_ids) + 1)]
    verdict = walk(token_ids, parents, sampled)
    at = [token_tree.ROOT, *verdict.nodes]
    assert list(verdict.token_ids) == [sampled[node + 1] for node in at]
    assert list(verdict.token_ids[:-1]) == [token_ids[node] for node in verdict.nodes]
    all_parents = token_tree.parents_of(len(token_ids), parents)
    assert [all_parents[node] for node in verdict.nodes] == at[:-1]
    children = [token_ids[node] for node, parent in enumerate(all_parents) if parent == at[-1]]
    assert sampled[at[-1] + 1] not in children
    assert verdict.num_accepted == len(verdict.nodes)


def test_a_chain_is_walked_like_a_chain() -> None:
    assert walk([5, 6], (), [5, 8, 7]) == accept([5, 6], [5, 8, 7]) == Verdict(1, (5, 8))
    assert Verdict(2, (5, 6, 7)).nodes == (0, 1)
    assert walk([5, 6, 7], (-1, -1, 1), [6, -1, 7, 9]) == Verdict(2, (6, 7, 9), (1, 2))
    with pytest.raises(ValueError, match="3 draft tokens need 4 draws, not 2"):
        walk([5, 6, 7], (-1, -1, 1), [6, 7])


def test_a_head_reads_the_rows_of_the_accepted_path_in_its_order() -> None:
    drafter = make_drafter()
    item = tree_item(((5, 6, 7, 8), (-1, -1, 1, 0)), num_tokens=1)
    values_TF = torch.arange(3 * 10.0).reshape(10, 3)
    other = tree_item(((1, 2), ()), num_tokens=1)
    other.sequence.request = replace(other.sequence.request, request_id="b")
    drafter.take_features([other, item], RoundFeatures(drafter.feature_layers, values_TF), [(0,), (1, 2)])
    assert torch.equal(drafter._features.take("b", 2)[1], values_TF[:2].bfloat16())
    assert torch.equal(drafter._features.take("a", 3)[1], values_TF[[3, 5, 6]].bfloat16())


def tree_item(tree: Tree, num_tokens: int = 5) -> ScheduledSequence:
    sequence = Sequence.from_request(request("a", range(num_tokens - 1), max_tokens=20))
    sequence.token_ids.append(9)
    sequence.num_computed_tokens, sequence.block_table = num_tokens - 1, [4, 2, 7]
    return ScheduledSequence.of(sequence, 1, *tree)


def test_rows_of_a_tree_have_positions_by_depth_slots_by_node_and_their_parents_rows() -> None:
    tree = ((5, 6, 7, 8), (-1, -1, 1, 0))
    other = tree_item(((1, 2), ()))
    batch = build_model_input([other, tree_item(tree)], block_size=8)
    assert batch.positions.tolist() == [4, 5, 6, 4, 5, 5, 6, 6]
    assert batch.slot_mapping[3:].tolist() == [36, 37, 38, 39, 16]
    assert batch.row_parents is not None
    assert batch.row_parents.tolist() == [-1, -1, -1, -1, 3, 3, 5, 4]
    assert build_model_input([other], block_size=8).row_parents is None


def test_who_drafts_ahead_is_told_of_the_likeliest_path() -> None:
    item = tree_item(((5, 6, 7, 8), (-1, -1, 1, 0)))
    assert (item.draft_line, item.draft_depth, item.num_rows) == ((5, 8), 2, 5)
    chain = tree_item(((5, 6, 7), ()))
    assert (chain.draft_line, chain.draft_depth) == ((5, 6, 7), 3)


def test_each_row_is_drawn_behind_its_own_path() -> None:
    item = tree_item(((5, 6, 7, 8), (-1, -1, 1, 0)))
    item.sequence.request = replace(
        item.sequence.request, sampling=replace(item.sequence.request.sampling, repetition_penalty=1.2)
    )
    rows = sampling_rows(item)
    assert [list(row.output_token_ids) for row in rows] == [[9], [9, 5], [9, 6], [9, 6, 7], [9, 5, 8]]
    assert [row.output_index for row in rows] == [1, 2, 2, 3, 3]
    assert [(row.assumed_token_id, row.assumed_row) for row in rows[1:]] == [(5, 0), (6, 0), (7, 2), (8, 1)]


def test_only_rows_on_the_walk_are_drawn() -> None:
    item = tree_item(((5, 6, 7, 8), (-1, -1, 1, 0)))
    logits_NV = torch.eye(12)[[6, 8, 7, 3, 4]]
    drawn = Sampler(12, frozenset()).sample(logits_NV, sampling_rows(item))
    assert drawn.token_ids == [6, NO_TOKEN, 7, 3, NO_TOKEN]
    verified = verify(Sampler(12, frozenset()), item, logits_NV)
    assert verified.verdict == Verdict(2, (6, 7, 3), (1, 2))
    assert len(verified.entropy_bits) == 3


def test_only_what_is_not_in_place_moves_and_upwards_in_order() -> None:
    item = tree_item(((5, 6, 7, 8), (-1, 0, 0, 2)), num_tokens=7)
    # Behind position 6 in slot 38: nodes in 39, 16, 17, 18.
    assert kv_moves([item], [(0, 2, 3)], 8) == ([17, 18], [16, 17])
    assert kv_moves([item, item], [(0, 1), ()], 8) == ([], [])


def test_a_bad_id_costs_its_node_and_those_behind_it() -> None:
    draft = Draft(
        token_ids=(5, 99, 7, 8, 9), source="x", confidences=(0.9, 0.8, 0.7, 0.6, 0.5), parents=(-1, -1, 1, 0, 3)
    )
    kept = valid_draft(draft, vocab_size=50, max_tokens=2, max_tree_nodes=9)
    assert kept == Draft(token_ids=(5, 8), source="x", confidences=(0.9, 0.6))
    assert valid_draft(draft, vocab_size=50, max_tokens=9, max_tree_nodes=1).token_ids == (5,)
    assert valid_draft(draft, vocab_size=50, max_tokens=9, max_tree_nodes=0).token_ids == ()
    with pytest.raises(ValueError, match="siblings"):
        Draft(token_ids=(5, 5), source="x", parents=(-1, -1))


def test_a_grammar_costs_a_tree_what_it_refuses_and_what_follows() -> None:
    a, b, c, d, z = (encode(letter)[0] for letter in "abcdz")
    tree = Draft(token_ids=(a, z, b, b, d, c), source="tree", parents=(-1, -1, 0, 1, 2, 2), confidences=(0.5,) * 6)

    class Fixed(FixedDrafter):
        def propose(self, wanted: object) -> dict[str, Draft]:
            return {"a": tree}

    found = propose(under("abc", "abe", "ad"), (Fixed("tree", ()), None))["a"]
    assert (found.token_ids, found.parents) == ((a, b, c), ())
    found = propose(under("abc", "abd", "zb"), (Fixed("tree", ()), None))["a"]
    assert (found.token_ids, found.parents) == (tree.token_ids, tree.parents)


def test_chances_of_a_tree_are_those_of_its_paths_as_chains() -> None:
    model = AcceptanceModel()
    for seed in range(50):
        model.observe("x", (0.9, 0.7, 0.5), 3, random.Random(seed).randrange(4))
    parents, confidences = (-1, 0, 0, 2), (0.9, 0.5, 0.4, 0.8)
    found = model.survival("x", confidences, parents)
    assert found[1] == pytest.approx(model.survival("x", (0.9, 0.5))[-1])
    assert found[3] == pytest.approx(model.survival("x", (0.9, 0.4, 0.8))[-1])


def test_every_child_of_an_accepted_node_is_a_trial_at_its_depth() -> None:
    chains, nodes = AcceptanceModel(), AcceptanceModel()
    for model in (chains, nodes):
        model.observe("x", (0.8, 0.6), 2, 1)
    nodes.observe_nodes("x", (0.8, 0.6), (), (0,))
    chains.observe("x", (0.8, 0.6), 2, 1)
    assert nodes.survival("x", (0.5,) * 3) == chains.survival("x", (0.5,) * 3)
    nodes.observe_nodes("x", (0.7, 0.2, 0.6, 0.3, 0.5), (-1, -1, 0, 0, 1), (0, 3))
    # Both children of the root and both of node 0; node 4's parent was refused.
    assert sum(part.num_trials for part in nodes.reliability("x")) == 4 + 4


class Recorder(FixedDrafter):
    """Notes the hidden state of each committed row, in place of what it knew of it; drafts nothing."""

    feature_layers = (1, 2)

    def __init__(self) -> None:
        super().__init__("recorder", ())
        self.rows: dict[str, dict[int, torch.Tensor]] = defaultdict(dict)

    def take_features(self, items: Seq[ScheduledSequence], features: Features, accepted: Seq[tuple[int, ...]]) -> None:
        values_TF = features.of(self.feature_layers)
        row = 0
        for item, nodes in zip(items, accepted, strict=True):
            kept = [*range(item.num_tokens), *(item.num_tokens + node for node in nodes)]
            for place, index in enumerate(kept):
                self.rows[item.sequence.request_id][item.start + place] = values_TF[row + index].clone()
            row += item.num_rows


def test_heads_are_given_the_rows_of_the_accepted_path_alone() -> None:
    items = [
        request(key, random_prompt(seed, 12), max_tokens=30, temperature=0.8, ignore_eos=True)
        for seed, key in enumerate("ab")
    ]
    texts = {item.request_id: run_alone(item).token_ids for item in items}
    found = []
    for drafter in (TreeDrafter(texts, around), TreeDrafter(texts, lambda _, right: ((), ()))):
        recorder = Recorder()
        both = BestDraft((drafter, None), (recorder, None))
        engine = make_engine(drafter=both, num_speculative_tokens=4, draft_budget="fixed")
        results = run(engine, items)
        assert {key: result.token_ids for key, result in results.items()} == texts
        found.append(recorder.rows)
    with_trees, plain = found
    for key in "ab":
        assert with_trees[key].keys() == plain[key].keys() == set(range(12 + 29))
        for position, row_F in plain[key].items():
            assert torch.equal(with_trees[key][position], row_F), position


def test_an_acceptance_rate_is_a_share_of_what_could_have_been_accepted() -> None:
    item = request("a", random_prompt(0, 12), max_tokens=30)
    texts = {"a": run_alone(item).token_ids}
    seen = []
    for shape in (around, lambda _, right: (right, ())):
        engine = make_engine(drafter=TreeDrafter(texts, shape), num_speculative_tokens=4, draft_budget="fixed")
        stats = run(engine, [item])["a"].speculation
        assert stats is not None
        seen.append(stats)
    trees, chains = seen
    assert trees.num_accepted_tokens <= trees.num_draft_levels == trees.num_acceptable_tokens < trees.num_draft_tokens
    assert chains.num_draft_levels == 0
    assert chains.num_acceptable_tokens == chains.num_draft_tokens >= chains.num_accepted_tokens
