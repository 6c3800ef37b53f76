"""What draft tokens were drawn from: the distributions q that rejection and block verification need. Pure.

Legend: K draft tokens, C columns of the draft model's head, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DraftProbabilities:
    """One distribution for each token of a draft, after all of the sequence's own settings.

    Attributes:
        rows: K of them, float32 [C], each sums to 1.
        target_ids: token id of each column; None when column i is token i.
    """

    rows: Sequence[FloatArray]
    target_ids: npt.NDArray[np.int32] | None = None

    def first(self, num_tokens: int) -> "DraftProbabilities":
        """Those of the first tokens."""
        return replace(self, rows=self.rows[:num_tokens])

    def of(self, index: int, vocab_size: int) -> npt.NDArray[np.float64]:
        """The distribution of one token over the target's vocabulary, float64 [V].

        Raises:
            IndexError: there are fewer tokens.
        """
        row_C, q_V = self.rows[index], np.zeros(vocab_size)
        if self.target_ids is None:
            num_known = min(len(row_C), vocab_size)
            q_V[:num_known] = row_C[:num_known]
        else:
            q_V[self.target_ids] = row_C
        return q_V
