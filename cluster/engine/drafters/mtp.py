"""Multi-token prediction: the next-n module that models of DeepSeek-V3's kind bring in their own checkpoint.

The row at position p joins the target's hidden state there with the embedding of token p + 1 and says token p + 2.
Beyond that the module runs on its own output: `step` joins the embedding of the draft token with the hidden state of
the row before. A checkpoint with several modules has its first one used for every draft token.

Which hidden states: the target's behind its final norm, and the module's own behind `shared_head.norm`. So it is in
transformers (`modeling_layers.MtpLayer`, which reads `hidden_states[-1]` and returns `post_norm`) and in SGLang
(`deepseek_nextn.py`). vLLM's `deepseek_mtp.py` reads the first alike, but for years handed on the second without norm;
its pull request 47448 and ROCm/ATOM 1764 say what that costs: acceptance from the second draft token on.

Attention runs over KV blocks of the head's own, with the code that the target's attention runs on. Draft tokens of a
tree are read level by level; each path has rows of its own.

Legend: B sequences or leaves of their drafts, L leaves of one, T rows of a pass, F = H hidden size, V vocabulary.
"""

from collections.abc import Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from cluster.engine.attention import PagedAttention, register
from cluster.engine.drafters.head import HeadRows, HeadTarget, Int32, by_sequence
from cluster.engine.drafters.head_blocks import TAIL_BLOCKS, DraftTails, HeadBlocks, KVRows
from cluster.engine.drafters.mtp_source import MtpModule, load_mtp
from cluster.engine.drafters.target_parts import cpu_threads
from cluster.engine.kv_cache import PagedKVCache
from cluster.engine.model_input import ModelInput
from cluster.engine.noise import FloatArray
from cluster.engine.paged_support import find_layers
from cluster.engine.sequence_blocks import slot_of

MAX_DRAFT_TOKENS = 16
BLOCK_SIZE = 32
MAX_ROWS = 512
"""Most rows of a pass: a longer prompt is read in several."""


class MtpState:
    """What is kept of one sequence.

    Attributes:
        rows: its KV, that of draft tokens not counted.
        tails: where the newest draft tokens' paths lie; None before the first of them was read.
        next_position: of the rows that come next.
        hidden_LH: the module's own hidden states of the last row, or of the newest draft tokens.
    """

    __slots__ = ("hidden_LH", "next_position", "rows", "tails")

    def __init__(self) -> None:
        self.rows = KVRows()
        self.tails: DraftTails | None = None
        self.next_position = 0
        self.hidden_LH: Tensor | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """New rows of one path in a pass: where their KV goes, their positions, what they read.

    `place` is where its logits stand in the answer, and `hidden` [n, H]: hidden states behind a final norm.
    """

    place: int
    blocks: Seq[int]
    first_row: int
    positions: Seq[int]
    token_ids: Seq[int]
    hidden: Tensor

    def cut(self, start: int, end: int) -> "_Part":
        """Some of its rows."""
        return replace(
            self,
            first_row=self.first_row + start,
            positions=self.positions[start:end],
            token_ids=self.token_ids[start:end],
            hidden=self.hidden[start:end],
        )


