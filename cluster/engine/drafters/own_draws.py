"""Drafts that are drawn with noise of their own, and say what from: for the rules `rejection` and `block`."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from cluster.engine.draft_probabilities import DraftProbabilities
from cluster.engine.logits_processors import GREEDY_TEMPERATURE
from cluster.engine.noise import FloatArray, Stream, stream_seed
from cluster.engine.sequence import Sequence


@dataclass(slots=True, eq=False)
class OwnDraws:
    """One draft in the making whose tokens are drawn with noise that nothing else reads.

    Attributes:
        seed: of that noise, in place of the choice's.
        rows: what each token was drawn from, as in `DraftProbabilities`; grows with the draft.
        target_ids: as there.
    """

    seed: int
    rows: list[FloatArray] = field(default_factory=list)
    target_ids: npt.NDArray[np.int32] | None = None

    def take(self, row_C: FloatArray, target_ids: npt.NDArray[np.int32] | None) -> None:
        """Note what the next token was drawn from."""
        self.rows.append(row_C)
        self.target_ids = target_ids


def own_draws(sequence: Sequence) -> OwnDraws | None:
    """Those of a sequence's next draft; None for a greedy one, whose drafts are fixed functions of its tokens."""
    sampling = sequence.request.sampling
    if sampling.temperature < GREEDY_TEMPERATURE:
        return None
    return OwnDraws(stream_seed(sampling.seed, Stream.DRAFT, sequence.num_output_tokens))


def drawn_from(own: OwnDraws | None, num_tokens: int) -> DraftProbabilities | None:
    """What the first tokens of a draft were drawn from, where it has noise of its own."""
    return None if own is None else DraftProbabilities(rows=tuple(own.rows[:num_tokens]), target_ids=own.target_ids)
