"""The coupled acceptance rule: a draft token is kept while it equals what the target draws itself.

DESIGN section 5; Daliri, Musco, Suresh, arXiv 2408.07978. The emitted tokens are always the target's own draws, so the
text cannot depend on the draft; the draft decides only how many of them one round yields. A tree needs no rule of its
own: from the last committed token on, the way goes to the child that equals the draw.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from cluster.engine import token_tree


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one round decided for one sequence.

    Attributes:
        num_accepted: draft tokens that were kept: the first ones of a chain, a path of a tree.
        token_ids: tokens to commit: the kept drafts, then the recovered token, or the bonus token if all were kept.
        path: of a tree, the indices of the kept nodes.
    """

    num_accepted: int
    token_ids: tuple[int, ...]
    path: tuple[int, ...] = ()

    @property
    def nodes(self) -> tuple[int, ...]:
        """Indices of the kept tokens in the draft."""
        return self.path or tuple(range(self.num_accepted))


def accept(draft: Sequence[int], sampled: Sequence[int]) -> Verdict:
    """Compare a draft with the target's draws.

    Args:
        draft: K draft token ids.
        sampled: K + 1 draws; `sampled[i]` assumes that `draft[:i]` was accepted. What follows the first difference is
            not looked at and may hold anything.

    Returns:
        The kept drafts and one more token of the target.

    Raises:
        ValueError: the lengths do not match.
    """
    _check_lengths(draft, sampled)
    num_accepted = 0
    while num_accepted < len(draft) and draft[num_accepted] == sampled[num_accepted]:
        num_accepted += 1
    return Verdict(num_accepted, tuple(sampled[: num_accepted + 1]))


def walk(draft: Sequence[int], parents: tuple[int, ...], sampled: Sequence[int]) -> Verdict:
    """Go down a tree of drafts along the target's draws.

    Args:
        draft: N draft token ids.
        parents: of the nodes, `()` for a chain; see `token_tree`.
        sampled: N + 1 draws; the first one follows the last committed token, `sampled[i + 1]` follows node i. Those
            that are not on the way are not looked at and may hold anything.

    Returns:
        The nodes on the way and one more token of the target.

    Raises:
        ValueError: the lengths do not match.
    """
    if not parents:
        return accept(draft, sampled)
    _check_lengths(draft, sampled)
    path = token_tree.walk(draft, parents, lambda node: sampled[node + 1])
    return Verdict(len(path), (sampled[0], *(sampled[node + 1] for node in path)), path)


def _check_lengths(draft: Sequence[int], sampled: Sequence[int]) -> None:
    if len(sampled) != len(draft) + 1:
        raise ValueError(f"{len(draft)} draft tokens need {len(draft) + 1} draws, not {len(sampled)}")
