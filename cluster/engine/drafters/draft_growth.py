"""How a draft grows: level by level behind its likeliest leaves, then the best nodes of all levels are taken. Pure.

After "EAGLE-2: Faster Inference of Language Models with Dynamic Draft Trees" (Li et al., arXiv 2406.16858): a node's
chance to survive is the product of chances along its path, so a child never has more than its parent, and the best
nodes of all levels are a tree by themselves. Here that bounds the growth too: behind a node that is not among the best
now, none ever will be.
"""

from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass

from cluster.engine import token_tree
from cluster.engine.drafters.draft_sampling import Candidates

ChanceOf = Callable[[int, float], float]
"""The chance that a candidate is accepted once its parent was, 0..1, from its level (0 is the first) and confidence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeShape:
    """How wide drafts are.

    Attributes:
        max_nodes: of one draft; 0 for chains, whose length is bounded by their levels alone.
        max_branches: leaves of one draft that grow at once, and candidates that are looked at behind each.
    """

    max_nodes: int = 0
    max_branches: int = 1


CHAIN = TreeShape()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Node:
    """`confidence` is what the draft model said, `chance` what became of that with earlier verdicts."""

    token_id: int
    parent: int
    confidence: float
    chance: float
    survival: float


class DraftGrowth:
    """One draft in the making. A chain is a tree that looks at one candidate behind each node.

    Args:
        shape: how wide it is.
        max_levels: tokens of its longest path, at least 1.
        stop_ids: nothing grows behind these.
        chance_of: corrects confidences by what became of earlier ones.
        reads_tokens: candidates differ by path. Else all leaves of a level grow at no cost.

    Attributes:
        leaves: nodes that grow next, `ROOT` at first; empty when the draft is done.
        followed: for each leaf the place of its parent among the leaves before.
        num_levels: grown so far.
    """

    def __init__(
        self,
        shape: TreeShape,
        *,
        max_levels: int,
        stop_ids: frozenset[int],
        chance_of: ChanceOf,
        reads_tokens: bool = True,
    ) -> None:
        self._max_nodes, self._max_levels = shape.max_nodes or max_levels, max_levels
        self._max_leaves = shape.max_branches if reads_tokens else self._max_nodes
        self._stop_ids, self._chance_of = stop_ids, chance_of
        self._nodes: list[_Node] = []
        self._children: dict[tuple[int, int], int] = {}
        self.leaves, self.followed, self.num_levels = [token_tree.ROOT], [0], 0

    def token_id(self, leaf: int) -> int:
        """Token of a leaf behind the first level."""
        return self._nodes[leaf].token_id

    def path(self, leaf: int) -> list[int]:
        """Tokens from behind the root to a leaf, its own included."""
        path: list[int] = []
        while leaf != token_tree.ROOT:
            path.append(self._nodes[leaf].token_id)
            leaf = self._nodes[leaf].parent
        return path[::-1]

    def take(self, candidates: Seq[Candidates]) -> None:
        """Let one level grow.

        Args:
            candidates: behind each of the leaves.
        """
        num_before = len(self._nodes)
        for leaf, found in zip(self.leaves, candidates, strict=True):
            survival = 1.0 if leaf == token_tree.ROOT else self._nodes[leaf].survival
            # A chain that is drawn with its own noise grows whatever was drawn.
            for token_id, said in zip(found.token_ids, found.chances or (1.0,) * len(found.token_ids), strict=True):
                confidence = min(said, 1.0) if said > 0.0 else 0.0  # NaN is none, too.
                chance = self._chance_of(self.num_levels, confidence) if found.chances else 1.0
                self._children[leaf, token_id] = len(self._nodes)
                self._nodes.append(
                    _Node(
                        token_id=token_id,
                        parent=leaf,
                        confidence=confidence,
                        chance=chance,
                        survival=survival * chance,
                    )
                )
        self.num_levels += 1
        grown = range(num_before, len(self._nodes))
        self._let_grow(grown if self.num_levels < self._max_levels else ())

    def result(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[float, ...]]:
        """Token ids, parents (`()` for a chain) and chances of the best nodes, in falling order of survival."""
        best = self._best()
        nodes = [self._nodes[node] for node in best]
        return (
            tuple(node.token_id for node in nodes),
            token_tree.select(tuple(node.parent for node in self._nodes), best),
            tuple(node.chance for node in nodes),
        )

    def confidences(self, token_ids: Seq[int], parents: tuple[int, ...]) -> tuple[float, ...]:
        """What the draft model said of some of the result's nodes."""
        places = {token_tree.ROOT: token_tree.ROOT}
        for node, parent in enumerate(token_tree.parents_of(len(token_ids), parents)):
            places[node] = self._children[places[parent], token_ids[node]]
        return tuple(self._nodes[places[node]].confidence for node in range(len(token_ids)))

    def _let_grow(self, nodes: Seq[int]) -> None:
        """Choose the leaves: the likeliest of these nodes, of those whose children may be among the best."""
        best = self._best()
        bar = self._nodes[best[-1]].survival if len(best) == self._max_nodes else 0.0
        growing = [
            node
            for node in nodes
            if self._nodes[node].survival > bar and self._nodes[node].token_id not in self._stop_ids
        ]
        growing = self._sorted(growing)[: self._max_leaves]
        places = {leaf: place for place, leaf in enumerate(self.leaves)}
        self.followed = [places[self._nodes[node].parent] for node in growing]
        self.leaves = growing

    def _best(self) -> list[int]:
        return self._sorted(range(len(self._nodes)))[: self._max_nodes]

    def _sorted(self, nodes: Seq[int]) -> list[int]:
        """Nodes in falling order of survival; among equals those that came first, so a parent before its children."""
        return sorted(nodes, key=lambda node: -self._nodes[node].survival)
