"""An EAGLE-3 head: one decoder layer over pairs of a fused hidden state of the target and the token after it.

The row at position p holds the target's hidden states there and token p + 1; it says what token p + 2 may be. In a
draft the layer's own output takes the place of the target's hidden states. After "EAGLE-3: Scaling up Inference
Acceleration of Large Language Models via Training-Time Test" (Li et al., arXiv 2503.01840).

A sequence's entries in the KV cache are numbered as they come; each carries the position that it was rotated by, so
rows may be missing between them. Draft tokens of a tree are read level by level; each path has entries of its own.

Legend: T rows of a pass, N rows with logits, B sequences or leaves of their drafts, L leaves of one, C columns of the
logits, F features, H hidden size.
"""

from collections.abc import Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from cluster.engine.drafters.draft_job import DraftLengthError
from cluster.engine.drafters.head import HeadRows, Int32, by_sequence
from cluster.engine.drafters.head_blocks import DraftTails, HeadBlocks, KVRows
from cluster.engine.model_input import ModelInput
from cluster.engine.noise import FloatArray

NAME = "eagle3"
BLOCK_SIZE = 32
MAX_DRAFT_TOKENS = 64
MAX_LEVELS = BLOCK_SIZE
"""Most levels of a tree: what `TAIL_BLOCKS` hold."""
MAX_ROWS = 256
"""Most rows of a pass: a longer prompt is read in several."""


class Eagle3Layer(Protocol):
    """The arithmetic of a head, with its KV cache.

    Attributes:
        num_blocks: blocks of `BLOCK_SIZE` entries.
        num_columns: C.
    """

    num_blocks: int
    num_columns: int

    def run(
        self, batch: ModelInput, rotary_positions: Int32, *, features_TF: Tensor | None, hidden_TH: Tensor | None
    ) -> tuple[FloatArray, Tensor]:
        """One pass.

        Args:
            batch: the rows; its positions count entries of the KV cache.
            rotary_positions: of each row in its sequence, int32 [T].
            features_TF: hidden states of the target.
            hidden_TH: what this layer made of the rows before, where there are no features: one of both is given.

        Returns:
            Logits float32 [N, C], which the next pass overwrites, and what left the layer at the same rows [N, H].
        """
        ...

    def copy_blocks(self, sources: Seq[int], destinations: Seq[int]) -> None:
        """Copy whole KV blocks; no block may be in both lists."""
        ...

    def close(self) -> None:
        """Release weights and memory."""
        ...


@dataclass(slots=True, eq=False)
class Eagle3State:
    """One sequence in the head.

    Attributes:
        rows: its KV, that of draft tokens not counted.
        tails: where the newest draft tokens' paths lie; None before the first of them was read.
        next_position: of the next draft tokens' rows.
        hidden: what left the layer at the last row or at those of the newest draft tokens, [L, H].
    """

    rows: KVRows = field(default_factory=KVRows)
    tails: DraftTails | None = None
    next_position: int = 0
    hidden: Tensor | None = None


