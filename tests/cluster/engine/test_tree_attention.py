"""Nodes of draft trees in torch: attention and whole models give what each path gives as a chain."""

import random
from collections.abc import Sequence as Seq
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import nn

from cluster.engine import token_tree
from cluster.engine.attention import AttentionCall, PagedAttention
from cluster.engine.attention_tiles import plan_tiles
from cluster.engine.kv_cache import KVLayer, PagedKVCache
from cluster.engine.transformers_runner import TransformersRunner
from tests.cluster.engine.engine_harness import make_engine, random_prompt, request, run, tiny_llama
from tests.cluster.engine.test_transformers_runner import (
    BLOCK_SIZE,
    assert_same,
    plain_logits,
    plain_model,
    random_ids,
    runner_for,
)
from tests.cluster.engine.tiny_models import CONFIGS, VOCAB_SIZE
from tests.cluster.engine.tree_toys import Tree, TreeDrafter, random_tree, tree_around, tree_batch
from tests.tiny import VOCAB_SIZE as TINY_VOCAB_SIZE

TABLES = ([3, 9, 1, 12, 7, 20, 5, 8, 2, 11], [0, 4, 6, 10, 13], [14, 15, 16, 17, 18, 19])
NONE: Tree = ((), ())


def sequences_of(lengths: Seq[int], trees: Seq[Tree], firsts: Seq[int]) -> list[tuple[list[int], list[int], int, Tree]]:
    return [
        (random_ids(length, seed=length), TABLES[index], first, tree)
        for index, (length, tree, first) in enumerate(zip(lengths, trees, firsts, strict=True))
    ]


@pytest.mark.parametrize("num_nodes", [6, 24])
@pytest.mark.parametrize("options", [{}, {"sliding_window": 3}, {"softcap": 1.5}, {"sinks": torch.linspace(-1, 1, 4)}])
def test_a_node_attends_to_its_path_in_the_order_of_positions(num_nodes: int, options: dict[str, Any]) -> None:
    """Against attention written out in float64, beside a decode and a prefill; 24 nodes have a tile of their own."""
    # A third of the nodes in one path among wrong siblings: deeper than the window.
    token_ids, parents = tree_around(random.Random(num_nodes), range(num_nodes), 99)
    tree = token_ids[:num_nodes], token_tree.first(parents, num_nodes)
    sequences = sequences_of((9, 12, 17), (tree, NONE, NONE), (8, 11, 0))
    batch = tree_batch(sequences, BLOCK_SIZE)
    generator = torch.Generator().manual_seed(0)
    cache = PagedKVCache(
        num_blocks=21,
        block_size=BLOCK_SIZE,
        layers=[KVLayer(num_kv_heads=2, key_dim=8, value_dim=8, dtype=torch.float32)],
    )
    past = torch.randn(2, 21 * BLOCK_SIZE, 2, 8, generator=generator)
    cache.write(0, past[0], past[1], torch.arange(21 * BLOCK_SIZE))
    query, key, value = (torch.randn(len(batch.positions), n, 8, generator=generator) for n in (4, 2, 2))
    call = AttentionCall(module=nn.Identity(), query=query, key=key, value=value, **options)
    paged = PagedAttention(cache=cache, layers={call.module: 0}, batch=batch, device=torch.device("cpu"))
    found = paged.attend(call)
    keys, values = (part.double() for part in cache.gather(0, torch.arange(21 * BLOCK_SIZE)))
    for row in range(num_nodes + 2):
        slots = seen_slots(row, tree) if row <= num_nodes else [slot_of(TABLES[1], p) for p in range(12)]
        slots = slots[-options.get("sliding_window", len(slots)) :]
        scores = torch.einsum("hd,lhd->hl", query[row].double(), keys[slots].repeat_interleave(2, 1)) * 8**-0.5
        if "softcap" in options:
            scores = 1.5 * torch.tanh(scores / 1.5)
        if "sinks" in options:
            scores = torch.cat([scores, options["sinks"].double()[:, None]], 1)
        weights = scores.softmax(1)[:, : len(slots)]
        expected = torch.einsum("hl,lhd->hd", weights, values[slots].repeat_interleave(2, 1))
        torch.testing.assert_close(found[row].double(), expected, atol=1e-5, rtol=1e-5)


def slot_of(table: Seq[int], index: int) -> int:
    return table[index // BLOCK_SIZE] * BLOCK_SIZE + index % BLOCK_SIZE


def seen_slots(row: int, tree: Tree) -> list[int]:
    """Slots that row `row` of the first sequence sees: nine committed ones, then those on the node's path."""
    nodes: list[int] = []
    node = row - 1
    while node != token_tree.ROOT:
        nodes.insert(0, node)
        node = token_tree.parents_of(len(tree[0]), tree[1])[node]
    return [slot_of(TABLES[0], index) for index in [*range(9), *(9 + node for node in nodes)]]


def test_tiles_without_a_tree_have_no_mask_of_their_own() -> None:
    tree = random_tree(random.Random(0), 20, 99)
    batch = tree_batch(sequences_of((9, 12, 10), (tree, NONE, NONE), (8, 11, 9)), BLOCK_SIZE)
    assert [tile.tree is not None for tile in plan_tiles(batch, BLOCK_SIZE)] == [True, False]


@pytest.mark.parametrize("name", CONFIGS)
def test_each_path_has_the_logits_of_a_plain_forward(name: str) -> None:
    runner, model = runner_for(name), plain_model(name)
    tree = random_tree(random.Random(5), 9, VOCAB_SIZE)
    sequences = sequences_of((11, 7), (tree, ((5, 6), (-1, -1))), (10, 6))
    for tokens, table, first, _ in sequences:
        runner.forward(tree_batch([(tokens[:first], table, 0, NONE)], BLOCK_SIZE, is_plain=True))
    found = runner.forward(tree_batch(sequences, BLOCK_SIZE))
    paths = [(), *token_tree.paths(*tree)]
    wanted = torch.stack([plain_logits(model, [*sequences[0][0], *path])[-1] for path in paths])
    assert_same(found[: len(paths)], wanted)


def test_moved_slots_hold_the_same_keys_and_values_in_all_layers() -> None:
    runner = runner_for("llama")
    runner.forward(tree_batch([(random_ids(12, seed=1), TABLES[0], 0, NONE)], BLOCK_SIZE))
    cache = runner._cache
    before = [cache.gather(layer, torch.tensor([13, 36, 38])) for layer in range(3)]
    runner.move_kv([36, 38], [13, 36])
    for layer, (keys, values) in enumerate(before):
        moved = cache.gather(layer, torch.tensor([13, 36, 38]))
        assert torch.equal(moved[0], keys[[1, 2, 2]])
        assert torch.equal(moved[1], values[[1, 2, 2]])


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
def test_an_engine_on_transformers_code_writes_the_same_with_trees(temperature: float) -> None:
    runner = TransformersRunner(deepcopy(tiny_llama()), num_kv_blocks=32, block_size=16, max_model_len=128)
    item = request("a", random_prompt(3, 14), max_tokens=30, temperature=temperature, ignore_eos=True)
    text = run(make_engine(runner=runner, num_speculative_tokens=0), [item])["a"].token_ids
    drafter = TreeDrafter({"a": text}, lambda generator, right: tree_around(generator, right, TINY_VOCAB_SIZE))
    engine = make_engine(
        runner=runner, drafter=drafter, num_speculative_tokens=4, draft_budget="fixed", enable_prefix_cache=False
    )
    assert run(engine, [item])["a"].token_ids == text
    assert drafter.num_trees
