"""What a head says behind each node of a tree is what it says behind the same tokens as a chain."""

from collections.abc import Iterator
from collections.abc import Sequence as Seq
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster.engine.drafters.eagle3 import MAX_LEVELS, Eagle3Head
from cluster.engine.drafters.eagle3_source import load_eagle3
from cluster.engine.drafters.eagle3_torch import TorchEagle3
from cluster.engine.drafters.head import Head, HeadRows
from cluster.engine.drafters.heads import build_eagle3
from cluster.engine.drafters.mtp import build_mtp
from cluster.engine.noise import FloatArray
from tests.cluster.engine.drafters.head_harness import (
    Reference,
    head_target,
    head_tensors,
    save_specforge,
)
from tests.cluster.engine.drafters.mtp_reference import random_checkpoint
from tests.cluster.engine.drafters.test_eagle3 import close, features_of, rows_of
from tests.cluster.engine.drafters.test_mtp import Text, assert_same
from tests.cluster.engine.engine_harness import random_prompt
from tests.tiny import VOCAB_SIZE

BRANCHES = 3

Levels = list[list[tuple[int, int]]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_specforge(tmp_path_factory.mktemp("head"))


def make_head(folder: Path, kind: str, **changes: Any) -> Eagle3Head:
    target = head_target(max_branches=BRANCHES, **changes)
    if kind == "native":
        return build_eagle3(folder, target)
    weights = load_eagle3(folder, target)
    layer = TorchEagle3(weights, num_blocks=64, max_len=512, device="cpu", num_threads=1)
    return Eagle3Head(
        layer,
        feature_layers=weights.feature_layers,
        target_ids=weights.target_ids,
        max_len=512,
        max_branches=BRANCHES,
    )


def random_levels(seed: int, num_levels: int) -> Levels:
    """For each level its nodes: the one before, as a place in the last level, and a token."""
    generator = np.random.default_rng(seed)
    levels: Levels = []
    for _ in range(num_levels):
        width, count = len(levels[-1]) if levels else 1, generator.integers(1, BRANCHES + 1)
        nodes = {(int(generator.integers(width)), int(generator.integers(3, VOCAB_SIZE))) for _ in range(count)}
        levels.append(list(nodes))
    return levels


def step_through(head: Head, trees: Seq[tuple[Any, Levels]]) -> Iterator[tuple[int, list[int], FloatArray]]:
    """Let the trees of several sequences grow together; gives each node's sequence, path, and the logits behind it."""
    paths: list[list[list[int]]] = [[[]] for _ in trees]
    for level in range(max(len(levels) for _, levels in trees)):
        active = [(index, *tree) for index, tree in enumerate(trees) if level < len(tree[1])]
        rows = [(index, state, *node) for index, state, levels in active for node in levels[level]]
        logits_NC = head.step([row[1] for row in rows], [row[3] for row in rows], [row[2] for row in rows]).copy()
        grown = [(index, [*paths[index][parent], token]) for index, _, parent, token in rows]
        for index, _, _ in active:
            paths[index] = [path for owner, path in grown if owner == index]
        yield from ((*node, logits_C) for node, logits_C in zip(grown, logits_NC, strict=True))


@pytest.mark.parametrize("kind", ["native", "torch"])
def test_each_path_of_an_eagle3_tree_has_the_logits_of_the_reference(folder: Path, kind: str) -> None:
    head, reference = make_head(folder, kind), Reference(head_tensors())
    states, lengths = [head.open(), head.open()], (30, 5)  # The first tree runs over the end of a block.
    tokens = [random_prompt(seed, length) for seed, length in enumerate(lengths)]
    features = [features_of(seed, length) for seed, length in enumerate(lengths)]
    head.begin([rows_of(head, states[each], 0, tokens[each], features[each]) for each in range(2)])
    trees = [(states[0], random_levels(0, 4)), (states[1], random_levels(1, 2))]
    for index, path, logits_C in step_through(head, trees):
        wanted = reference.logits(features[index], tokens[index], range(lengths[index]), path)[-1]
        close(logits_C[None], [wanted], kind)


def test_on_the_kernels_a_path_has_the_bits_of_a_chain_and_trees_are_forgotten(folder: Path) -> None:
    head, chain = make_head(folder, "native"), build_eagle3(folder, head_target())
    state, text, features = head.open(), random_prompt(0, 40), features_of(0, 40)
    for start, end in ((0, 29), (29, 31), (31, 40)):
        begun = head.begin([rows_of(head, state, start, text[start:end], features[start:end])]).copy()
        alone = chain.open()
        plain = chain.begin([rows_of(chain, alone, 0, text[:end], features[:end])]).copy()
        assert np.array_equal(begun, plain)
        for _, path, logits_C in step_through(head, [(state, random_levels(start, 4))]):
            chain.close(alone)
            chain.begin([rows_of(chain, alone, 0, text[:end], features[:end])])
            steps = [chain.step([alone], [token]).copy() for token in path]
            assert np.array_equal(steps[-1][0], logits_C)
        chain.close(alone)


@pytest.mark.parametrize("family", ["deepseek_v3", "glm4_moe"])
def test_each_path_of_a_tree_of_the_next_n_module_has_the_logits_of_the_reference(family: str) -> None:
    head, text = build_mtp(random_checkpoint(family).target(max_branches=BRANCHES)), Text(1, 30)
    state = head.open()
    head.begin([text.rows(head, state, 0, 30)])
    for _, path, logits_C in step_through(head, [(state, random_levels(3, 3))]):
        assert_same(logits_C[None], text.wanted(family, range(30), path)[-1:])


def test_a_tree_is_no_deeper_than_its_blocks_hold(folder: Path) -> None:
    head = make_head(folder, "native")
    assert (head.max_draft_tokens, build_eagle3(folder, head_target()).max_draft_tokens) == (MAX_LEVELS, 64)
    state, text = head.open(), random_prompt(0, 31)
    head.reserve(state, 31 + MAX_LEVELS - 1, 31 + MAX_LEVELS)
    head.begin([HeadRows(state=state, first_position=0, token_ids=text, features_nF=features_of(0, 31))])
    parents = [0] * BRANCHES
    for level in range(MAX_LEVELS - 1):
        head.step([state] * BRANCHES, [3 + level, 4 + level, 5 + level], parents)
        parents = [2, 0, 0]