class Eagle3Head:
    """`Head` around the arithmetic: KV blocks, positions, batches.

    Args:
        layer: taken over.
        feature_layers: whose hidden states it reads.
        target_ids: token id of each column, strictly rising; None when column i is token i.
        max_len: longest sequence in tokens.
        max_branches: most draft tokens of one sequence that a step reads; 1 for chains.
    """

    name = NAME
    reads_tokens = True

    def __init__(
        self,
        layer: Eagle3Layer,
        *,
        feature_layers: tuple[int, ...],
        target_ids: Int32 | None,
        max_len: int,
        max_branches: int = 1,
    ) -> None:
        self.feature_layers, self.target_ids, self.num_columns = feature_layers, target_ids, layer.num_columns
        self.max_branches = max_branches
        self.max_draft_tokens = MAX_DRAFT_TOKENS if max_branches == 1 else MAX_LEVELS
        self._layer, self._max_len = layer, max_len
        self._blocks = HeadBlocks(layer.num_blocks, BLOCK_SIZE, max_branches)

    @property
    def num_free_blocks(self) -> int:
        """KV blocks that no sequence holds."""
        return self._blocks.num_free

    def open(self) -> Eagle3State:
        """The state of a new sequence; it takes memory when rows come."""
        return Eagle3State()

    def close(self, state: Eagle3State) -> None:
        """Free a sequence's blocks."""
        self._blocks.release(state.rows)
        state.hidden = None

    def reserve(self, state: Eagle3State, num_rows: int, end_position: int) -> None:
        """Take blocks for so many rows behind what is kept.

        Raises:
            DraftCapacityError: too few are free.
            DraftLengthError: `end_position` is beyond the limit, or the sequence needs more blocks than there are.
        """
        if end_position > self._max_len:
            raise DraftLengthError(f"{end_position} positions, the head's limit is {self._max_len}")
        self._blocks.reserve(state.rows, num_rows)

    def begin(self, rows: Seq[HeadRows]) -> FloatArray:
        """Read new rows of sequences, in several passes where they are many."""
        for each in rows:
            each.state.tails = None
        logits_BC = np.empty((len(rows), self.num_columns), np.float32)
        for spans in _passes(rows):
            batch, rotary = _pack(spans)
            features_TF = torch.cat([span.features for span in spans if span.features is not None])
            logits_NC, hidden_NH = self._layer.run(batch, rotary, features_TF=features_TF, hidden_TH=None)
            ended = [span for span in spans if span.is_last]
            for n, span in enumerate(ended):
                logits_BC[span.index] = logits_NC[n]
                span.state.hidden = hidden_NH[n : n + 1]
            for span in spans:
                span.state.rows.num_rows += span.num_rows
        for each in rows:
            each.state.next_position = each.first_position + len(each.token_ids)
        return logits_BC

    def step(self, states: Seq[Eagle3State], token_ids: Seq[int], parents: Seq[int] | None = None) -> FloatArray:
        """Read draft tokens of sequences, several of one where its draft is a tree."""
        level = by_sequence(states, parents)
        hidden_NH = torch.cat([self._grow(state, followed) for state, followed in level])
        leaves = [(state, leaf) for state, followed in level for leaf in range(len(followed))]
        spans = [_leaf_span(*each, token_id) for each, token_id in zip(leaves, token_ids, strict=True)]
        batch, rotary = _pack(spans)
        logits_NC, hidden_NH = self._layer.run(batch, rotary, features_TF=None, hidden_TH=hidden_NH)
        hidden = hidden_NH.split([len(followed) for _, followed in level])
        for (state, _), hidden_LH in zip(level, hidden, strict=True):
            state.hidden = hidden_LH
            state.next_position += 1
        return logits_NC

    def _grow(self, state: Eagle3State, parents: Seq[int]) -> Tensor:
        """Make room for a sequence's next draft tokens; returns what left the layer at those before them, [L, H]."""
        assert state.hidden is not None, "a sequence steps before it began"
        if state.tails is None:
            state.tails = DraftTails(state.rows, BLOCK_SIZE)
        if copies := state.tails.grow(parents):
            self._layer.copy_blocks(*zip(*copies, strict=True))
        return state.hidden[list(parents)]

    def shutdown(self) -> None:
        """Release weights and memory."""
        self._layer.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Span:
    """Rows of one sequence, on one path, in one pass."""

    state: Eagle3State
    blocks: Seq[int]
    entry: int
    position: int
    token_ids: Seq[int]
    features: Tensor | None = None
    index: int = 0
    is_last: bool = True

    @property
    def num_rows(self) -> int:
        return len(self.token_ids)


def _leaf_span(state: Eagle3State, leaf: int, token_id: int) -> _Span:
    """The row of a draft token, whose place in the KV is made."""
    assert state.tails is not None
    return _Span(
        state=state,
        blocks=state.tails.blocks(leaf),
        entry=state.tails.num_rows - 1,
        position=state.next_position,
        token_ids=(token_id,),
    )


def _passes(rows: Seq[HeadRows]) -> Iterator[list[_Span]]:
    """Cut the rows of all sequences into passes of at most MAX_ROWS."""
    spans: list[_Span] = []
    num_left = MAX_ROWS
    for index, each in enumerate(rows):
        start, count = 0, len(each.token_ids)
        while start < count:
            end = min(count, start + num_left)
            spans.append(
                _Span(
                    state=each.state,
                    index=index,
                    blocks=each.state.rows.blocks,
                    entry=each.state.rows.num_rows,  # earlier passes have been counted when this is reached
                    position=each.first_position + start,
                    token_ids=each.token_ids[start:end],
                    features=each.features_nF[start:end],
                    is_last=end == count,
                )
            )
            num_left -= end - start
            start = end
            if num_left == 0:
                yield spans
                spans, num_left = [], MAX_ROWS
    if spans:
        yield spans


def _pack(spans: Seq[_Span]) -> tuple[ModelInput, Int32]:
    """The pass's rows, and the positions that they are rotated by."""
    counts = np.array([span.num_rows for span in spans])
    ends = np.cumsum(counts)
    within_T = np.arange(ends[-1]) - np.repeat(ends - counts, counts)
    sequences_T = np.repeat(np.arange(len(spans), dtype=np.int32), counts)
    entries_T = within_T + np.repeat([span.entry for span in spans], counts)
    tables = np.zeros((len(spans), max(len(span.blocks) for span in spans)), np.int32)
    for table, span in zip(tables, spans, strict=True):
        table[: len(span.blocks)] = span.blocks
    slots_T = tables[sequences_T, entries_T // BLOCK_SIZE] * BLOCK_SIZE + entries_T % BLOCK_SIZE
    batch = ModelInput(
        token_ids=np.array([token_id for span in spans for token_id in span.token_ids], np.int32),
        positions=entries_T.astype(np.int32),
        slot_mapping=slots_T.astype(np.int32),
        row_sequences=sequences_T,
        block_tables=tables,
        logit_rows=np.array([end - 1 for span, end in zip(spans, ends, strict=True) if span.is_last], np.int32),
    )
    rotary_T = within_T + np.repeat([span.position for span in spans], counts)
    return batch, rotary_T.astype(np.int32)
