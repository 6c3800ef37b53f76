"""Growth of drafts: the best nodes of the whole tree come out of it, and nothing grows that cannot be among them."""

from collections.abc import Sequence as Seq
from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.engine import token_tree
from cluster.engine.drafters.draft_growth import CHAIN, DraftGrowth, TreeShape
from cluster.engine.drafters.draft_sampling import Candidates

STOP = frozenset({2})


def growth(shape: TreeShape, levels: int, *, reads_tokens: bool = True) -> DraftGrowth:
    return DraftGrowth(
        shape, max_levels=levels, stop_ids=STOP, chance_of=lambda _, said: said, reads_tokens=reads_tokens
    )


def grow(draft: DraftGrowth, levels: Seq[Candidates]) -> int:
    """Let every leaf of a level have the same candidates; returns how many leaves were asked for, the root included."""
    num_leaves = 0
    while draft.leaves:
        num_leaves += len(draft.leaves)
        draft.take([levels[draft.num_levels]] * len(draft.leaves))
    return num_leaves


def candidates(*chances: float, first: int = 10) -> Candidates:
    return Candidates(token_ids=tuple(range(first, first + len(chances))), chances=chances)


def test_a_chain_takes_the_one_candidate_of_each_level() -> None:
    draft = growth(CHAIN, 3)
    assert grow(draft, [candidates(0.9), candidates(0.1), candidates(0.5)]) == 3
    assert draft.result() == ((10, 10, 10), (), (0.9, 0.1, 0.5))


def test_nothing_grows_behind_a_token_that_ends_the_text() -> None:
    draft = growth(TreeShape(max_nodes=8, max_branches=2), 3)
    draft.take([Candidates(token_ids=(2, 5), chances=(0.6, 0.3))])
    assert [draft.token_id(leaf) for leaf in draft.leaves] == [5]
    chain = growth(CHAIN, 4)
    chain.take([Candidates(token_ids=(2,), chances=(0.9,))])
    assert (chain.leaves, chain.result()[0]) == ([], (2,))


def test_a_row_without_candidates_ends_a_draft() -> None:
    draft = growth(CHAIN, 4)
    draft.take([Candidates()])
    assert (draft.leaves, draft.result()) == ([], ((), (), ()))


def test_a_node_that_is_not_among_the_best_does_not_grow() -> None:
    draft = growth(TreeShape(max_nodes=3, max_branches=3), 5)
    draft.take([candidates(0.6, 0.3, 0.05)])
    draft.take([candidates(0.5, 0.5, 0.0)] * len(draft.leaves))
    # 0.6, 0.3 and 0.3 are the best now: behind the last of them nothing can be better than they are.
    assert draft.leaves == []
    assert draft.result()[1] == (-1, -1, 0)


def test_leaves_say_which_leaf_of_the_level_before_they_follow() -> None:
    draft = growth(TreeShape(max_nodes=9, max_branches=2), 3)
    draft.take([candidates(0.6, 0.4)])
    draft.take([candidates(0.2, 0.1), candidates(0.9, 0.1)])
    assert draft.followed == [1, 0]
    assert [draft.path(leaf) for leaf in draft.leaves] == [[11, 10], [10, 10]]


def test_what_the_model_said_of_a_part_of_a_draft_is_found_again() -> None:
    draft = DraftGrowth(
        TreeShape(max_nodes=6, max_branches=2), max_levels=2, stop_ids=STOP, chance_of=lambda _, said: 1 - said
    )
    grow(draft, [candidates(0.6, 0.4), candidates(0.5, 0.2, first=30)])
    token_ids, parents, chances = draft.result()
    said = draft.confidences(token_ids, parents)
    assert list(chances) == pytest.approx([1 - each for each in said])
    last = token_tree.paths(token_ids, parents)[-1]
    assert draft.confidences(last, ()) == (*draft.confidences(last[:1], ()), said[-1])


def test_a_chance_that_is_no_number_counts_as_none() -> None:
    draft = growth(TreeShape(max_nodes=3, max_branches=3), 1)
    draft.take([Candidates(token_ids=(5, 6, 7), chances=(float("nan"), 0.4, 1.5))])
    assert draft.result() == ((7, 6, 5), (-1, -1, -1), (1.0, 0.4, 0.0))


tops = st.lists(st.floats(0.01, 0.99), min_size=3, max_size=3).map(lambda found: sorted(found, reverse=True))


@given(st.lists(tops, min_size=1, max_size=4), st.integers(1, 12))
def test_the_tree_of_heads_that_read_no_tokens_is_the_best_part_of_their_product(
    heads: list[list[float]], num_nodes: int
) -> None:
    draft = growth(TreeShape(max_nodes=num_nodes, max_branches=3), len(heads), reads_tokens=False)
    grow(draft, [candidates(*chances) for chances in heads])
    _, parents, chances = draft.result()
    survival = token_tree.products(chances, parents)
    every = []
    for depth in range(1, len(heads) + 1):
        for choice in product(range(3), repeat=depth):
            every.append(1.0)
            for head, place in zip(heads, choice, strict=False):
                every[-1] *= head[place]
    assert survival == pytest.approx(sorted(every, reverse=True)[:num_nodes])


@given(st.data(), st.integers(1, 3), st.integers(1, 4), st.integers(1, 14))
def test_every_draft_is_a_valid_tree_in_falling_order_of_survival(
    data: st.DataObject, branches: int, levels: int, num_nodes: int
) -> None:
    draft = growth(TreeShape(max_nodes=num_nodes, max_branches=branches), levels)
    while draft.leaves:
        assert len(draft.leaves) <= branches
        draft.take(
            [
                candidates(*data.draw(st.lists(st.floats(0.01, 0.99), min_size=branches, max_size=branches)))
                for _ in draft.leaves
            ]
        )
    token_ids, parents, chances = draft.result()
    token_tree.check_tree(token_ids, parents)
    assert 0 < len(token_ids) <= num_nodes
    assert token_tree.depth(len(token_ids), parents) <= levels
    assert all(a >= b for a, b in pairwise(token_tree.products(chances, parents)))
