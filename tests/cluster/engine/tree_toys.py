"""Random draft trees, batches with trees, and drafters that propose trees."""

import random
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import replace

import numpy as np

from cluster.engine import token_tree
from cluster.engine.drafters.base import Draft, Wanted
from cluster.engine.model_input import ModelInput
from cluster.engine.plan import ScheduledSequence
from cluster.engine.sequence import Sequence

Tree = tuple[tuple[int, ...], tuple[int, ...]]
"""Token ids and parents."""

Guess = Callable[[random.Random, Seq[int]], tuple[Seq[int], Seq[int]]]
"""Makes a tree from the tokens that are right."""


def random_tree(generator: random.Random, num_nodes: int, vocab_size: int) -> Tree:
    """A tree in which no two siblings are equal; maybe a chain."""
    token_ids: list[int] = []
    parents: list[int] = []
    taken: set[tuple[int, int]] = set()
    while len(token_ids) < num_nodes:
        node = generator.randrange(-1, len(token_ids)), generator.randrange(vocab_size)
        if node not in taken:
            taken.add(node)
            parents.append(node[0])
            token_ids.append(node[1])
    return tuple(token_ids), token_tree.normal(parents)


def tree_around(
    generator: random.Random, right: Seq[int], vocab_size: int, *, width: int = 3, wrong: Seq[int] = ()
) -> Tree:
    """The right tokens in a path, wrong siblings and their children around it, in any order that has parents first.

    Args:
        generator: of chance.
        right: the path.
        vocab_size: what wrong tokens are drawn from.
        width: most siblings, the right one included.
        wrong: what wrong tokens are drawn from instead.
    """
    ids = wrong or range(vocab_size)
    token_ids: list[int] = []
    parents: list[int] = []

    def add(parent: int, token_id: int) -> int:
        parents.append(parent)
        token_ids.append(token_id)
        return len(parents) - 1

    at = token_tree.ROOT
    for token_id in right:
        siblings = {token_id} | {generator.choice(ids) for _ in range(generator.randrange(width))}
        places = {sibling: add(at, sibling) for sibling in generator.sample(sorted(siblings), len(siblings))}
        at = places.pop(token_id)
        for other in places.values():
            if generator.random() < 0.5:
                add(other, generator.choice(ids))
    return tuple(token_ids), token_tree.normal(parents)


def path_nodes(parents: Seq[int], node: int) -> list[int]:
    """The node and those before it, first ones first."""
    nodes: list[int] = []
    while node != token_tree.ROOT:
        nodes.insert(0, node)
        node = parents[node]
    return nodes


def tree_batch(
    sequences: Seq[tuple[Seq[int], Seq[int], int, Tree]], block_size: int, *, is_plain: bool = False
) -> ModelInput:
    """Rows of sequences, each (committed tokens, block table, first row, tree behind them), all with logits.

    Args:
        sequences: what stands in the batch.
        block_size: tokens per block.
        is_plain: leave the parents out; there are chains only.
    """
    token_ids: list[int] = []
    positions: list[int] = []
    slots: list[int] = []
    owners: list[int] = []
    row_parents: list[int] = []
    for index, (committed, table, start, (drafts, parents)) in enumerate(sequences):
        root = len(token_ids) + len(committed) - start - 1
        depths = token_tree.depths(len(drafts), parents)
        token_ids += [*committed[start:], *drafts]
        positions += [*range(start, len(committed)), *(len(committed) - 1 + depth for depth in depths)]
        indices = range(start, len(committed) + len(drafts))
        slots += [table[i // block_size] * block_size + i % block_size for i in indices]
        owners += [index] * len(indices)
        row_parents += [-1] * (len(committed) - start)
        row_parents += [root + 1 + parent for parent in parents] if parents else [-1] * len(drafts)
    width = max(len(table) for _, table, _, _ in sequences)
    return ModelInput(
        token_ids=np.array(token_ids, np.int32),
        positions=np.array(positions, np.int32),
        slot_mapping=np.array(slots, np.int32),
        row_sequences=np.array(owners, np.int32),
        block_tables=np.array([[*table, *[0] * (width - len(table))] for _, table, _, _ in sequences], np.int32),
        logit_rows=np.arange(len(token_ids), dtype=np.int32),
        row_parents=None if is_plain else np.array(row_parents, np.int32),
    )


class TreeDrafter:
    """Drafts trees around texts that it was told.

    Args:
        texts: output token ids by request id.
        guess: makes a tree from the right tokens.
        confidence: of each node; None for none.
    """

    name = "tree"

    def __init__(self, texts: Mapping[str, Seq[int]], guess: Guess, confidence: float | None = None) -> None:
        self._texts, self._guess, self._random = texts, guess, random.Random(0)
        self._confidence = confidence
        self.num_trees = 0
        self.observed: list[tuple[Draft, int]] = []

    def propose(self, wanted: Seq[Wanted]) -> Mapping[str, Draft]:
        drafts = {}
        for want in wanted:
            done = want.sequence.num_output_tokens
            right = self._texts.get(want.sequence.request_id, ())[done : done + want.max_tokens]
            token_ids, parents = self._guess(self._random, right)
            self.num_trees += bool(parents)
            draft = Draft(token_ids=tuple(token_ids), source=self.name, parents=tuple(parents))
            if self._confidence is not None:
                draft = replace(draft, confidences=(self._confidence,) * len(token_ids))
            drafts[want.sequence.request_id] = draft
        return drafts

    def begin_round(self, items: Seq[ScheduledSequence]) -> None:
        assert items

    def observe(self, sequence: Sequence, draft: Draft, num_accepted: int) -> None:
        if draft.source == self.name:
            self.observed.append((draft, num_accepted))

    def forget(self, request_id: str) -> None:
        """Nothing is kept."""

    def close(self) -> None:
        """Nothing to release."""