class MtpHead:
    """The module of one target; see `Head` for the contract.

    Args:
        module: from `load_mtp`.
        target: of the module.

    Raises:
        LoadError: the module cannot run on paged attention.
    """

    name = "mtp"
    target_ids: Int32 | None = None
    max_draft_tokens = MAX_DRAFT_TOKENS
    reads_tokens = True

    def __init__(self, module: MtpModule, target: HeadTarget) -> None:
        register()
        layers = find_layers(module.model)
        self.feature_layers: tuple[int, ...] = (target.config.num_hidden_layers,)
        self.num_columns = layers.vocab_size
        self._module: MtpModule | None = module
        self._layers, self._device, self._dtype = layers.index, torch.device(target.device), target.dtype
        self._num_threads, self.max_branches = target.num_threads, target.max_branches
        num_spare_rows = (target.max_branches - 1) * TAIL_BLOCKS * BLOCK_SIZE
        most_rows = target.max_sequences * (target.max_model_len + MAX_DRAFT_TOKENS + BLOCK_SIZE + num_spare_rows)
        num_blocks = max(1, min(target.kv_cache_tokens, most_rows) // BLOCK_SIZE)
        self._blocks = HeadBlocks(num_blocks, BLOCK_SIZE, target.max_branches)
        self._cache = PagedKVCache(
            num_blocks=num_blocks, block_size=BLOCK_SIZE, layers=layers.kv_layers, device=target.device
        )

    @property
    def kv_cache_bytes(self) -> int:
        """Memory of the head's KV."""
        return self._cache.num_bytes

    def open(self) -> MtpState:
        """The state of a new sequence; memory is taken by `reserve`."""
        return MtpState()

    def close(self, state: MtpState) -> None:
        """Free a sequence's KV."""
        self._blocks.release(state.rows)
        state.hidden_LH = None

    def reserve(self, state: MtpState, num_rows: int, end_position: int) -> None:
        """Make room for the rows of the next `begin` and of the steps after it.

        Raises:
            DraftCapacityError: too few KV blocks are free.
            DraftLengthError: the sequence needs more KV than there is.
        """
        self._blocks.reserve(state.rows, num_rows)

    @torch.inference_mode()
    def begin(self, rows: Seq[HeadRows]) -> FloatArray:
        """Read the new rows of sequences; returns float32 [B, V], the logits of each one's first draft token."""
        states: list[MtpState] = [row.state for row in rows]
        with cpu_threads(self._num_threads):
            logits_BV, hidden_BH = self._read([self._new_rows(place, row) for place, row in enumerate(rows)])
        for state, hidden_LH in zip(states, hidden_BH.split(1), strict=True):
            state.hidden_LH = hidden_LH
        return logits_BV

    @torch.inference_mode()
    def step(self, states: Seq[MtpState], token_ids: Seq[int], parents: Seq[int] | None = None) -> FloatArray:
        """Read draft tokens, several of a sequence where its draft is a tree; float32 [B, V], logits behind each."""
        level = by_sequence(states, parents)
        with cpu_threads(self._num_threads):
            leaves = [leaf for state, followed in level for leaf in self._grow(state, followed)]
            parts = [
                replace(leaf, place=place, token_ids=(token_id,))
                for place, (leaf, token_id) in enumerate(zip(leaves, token_ids, strict=True))
            ]
            logits_BV, hidden_BH = self._read(parts)
        hidden = hidden_BH.split([len(followed) for _, followed in level])
        for (state, _), hidden_LH in zip(level, hidden, strict=True):
            state.hidden_LH = hidden_LH
            state.next_position += 1
        return logits_BV

    def shutdown(self) -> None:
        """Release weights and KV."""
        self._module = None
        del self._cache

    def _new_rows(self, place: int, row: HeadRows) -> _Part:
        """Committed rows, over those that `step` wrote."""
        state: MtpState = row.state
        num_rows = len(row.token_ids)
        part = _Part(
            place=place,
            blocks=state.rows.blocks,
            first_row=state.rows.num_rows,
            positions=range(row.first_position, row.first_position + num_rows),
            token_ids=row.token_ids,
            hidden=self._normed(row.features_nF),
        )
        state.rows.num_rows += num_rows
        state.tails, state.next_position = None, row.first_position + num_rows
        return part

    def _grow(self, state: MtpState, parents: Seq[int]) -> list[_Part]:
        """Make room for a sequence's next draft tokens; the parts lack their tokens."""
        assert state.hidden_LH is not None, "a sequence steps before it began"
        tails = state.tails = state.tails or DraftTails(state.rows, BLOCK_SIZE)
        if copies := tails.grow(parents):
            self._cache.copy_blocks(*zip(*copies, strict=True))
        return [
            _Part(
                place=leaf,
                blocks=tails.blocks(leaf),
                first_row=tails.num_rows - 1,
                positions=(state.next_position,),
                token_ids=(),
                hidden=state.hidden_LH[parent : parent + 1],
            )
            for leaf, parent in enumerate(parents)
        ]

    def _normed(self, features_nF: Tensor) -> Tensor:
        """The target's hidden states behind its final norm; the norm runs in float32."""
        hidden_nH: Tensor = self._loaded.target_norm(features_nF.to(self._device, torch.float32))
        return hidden_nH.to(self._dtype)

    def _read(self, parts: Seq[_Part]) -> tuple[FloatArray, Tensor]:
        """Run the parts, in as many passes as it takes; logits and own hidden states of each one's last row."""
        logits_BV = np.empty((len(parts), self.num_columns), np.float32)
        hidden: list[Tensor] = [torch.empty(0)] * len(parts)
        for pieces in _passes(parts):  # What a part's last piece gives is what stays.
            logits_BV[[piece.place for piece in pieces]], hidden_BH = self._pass(pieces)
            for piece, hidden_H in zip(pieces, hidden_BH, strict=True):
                hidden[piece.place] = hidden_H
        return logits_BV, torch.stack(hidden)

    def _pass(self, parts: Seq[_Part]) -> tuple[FloatArray, Tensor]:
        """Run rows of several parts at once; logits and hidden states of each one's last row."""
        module = self._loaded
        batch = self._batch(parts)
        token_ids_T = torch.as_tensor(batch.token_ids, dtype=torch.int64, device=self._device)
        embedded_TH = module.model.get_input_embeddings()(token_ids_T)
        hidden_TH = module.hnorm(torch.cat([part.hidden for part in parts]))
        inputs_TH = module.eh_proj(torch.cat([module.enorm(embedded_TH), hidden_TH], dim=1))
        positions_T = torch.tensor([p for part in parts for p in part.positions], device=self._device)
        output = module.model.get_decoder()(
            inputs_embeds=inputs_TH[None],
            position_ids=positions_T[None],
            use_cache=False,
            paged=PagedAttention(cache=self._cache, layers=self._layers, batch=batch, device=self._device),
        )
        last_BH = output.last_hidden_state[0, torch.as_tensor(batch.logit_rows, device=self._device).long()]
        logits_BV = functional.linear(last_BH, module.model.get_output_embeddings().weight)
        return logits_BV.float().cpu().numpy(), last_BH

    def _batch(self, parts: Seq[_Part]) -> ModelInput:
        """The rows for attention, for which a row's place in the KV is its position."""
        places = [range(part.first_row, part.first_row + len(part.token_ids)) for part in parts]
        widest = max(len(part.blocks) for part in parts)
        tables = np.zeros((len(parts), widest), np.int32)
        for table, part in zip(tables, parts, strict=True):
            table[: len(part.blocks)] = part.blocks
        counts = [len(part.token_ids) for part in parts]
        return ModelInput(
            token_ids=np.array([token_id for part in parts for token_id in part.token_ids], np.int32),
            positions=np.array([place for span in places for place in span], np.int32),
            slot_mapping=np.array(
                [
                    slot_of(part.blocks, place, BLOCK_SIZE)
                    for part, span in zip(parts, places, strict=True)
                    for place in span
                ],
                np.int32,
            ),
            row_sequences=np.repeat(np.arange(len(parts), dtype=np.int32), counts),
            block_tables=tables,
            logit_rows=np.cumsum(counts, dtype=np.int32) - 1,
        )

    @property
    def _loaded(self) -> MtpModule:
        assert self._module is not None, "the head was shut down"
        return self._module


def _passes(parts: Seq[_Part]) -> Iterator[list[_Part]]:
    """Cut parts so that no pass has more than MAX_ROWS rows."""
    pieces: list[_Part] = []
    num_left = MAX_ROWS
    for part in parts:
        start = 0
        while start < len(part.token_ids):
            end = min(start + num_left, len(part.token_ids))
            pieces.append(part.cut(start, end))
            num_left -= end - start
            start = end
            if not num_left:
                yield pieces
                pieces, num_left = [], MAX_ROWS
    if pieces:
        yield pieces


def build_mtp(target: HeadTarget) -> MtpHead:
    """Load the next-n module out of the target's checkpoint.

    Raises:
        LoadError: the target has none, or it cannot run on paged attention.
    """
    return MtpHead(load_mtp(target), target)
