"""Multi-token prediction: the next-n module that models of DeepSeek-V3's kind bring in their own checkpoint.

The row at position p joins the target's hidden state there with the embedding of token p + 1 and says token p + 2.
Beyond that the module runs on its own output: `step` joins the embedding of the draft token with the hidden state of
the row before. A checkpoint with several modules has its first one used for every draft token.

Which hidden states: the target's behind its final norm, and the module's own behind `shared_head.norm`. So it is in
transformers (`modeling_layers.MtpLayer`, which reads `hidden_states[-1]` and returns `post_norm`) and in SGLang
(`deepseek_nextn.py`). vLLM's `deepseek_mtp.py` reads the first alike, but for years handed on the second without norm;
its pull request 47448 and ROCm/ATOM 1764 say what that costs: acceptance from the second draft token on.

Attention runs over KV blocks of the head's own, with the code that the target's attention runs on.

Legend: B sequences, T rows of a pass, N rows with logits, F = H hidden size, V vocabulary.
"""

from collections.abc import Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from cluster.engine.attention import PagedAttention, register
from cluster.engine.drafters.head import HeadRows, HeadTarget, Int32
from cluster.engine.drafters.head_blocks import HeadBlocks, KVRows
from cluster.engine.drafters.mtp_source import MtpModule, load_mtp
from cluster.engine.drafters.target_parts import cpu_threads
from cluster.engine.kv_cache import PagedKVCache
from cluster.engine.model_input import ModelInput
from cluster.engine.noise import FloatArray
from cluster.engine.paged_support import find_layers

MAX_DRAFT_TOKENS = 16
BLOCK_SIZE = 32
MAX_ROWS = 512
"""Most rows of a pass: a longer prompt is read in several."""


class MtpState:
    """What is kept of one sequence.

    Attributes:
        rows: its KV.
        num_drafted: rows that `step` wrote behind those that are kept.
        next_position: of the row that comes next.
        hidden_H: the module's own hidden state of the last row.
    """

    __slots__ = ("hidden_H", "next_position", "num_drafted", "rows")

    def __init__(self) -> None:
        self.rows = KVRows()
        self.num_drafted, self.next_position = 0, 0
        self.hidden_H: Tensor | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """New rows of one sequence in a pass: where their KV goes, their positions, what they read.

    `place` is the sequence's in the batch, and `hidden` [n, H]: hidden states behind a final norm.
    """

    state: MtpState
    place: int
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

    def __init__(self, module: MtpModule, target: HeadTarget) -> None:
        register()
        layers = find_layers(module.model)
        self.feature_layers: tuple[int, ...] = (target.config.num_hidden_layers,)
        self.num_columns = layers.vocab_size
        self._module: MtpModule | None = module
        self._layers, self._device, self._dtype = layers.index, torch.device(target.device), target.dtype
        self._num_threads = target.num_threads
        most_rows = target.max_sequences * (target.max_model_len + MAX_DRAFT_TOKENS + BLOCK_SIZE)
        num_blocks = max(1, min(target.kv_cache_tokens, most_rows) // BLOCK_SIZE)
        self._blocks = HeadBlocks(num_blocks, BLOCK_SIZE)
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
        state.hidden_H = None

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
        with cpu_threads(self._num_threads):
            return self._read([self._new_rows(place, row) for place, row in enumerate(rows)])

    @torch.inference_mode()
    def step(self, states: Seq[MtpState], token_ids: Seq[int]) -> FloatArray:
        """Read a draft token of each sequence; returns float32 [B, V], the logits of the one after it."""
        with cpu_threads(self._num_threads):
            pairs = zip(states, token_ids, strict=True)
            return self._read(
                [self._draft_row(place, state, token_id) for place, (state, token_id) in enumerate(pairs)]
            )

    def shutdown(self) -> None:
        """Release weights and KV."""
        self._module = None
        del self._cache

    def _new_rows(self, place: int, row: HeadRows) -> _Part:
        """Committed rows, over those that `step` wrote."""
        state: MtpState = row.state
        num_rows = len(row.token_ids)
        part = _Part(
            state=state,
            place=place,
            first_row=state.rows.num_rows,
            positions=range(row.first_position, row.first_position + num_rows),
            token_ids=row.token_ids,
            hidden=self._normed(row.features_nF),
        )
        state.rows.num_rows += num_rows
        state.num_drafted, state.next_position = 0, row.first_position + num_rows
        return part

    def _draft_row(self, place: int, state: MtpState, token_id: int) -> _Part:
        assert state.hidden_H is not None, "a sequence steps before it began"
        part = _Part(
            state=state,
            place=place,
            first_row=state.rows.num_rows + state.num_drafted,
            positions=(state.next_position,),
            token_ids=(token_id,),
            hidden=state.hidden_H[None],
        )
        state.num_drafted += 1
        state.next_position += 1
        return part

    def _normed(self, features_nF: Tensor) -> Tensor:
        """The target's hidden states behind its final norm; the norm runs in float32."""
        hidden_nH: Tensor = self._loaded.target_norm(features_nF.to(self._device, torch.float32))
        return hidden_nH.to(self._dtype)

    def _read(self, parts: Seq[_Part]) -> FloatArray:
        """Run one part of each sequence, in as many passes as it takes; logits of their last rows."""
        logits_BV = np.empty((len(parts), self.num_columns), np.float32)
        for pieces in _passes(parts):  # What a sequence's last piece gives is what stays.
            logits_BV[[piece.place for piece in pieces]] = self._pass(pieces)
        return logits_BV

    def _pass(self, parts: Seq[_Part]) -> FloatArray:
        """Run rows of several sequences at once; logits of each one's last row, whose hidden state it keeps."""
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
        for part, hidden_H in zip(parts, last_BH, strict=True):
            part.state.hidden_H = hidden_H
        logits_BV = functional.linear(last_BH, module.model.get_output_embeddings().weight)
        logits: FloatArray = logits_BV.float().cpu().numpy()
        return logits

    def _batch(self, parts: Seq[_Part]) -> ModelInput:
        """The rows for attention, for which a row's place in the KV is its position."""
        places = [range(part.first_row, part.first_row + len(part.token_ids)) for part in parts]
        widest = max(len(part.state.rows.blocks) for part in parts)
        tables = np.zeros((len(parts), widest), np.int32)
        for table, part in zip(tables, parts, strict=True):
            table[: len(part.state.rows.blocks)] = part.state.rows.blocks
        counts = [len(part.token_ids) for part in parts]
        return ModelInput(
            token_ids=np.array([token_id for part in parts for token_id in part.token_ids], np.int32),
            positions=np.array([place for span in places for place in span], np.int32),
            slot_mapping=np.array(
                [
                    self._blocks.slot(part.state.rows, place)
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
