"""What a drafter that lives on the target's hidden states has to bring: the head itself, without any bookkeeping.

`HeadDrafter` around it keeps the features of sequences, decides how long drafts are, and draws them.

Legend: B sequences, C columns of the head's logits, F features of a row, n new rows of one sequence.
"""

from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from transformers import PretrainedConfig

from cluster.engine.noise import FloatArray

Int32 = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadTarget:
    """What a head needs to know of its target.

    Attributes:
        config: of the target.
        weight: one tensor of the target's checkpoint by its name; raises LoadError when there is none.
        device: where the target runs.
        dtype: of the target's weights.
        max_model_len: longest sequence of the target.
        max_sequences: most sequences that draft at once.
        num_threads: of the head's own passes on CPU.
        kv_cache_tokens: entries of the head's own KV cache, where it has one.
        max_branches: most draft tokens of one sequence that a step reads; 1 for chains.
    """

    config: PretrainedConfig
    weight: Callable[[str], Tensor]
    device: str
    dtype: torch.dtype
    max_model_len: int
    max_sequences: int
    num_threads: int
    kv_cache_tokens: int = 65_536
    max_branches: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadRows:
    """New rows of one sequence.

    Attributes:
        state: from `Head.open`.
        first_position: position of the first row's token in the sequence.
        token_ids: for each row the token after it, n of them: the row at position p comes with token p + 1.
        features_nF: the target's hidden states of the rows, [n, F].
    """

    state: Any
    first_position: int
    token_ids: Seq[int]
    features_nF: Tensor  # noqa: N815  (it ends in its shape)


class Head(Protocol):
    """One kind of head with its weights. Not thread safe. Knows nothing of requests.

    Attributes:
        name: in settings and metrics.
        feature_layers: whose hidden states it reads, as `RoundFeatures` counts them.
        max_draft_tokens: longest draft that it can make; in a tree, most levels.
        max_branches: most draft tokens of one sequence that a `step` can read.
        reads_tokens: what `step` returns depends on the tokens that it reads. Where it does not, one row stands for all
            draft tokens of a level.
        num_columns: C.
        target_ids: token id of each column, strictly rising; None when column i is token i.
    """

    name: str
    feature_layers: tuple[int, ...]
    max_draft_tokens: int
    max_branches: int
    reads_tokens: bool
    num_columns: int
    target_ids: Int32 | None

    def open(self) -> Any:
        """The state of a new sequence.

        Raises:
            DraftCapacityError: no memory is left for one more.
        """
        ...

    def close(self, state: Any) -> None:
        """Free a sequence's state."""
        ...

    def reserve(self, state: Any, num_rows: int, end_position: int) -> None:
        """Make room for a sequence's next `begin` and the steps after it. Called before each `begin`.

        Args:
            state: of the sequence.
            num_rows: rows of `begin` and one for each further `step`, all together.
            end_position: all of them are at positions below this.

        Raises:
            DraftCapacityError: no memory is left for them; the state is as it was.
            DraftLengthError: the sequence is longer than the head can follow; the state is as it was.
        """
        ...

    def begin(self, rows: Seq[HeadRows]) -> FloatArray:
        """Read the new rows of sequences, at least one of each; room for them was made by `reserve`.

        Rows of a sequence come in rising position; some may be missing. What `step` read for it before is forgotten.

        Returns:
            float32 [B, C] logits of each sequence's first draft token: the one after the last of `token_ids`.
        """
        ...

    def step(self, states: Seq[Any], token_ids: Seq[int], parents: Seq[int] | None = None) -> FloatArray:
        """Read draft tokens, one of each sequence, or one level of a tree of each: it reads a token behind its path.

        Args:
            states: of each row's sequence; rows of one sequence stand together.
            token_ids: of each row.
            parents: for each row the number of the one that it follows, among its sequence's in the `step` before. None
                and, behind `begin`, 0: the only one.

        Returns:
            float32 [B, C] logits of the draft token behind each row.
        """
        ...

    def shutdown(self) -> None:
        """Release weights and memory."""
        ...


def by_sequence(states: Seq[Any], parents: Seq[int] | None) -> list[tuple[Any, list[int]]]:
    """The rows of a step by sequence: its state, and what each of its rows follows."""
    level: list[tuple[Any, list[int]]] = []
    for state, parent in zip(states, parents or [0] * len(states), strict=True):
        if not level or level[-1][0] is not state:
            level.append((state, []))
        level[-1][1].append(parent)
    return level
