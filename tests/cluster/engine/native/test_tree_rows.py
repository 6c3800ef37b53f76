"""Nodes of draft trees on the CPU kernels: the bits of each are those of its path verified as a chain."""

import random
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from cluster.engine.native.runner import NativeRunner
from tests.cluster.engine.native.test_native_runner import (
    BLOCK_SIZE,
    CONFIGS,
    make_native,
    make_reference,
    random_tokens,
)
from tests.cluster.engine.tree_toys import Tree, path_nodes, random_tree, tree_batch

TABLE, OTHER_TABLE, VOCAB_SIZE = [7, 2, 11, 4, 9], [0, 5, 1], 320
# Committed tokens: paths within a tile, across its end, and from its first column.
LENGTHS = (40, 62, 64)


@pytest.fixture(scope="module", params=[(name, kv) for name in CONFIGS for kv in ("float32", "bfloat16")], ids=str)
def runner(request: pytest.FixtureRequest) -> Iterator[NativeRunner]:
    name, kv = request.param
    reference = make_reference(CONFIGS[name], torch.bfloat16)
    kv_dtype = torch.float32 if kv == "float32" else torch.bfloat16
    native = make_native(reference, dtype=torch.bfloat16, kv_dtype=kv_dtype, num_threads=2)
    yield native
    native.close()


def prefill(runner: NativeRunner, tokens: list[int], table: list[int]) -> None:
    runner.forward(tree_batch([(tokens, table, 0, ((), ()))], BLOCK_SIZE))


def chain_logits(runner: NativeRunner, tokens: list[int], drafts: tuple[int, ...]) -> torch.Tensor:
    """Logits of the last committed token and of a chain behind it."""
    rows = [(tokens, TABLE, len(tokens) - 1, (drafts, ()))]
    return runner.forward(tree_batch(rows, BLOCK_SIZE, is_plain=True)).clone()


def tree_logits(runner: NativeRunner, tokens: list[int], tree: Tree) -> torch.Tensor:
    """The same of a tree, in a batch with a decode before it and another tree behind it."""
    decode = (random_tokens(3, 20), OTHER_TABLE, 19, ((), ()))
    other = (random_tokens(4, 33), [20, 21, 22], 30, ((5, 6, 7), (-1, -1, 0)))
    logits = runner.forward(tree_batch([decode, (tokens, TABLE, len(tokens) - 1, tree), other], BLOCK_SIZE)).clone()
    return logits[1 : 2 + len(tree[0])]


@pytest.mark.parametrize("length", LENGTHS)
def test_each_node_has_the_bits_of_its_path_as_a_chain(runner: NativeRunner, length: int) -> None:
    tokens = random_tokens(length, length)
    prefill(runner, tokens, TABLE)
    for seed in range(3):
        token_ids, parents = random_tree(random.Random(seed), 14, VOCAB_SIZE)
        found = tree_logits(runner, tokens, (token_ids, parents))
        for node in range(len(token_ids)):
            path = path_nodes(parents, node)
            expected = chain_logits(runner, tokens, tuple(token_ids[i] for i in path))
            assert torch.equal(found[[0, *(i + 1 for i in path)]], expected)


def test_a_long_path_between_many_siblings_crosses_two_tiles(runner: NativeRunner) -> None:
    tokens = random_tokens(6, 30)
    prefill(runner, tokens, TABLE)
    depth = 40
    token_ids = tuple(random_tokens(7, 2 * depth))
    # Node 2i goes on with the path, node 2i + 1 is its sibling.
    parents = tuple(max(-1, 2 * (i // 2) - 2) if i > 1 else -1 for i in range(2 * depth))
    found = tree_logits(runner, tokens, (token_ids, parents))
    assert torch.equal(found[1::2], chain_logits(runner, tokens, token_ids[::2])[1:])


@pytest.mark.parametrize("length", LENGTHS)
def test_behind_a_moved_path_decoding_goes_on_with_the_same_bits(runner: NativeRunner, length: int) -> None:
    tokens = random_tokens(length, length)
    prefill(runner, tokens, TABLE)
    token_ids, parents = random_tree(random.Random(1), 12, VOCAB_SIZE)
    depths = [len(path_nodes(parents, node)) for node in range(12)]
    path = path_nodes(parents, int(np.argmax(depths)))
    assert len(path) >= 3
    drafts = tuple(token_ids[i] for i in path)
    chain_logits(runner, tokens, drafts)
    plain = chain_logits(runner, [*tokens, *drafts, 9], (8,))
    tree_logits(runner, tokens, (token_ids, parents))
    slots = [TABLE[i // BLOCK_SIZE] * BLOCK_SIZE + i % BLOCK_SIZE for i in range(length, length + 12)]
    runner.move_kv([slots[node] for node in path], slots[: len(path)])
    assert torch.equal(chain_logits(runner, [*tokens, *drafts, 9], (8,)), plain)


def test_without_the_move_the_bits_would_differ() -> None:
    runner = make_native(make_reference(CONFIGS["llama"]), dtype=torch.bfloat16, kv_dtype=torch.float32, num_threads=1)
    tokens = random_tokens(1, 40)
    prefill(runner, tokens, TABLE)
    chain_logits(runner, tokens, (6, 7))
    plain = chain_logits(runner, [*tokens, 6, 7, 9], ())
    tree_logits(runner, tokens, ((5, 6, 7), (-1, -1, 1)))
    assert not torch.equal(chain_logits(runner, [*tokens, 6, 7, 9], ()), plain)


def test_a_chain_given_as_a_tree_is_the_chain(runner: NativeRunner) -> None:
    tokens = random_tokens(2, 50)
    prefill(runner, tokens, TABLE)
    drafts = tuple(random_tokens(5, 20))
    expected = chain_logits(runner, tokens, drafts)
    assert torch.equal(tree_logits(runner, tokens, (drafts, tuple(range(-1, 19)))), expected)
