"""Medusa: several heads on the target's last hidden state, each for a token further ahead (arXiv 2401.10774).

The target itself gives the next token; head i guesses the one i + 1 places behind it. A head knows nothing of what the
others chose, so `step` ignores the token and gives the next head's logits. A tree is the product of the heads' best
candidates, of which the likeliest paths are taken.

Legend: B sequences, S of them at one depth, K heads, A of them worked out together, H hidden size, C columns (the
vocabulary).
"""

from collections.abc import Sequence as Seq
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from cluster.engine.drafters.draft_job import DraftCapacityError
from cluster.engine.drafters.head import HeadRows, HeadTarget, Int32
from cluster.engine.drafters.medusa_source import MedusaWeights, load_medusa
from cluster.engine.drafters.target_parts import cpu_threads
from cluster.engine.noise import FloatArray

# Heads that share the target's output matrix are worked out together, up to so many rows: that takes about the time of
# one row, in which the matrix is read. The bound also limits what is kept.
_MAX_JOINT_ROWS = 32


class MedusaState:
    """What is kept of one sequence between `begin` and the last `step`.

    Attributes:
        depth: heads whose logits were given.
        tops_KH: what goes into each head's output matrix.
        ahead: logits [C] of the heads that come next, as far as they are known.
    """

    __slots__ = ("ahead", "depth", "tops_KH")

    def __init__(self) -> None:
        self.depth = 0
        self.tops_KH: Tensor | None = None
        self.ahead: list[FloatArray] = []


class MedusaHead:
    """The heads of one checkpoint; see `Head` for the contract.

    Args:
        weights: from `load_medusa`.
        target: of the heads.
    """

    name = "medusa"
    target_ids: Int32 | None = None
    max_branches = 1
    reads_tokens = False

    def __init__(self, weights: MedusaWeights, target: HeadTarget) -> None:
        self.feature_layers: tuple[int, ...] = (target.config.num_hidden_layers,)
        self.max_draft_tokens = len(weights.blocks)
        self.num_columns = int(weights.outputs[0].shape[0])
        self._weights: MedusaWeights | None = weights
        self._dtype, self._device, self._num_threads = target.dtype, target.device, target.num_threads
        self._max_sequences, self._num_open = target.max_sequences, 0

    def open(self) -> MedusaState:
        """The state of a new sequence.

        Raises:
            DraftCapacityError: as many as may draft at once are open.
        """
        if self._num_open == self._max_sequences:
            raise DraftCapacityError(f"{self._num_open} sequences are open")
        self._num_open += 1
        return MedusaState()

    def close(self, state: MedusaState) -> None:
        """Free a sequence's state."""
        state.tops_KH, state.ahead = None, []
        self._num_open -= 1

    def reserve(self, state: MedusaState, num_rows: int, end_position: int) -> None:
        """Nothing to do: the heads read the last row alone, at any length."""

    @torch.inference_mode()
    def begin(self, rows: Seq[HeadRows]) -> FloatArray:
        """Read the last of the new rows of each sequence; returns float32 [B, C], the logits of the first head."""
        with cpu_threads(self._num_threads):
            tops_KBH = self._tops(torch.stack([row.features_nF[-1] for row in rows]))
        for place, row in enumerate(rows):
            state: MedusaState = row.state
            state.depth, state.tops_KH, state.ahead = 0, tops_KBH[:, place], []
        return self._next([row.state for row in rows])

    def step(self, states: Seq[MedusaState], token_ids: Seq[int], parents: Seq[int] | None = None) -> FloatArray:
        """The logits of the head after the last one of each sequence, float32 [B, C]; tokens make no difference.

        A sequence has one row here, whatever its draft is.
        """
        assert len(states) == len(token_ids), "one token for each sequence"
        return self._next(states)

    def shutdown(self) -> None:
        """Release the weights."""
        self._weights = None

    @torch.inference_mode()
    def _next(self, states: Seq[MedusaState]) -> FloatArray:
        logits_BC = np.empty((len(states), self.num_columns), np.float32)
        for depth in {state.depth for state in states}:
            places = [place for place, state in enumerate(states) if state.depth == depth]
            logits_BC[places] = self._logits(depth, [states[place] for place in places])
        for state in states:
            state.depth += 1
        return logits_BC

    def _logits(self, depth: int, states: Seq[MedusaState]) -> FloatArray:
        """Logits of one head for some sequences, [S, C]."""
        if all(state.ahead for state in states):
            return np.stack([state.ahead.pop(0) for state in states])
        tops = [state.tops_KH for state in states if state.tops_KH is not None]
        assert len(tops) == len(states), "a sequence steps before it began"
        outputs, end = self._loaded.outputs, depth + self._num_joint(depth, len(states))
        with cpu_threads(self._num_threads):
            rows_SAH = torch.stack(tops)[:, depth:end]
            product_NC = functional.linear(rows_SAH.flatten(0, 1), outputs[depth if len(outputs) > 1 else 0])
        logits_SAC: FloatArray = product_NC.float().cpu().numpy().reshape(len(states), end - depth, -1)
        for state, logits_AC in zip(states, logits_SAC, strict=True):
            state.ahead = list(logits_AC[1:])
        return logits_SAC[:, 0]

    def _num_joint(self, depth: int, num_sequences: int) -> int:
        """Heads from this one on that one product gives. The first is alone: often no other is asked for."""
        num_left = self.max_draft_tokens - depth
        is_joint = depth > 0 and len(self._loaded.outputs) == 1 and num_left * num_sequences <= _MAX_JOINT_ROWS
        return num_left if is_joint else 1

    def _tops(self, features_BH: Tensor) -> Tensor:
        """What goes into the output matrix of each head, [K, B, H]."""
        weights = self._loaded
        hidden_BH = weights.norm(features_BH.to(self._device, torch.float32)).to(self._dtype)
        tops = []
        for blocks in weights.blocks:
            top_BH = hidden_BH
            for weight_HH, bias_H in blocks:
                top_BH = top_BH + functional.silu(functional.linear(top_BH, weight_HH, bias_H))
            tops.append(top_BH)
        return torch.stack(tops)

    @property
    def _loaded(self) -> MedusaWeights:
        assert self._weights is not None, "the head was shut down"
        return self._weights


def build_medusa(folder: Path, target: HeadTarget) -> MedusaHead:
    """Load the heads in a folder for a target.

    Raises:
        LoadError: the folder is refused or incomplete, or a tensor does not fit the target.
    """
    return MedusaHead(load_medusa(folder, target), target)
