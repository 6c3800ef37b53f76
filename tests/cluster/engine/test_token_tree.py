"""Trees as two lists: what holds for every tree, against trees written as nested paths."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.engine import token_tree
from cluster.engine.token_tree import ROOT
from tests.cluster.engine.tree_toys import Tree, path_nodes, random_tree, tree_around

trees = st.builds(
    lambda seed, size: random_tree(random.Random(seed), size, 4), st.integers(0, 1 << 30), st.integers(1, 12)
)
few = settings(derandomize=True, deadline=None, max_examples=60)


def explicit(tree: Tree) -> list[int]:
    return list(token_tree.parents_of(len(tree[0]), tree[1]))


@few
@given(trees)
def test_depths_and_paths_are_those_of_climbing_up(tree: Tree) -> None:
    token_ids, parents = tree
    climbed = [path_nodes(explicit(tree), node) for node in range(len(token_ids))]
    assert token_tree.depths(len(token_ids), parents) == [len(nodes) for nodes in climbed]
    assert token_tree.paths(token_ids, parents) == [tuple(token_ids[i] for i in nodes) for nodes in climbed]
    assert token_tree.depth(len(token_ids), parents) == max(map(len, climbed))
    factors = [0.5 + 0.1 * (token_id % 4) for token_id in token_ids]
    for product, nodes in zip(token_tree.products(factors, parents), climbed, strict=True):
        expected = 1.0
        for node in nodes:
            expected *= factors[node]
        assert product == expected


@few
@given(trees, st.integers(0, 12))
def test_the_first_nodes_of_a_tree_are_a_tree(tree: Tree, num_nodes: int) -> None:
    cut = token_tree.first(tree[1], num_nodes)
    token_tree.check_tree(tree[0][:num_nodes], cut)
    kept = len(tree[0][:num_nodes])
    assert list(token_tree.parents_of(kept, cut)) == explicit(tree)[:num_nodes]


def test_a_chain_is_never_written_as_a_tree() -> None:
    assert token_tree.normal((-1, 0, 1)) == ()
    assert token_tree.normal((-1, 0, 0)) == (-1, 0, 0)
    assert token_tree.first((-1, 0, 1, 1), 3) == ()
    assert token_tree.select((-1, -1, 0, 2), [0, 2, 3]) == ()


@few
@given(trees, st.data())
def test_what_is_kept_is_closed_under_parents_and_keeps_its_paths(tree: Tree, data: st.DataObject) -> None:
    token_ids, parents = tree
    good = data.draw(st.lists(st.booleans(), min_size=len(token_ids), max_size=len(token_ids)))
    kept = token_tree.closed(len(token_ids), parents, good)
    paths = [path_nodes(explicit(tree), node) for node in range(len(token_ids))]
    assert kept == [node for node, path in enumerate(paths) if all(good[i] for i in path)]
    selected = token_tree.select(parents, kept)
    before = token_tree.paths(token_ids, parents)
    assert token_tree.paths([token_ids[i] for i in kept], selected) == [before[i] for i in kept]


@few
@given(trees, st.lists(st.integers(0, 3), max_size=8))
def test_a_text_is_followed_as_far_as_some_path_spells_it(tree: Tree, text: list[int]) -> None:
    token_ids, parents = tree
    nodes = token_tree.follow(token_ids, parents, text)
    spelt = {(), *token_tree.paths(token_ids, parents)}
    longest = max(length for length in range(len(text) + 1) if tuple(text[:length]) in spelt)
    assert tuple(token_ids[i] for i in nodes) == tuple(text[:longest])
    at = [ROOT, *nodes]
    assert [explicit(tree)[node] for node in nodes] == at[:-1]
    has_child = at[-1] in explicit(tree)
    assert token_tree.num_tried(len(token_ids), parents, nodes) == len(nodes) + has_child


@pytest.mark.parametrize(
    ("token_ids", "parents", "reason"),
    [
        ((1, 2), (-1,), "2 tokens have 1 parents"),
        ((1, 2), (-1, 1), r"parents\[1\]: 1; expected -1 to 0"),
        ((1, 2), (-1, -2), r"parents\[1\]: -2"),
        ((1, 1), (-1, -1), "siblings have the same token"),
    ],
)
def test_what_is_no_tree_is_refused(token_ids: tuple[int, ...], parents: tuple[int, ...], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        token_tree.check_tree(token_ids, parents)


def test_the_main_line_goes_to_the_first_child_each_time() -> None:
    assert token_tree.main_line((5, 6, 7, 8, 9), (-1, -1, 0, 0, 2)) == (5, 7, 9)
    assert token_tree.main_line((5, 6), ()) == (5, 6)


def test_toy_trees_hold_the_right_path() -> None:
    for seed in range(20):
        token_ids, parents = tree_around(random.Random(seed), (3, 1, 2), 9)
        assert (3, 1, 2) in token_tree.paths(token_ids, parents)
