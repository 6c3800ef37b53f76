"""The coupled acceptance rule: a draft token is kept while it equals what the target draws itself.

DESIGN section 5; Daliri, Musco, Suresh, arXiv 2408.07978. The emitted tokens are always the target's own draws, so the
text cannot depend on the draft; the draft decides only how many of them one round yields.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one round decided for one sequence.

    Attributes:
        num_accepted: leading draft tokens that were kept.
        token_ids: tokens to commit: the kept drafts, then the recovered token, or the bonus token if all were kept.
    """

    num_accepted: int
    token_ids: tuple[int, ...]


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
    if len(sampled) != len(draft) + 1:
        raise ValueError(f"{len(draft)} draft tokens need {len(draft) + 1} draws, not {len(sampled)}")
    num_accepted = 0
    while num_accepted < len(draft) and draft[num_accepted] == sampled[num_accepted]:
        num_accepted += 1
    return Verdict(num_accepted, tuple(sampled[: num_accepted + 1]))
