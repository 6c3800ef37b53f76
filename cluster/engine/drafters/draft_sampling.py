"""Ranks what a draft model may draw next: argmax of processed logit plus the noise that the target will use.

DESIGN section 5: target and drafter add the same Gumbel noise of the real token id at the output index, so equal
distributions draw equal tokens at any temperature. Greedy rows and rows with a temperature only, nearly all of them,
go through one compiled pass for the whole batch; the others through the target's own processors first.

The head of a draft model may know a part of the vocabulary. Everything here runs in its columns, which are in the
order of token ids: so the lowest column among equals is the lowest id. Ids outside the head become numbers that are no
columns, each its own, which the processors ignore.

Legend: N rows, C columns of the head, M noise vectors, F candidates.
"""

from collections import OrderedDict
from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from cluster.engine import sampler_kernels
from cluster.engine.drafters.draft_kernels import NO_COLUMN, rank_rows
from cluster.engine.drafters.own_draws import OwnDraws
from cluster.engine.logits_processors import GREEDY_TEMPERATURE, Cut, LogitsProcessors, SamplingRow, Truncation
from cluster.engine.noise import FloatArray, IntArray, fill_gumbel
from cluster.types import SamplingParams

Int32 = npt.NDArray[np.int32]

_Ranked = tuple[list[int], list[float]]
"""Token ids of a row, and chances where they were asked for."""

_NOISE_BYTES = 16 << 20
_MIN_NOISE_VECTORS, _MAX_NOISE_VECTORS = 32, 512


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DrawSettings:
    """How the rows of one sequence are drawn, worked out once.

    Attributes:
        params: the sequence's settings, token ids replaced by columns.
        prompt_columns: the prompt, for the repetition penalty; else empty.
        temperature: 0 when greedy.
        is_plain: nothing but temperature and, at first, `min_tokens`.
        needs_history: the output before a row matters.
        stop_ids: token ids that end the text.
    """

    params: SamplingParams
    prompt_columns: tuple[int, ...]
    temperature: float
    is_plain: bool
    needs_history: bool
    stop_ids: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawRow:
    """What is wanted from one row of logits.

    Attributes:
        settings: of its sequence.
        output_index: index of the token, counted from the first generated one.
        num_candidates: tokens wanted, best first, >= 1.
        excluded_token_id: a token that must not be among them, or None.
        output_token_ids: output before this token; read only where `settings.needs_history`.
        own: draws with this noise instead of the target's, and takes what the token is drawn from.
    """

    settings: DrawSettings
    output_index: int
    num_candidates: int = 1
    excluded_token_id: int | None = None
    output_token_ids: Seq[int] = ()
    own: OwnDraws | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """The best candidates of a row.

    Attributes:
        token_ids: best first.
        chances: of each, to be the token that the target draws, as far as the draft model knows, 0..1. Empty where the
            row draws with its own noise: nothing may be chosen by what was drawn there.
    """

    token_ids: tuple[int, ...] = ()
    chances: tuple[float, ...] = ()


class DraftSampler:
    """Ranks candidates for rows of a draft model's logits. Not thread safe.

    Construction compiles the kernels, or loads them from numba's cache.

    Args:
        num_columns: C; further columns of the logits (padding) are ignored.
        target_ids: token id of each column, strictly rising; None when column i is token i.
        eos_token_ids: masked before `min_tokens` unless a choice ignores EOS.
    """

    def __init__(self, num_columns: int, target_ids: Int32 | None, eos_token_ids: frozenset[int]) -> None:
        ids_C = np.arange(num_columns, dtype=np.int64) if target_ids is None else target_ids.astype(np.int64)
        assert len(ids_C) == num_columns, "target_ids must name every column"
        assert num_columns == 1 or np.diff(ids_C).min() > 0, "target_ids must rise, or ties go to the wrong token"
        self._ids_C, self._target_ids, self._num_columns = ids_C, target_ids, num_columns
        self._eos_token_ids = eos_token_ids
        self._column_of = num_columns + np.arange(int(ids_C[-1]) + 1)
        self._column_of[ids_C] = np.arange(num_columns)
        self._processors = LogitsProcessors(num_columns, frozenset(self._columns(tuple(eos_token_ids))))
        self._truncation = Truncation(num_columns)
        self._noise = _NoiseCache(ids_C)
        self._work_C = np.empty(num_columns, np.float32)
        self._warm_up()

    def settings(self, params: SamplingParams, prompt_token_ids: Seq[int]) -> DrawSettings:
        """Work out how a sequence's rows are drawn."""
        penalised = params.presence_penalty != 0.0 or params.frequency_penalty != 0.0
        repeats = params.repetition_penalty != 1.0
        names_tokens = bool(params.logit_bias or params.allowed_token_ids or params.bad_words)
        truncates = params.top_k > 0 or params.top_p < 1.0 or params.min_p > 0.0
        greedy = params.temperature < GREEDY_TEMPERATURE
        return DrawSettings(
            params=self._in_columns(params),
            prompt_columns=tuple(self._columns(prompt_token_ids)) if repeats else (),
            temperature=0.0 if greedy else params.temperature,
            is_plain=not (penalised or repeats or names_tokens or (truncates and not greedy)),
            needs_history=penalised or repeats or bool(params.bad_words),
            stop_ids=frozenset(params.stop_token_ids) | (frozenset() if params.ignore_eos else self._eos_token_ids),
        )

    def draw(self, logits_NC: FloatArray, rows: Seq[DrawRow]) -> list[list[int]]:
        """Candidates of each row, best first.

        Args:
            logits_NC: raw float32 logits, C or more columns; not changed.
            rows: N settings.

        Returns:
            Token ids, for each row as many as wanted; fewer when fewer can be drawn at all, none when the logits define
            no distribution.
        """
        return [token_ids for token_ids, _ in self._draw(logits_NC, rows, has_chances=False)]

    def draw_with_chances(self, logits_NC: FloatArray, rows: Seq[DrawRow]) -> list[Candidates]:
        """`draw`, with the chance of each candidate to be the target's own draw.

        The target draws the largest of logit / T + g; the draft model knows g and its own logits. If the target's
        logits are those plus independent Gumbel noise of scale 1, column v is drawn with chance
        softmax_v(logit + T * g): of values plus such noise each is the largest with its softmax. At temperature 0 that
        is the draft model's own distribution. How far the two really are apart, the acceptance model learns from
        verdicts.
        """
        drawn = self._draw(logits_NC, rows, has_chances=True)
        return [Candidates(token_ids=tuple(token_ids), chances=tuple(chances)) for token_ids, chances in drawn]

    def _draw(self, logits_NC: FloatArray, rows: Seq[DrawRow], *, has_chances: bool) -> list[_Ranked]:
        logits_NC = np.ascontiguousarray(logits_NC[:, : self._num_columns])
        temperatures = [row.settings.temperature for row in rows]
        slow = [n for n, row in enumerate(rows) if _is_slow(row)]
        if slow:
            logits_NC = logits_NC.copy()
            for n in slow:
                temperatures[n] = self._process(logits_NC[n], rows[n])
        drawn: list[_Ranked] = []
        for start in range(0, len(rows), self._noise.capacity):
            part = slice(start, start + self._noise.capacity)
            temperatures_N = np.array(temperatures[part], np.float32)
            drawn += self._rank(logits_NC[part], temperatures_N, rows[part], has_chances=has_chances)
        return drawn

    def _rank(
        self, logits_NC: FloatArray, temperatures_N: FloatArray, rows: Seq[DrawRow], *, has_chances: bool
    ) -> list[_Ranked]:
        slots = [
            self._noise.slot(row) if temperature else 0 for row, temperature in zip(rows, temperatures_N, strict=True)
        ]
        excluded = [self._column(row.excluded_token_id) for row in rows]
        counts = [row.num_candidates for row in rows]
        columns_NF = np.full((len(rows), max(counts)), NO_COLUMN, np.int64)
        sharpness = [
            0.0 if row.own is not None else row.settings.temperature if temperature else 1.0
            for row, temperature in zip(rows, temperatures_N, strict=True)
        ]
        shares_NF = np.zeros(columns_NF.shape if has_chances else (0, 0), np.float32)
        rank_rows(
            logits_NC,
            temperatures_N,
            (self._noise.vectors_MC, np.array(slots, np.int64)),
            np.array(excluded, np.int64),
            np.array(counts, np.int64),
            self._work_C,
            columns_NF,
            (np.array(sharpness, np.float32), shares_NF),
        )
        ids_NF = np.where(columns_NF < 0, NO_COLUMN, self._ids_C[columns_NF]).tolist()
        found = [[token_id for token_id in ids if token_id >= 0] for ids in ids_NF]
        for logits_C, row, ids in zip(logits_NC, rows, found, strict=True):
            if row.own is not None and ids:
                row.own.take(self._distribution(logits_C), self._target_ids)
        shares = shares_NF.tolist() if has_chances else [[]] * len(rows)
        shares = [chances if row.own is None else [] for row, chances in zip(rows, shares, strict=True)]
        return [(ids, chances[: len(ids)]) for ids, chances in zip(found, shares, strict=True)]

    def _distribution(self, processed_C: FloatArray) -> FloatArray:
        """What a row that `_process` has scaled is drawn from."""
        cut, q_C = Cut(), np.empty(self._num_columns)
        sampler_kernels.probabilities(processed_C, np.float32(cut.logit), cut.token_id, q_C)
        return q_C.astype(np.float32)

    def _process(self, logits_C: FloatArray, row: DrawRow) -> float:
        """Apply every setting to a row in place; returns the temperature that is left to divide by."""
        settings = row.settings
        sampling_row = SamplingRow(
            params=settings.params,
            output_index=row.output_index,
            prompt_token_ids=settings.prompt_columns,
            output_token_ids=self._columns(row.output_token_ids) if settings.needs_history else (),
        )
        logits_C += np.float32(0.0)  # -0.0 becomes 0.0
        raw_C = logits_C.copy()
        if self._processors.applies_to(sampling_row):
            self._processors.apply(logits_C, sampling_row)
        top, _, valid = sampler_kernels.scan(logits_C)
        if not valid or top == -np.inf:
            logits_C.fill(-np.inf)
            if valid:
                logits_C[self._processors.fallback(raw_C, sampling_row)] = 0.0
            return 0.0
        if settings.temperature == 0.0:
            return 0.0
        sampler_kernels.shift_and_scale(logits_C, top, np.float32(settings.temperature), logits_C)
        cut = self._truncation.find_cut(logits_C, settings.params)
        dropped_C = logits_C < np.float32(cut.logit)
        dropped_C[cut.token_id + 1 :] |= logits_C[cut.token_id + 1 :] == np.float32(cut.logit)
        logits_C[dropped_C] = -np.inf
        return 1.0

    def _warm_up(self) -> None:
        params = SamplingParams(max_tokens=1, seed=0, temperature=0.5)
        for each in (params, replace(params, top_k=1)):
            row = DrawRow(settings=self.settings(each, ()), output_index=0)
            self.draw(np.zeros((1, self._num_columns), np.float32), [row])

    def _column(self, token_id: int | None) -> int:
        if token_id is None or not 0 <= token_id < len(self._column_of):
            return NO_COLUMN
        column = int(self._column_of[token_id])
        return column if column < self._num_columns else NO_COLUMN

    def _columns(self, token_ids: Seq[int]) -> list[int]:
        ids = np.asarray(token_ids, np.int64)
        known = (ids >= 0) & (ids < len(self._column_of))
        unknown = np.where(ids < 0, ids, self._num_columns + ids)
        columns: list[int] = np.where(known, self._column_of[ids * known], unknown).tolist()
        return columns

    def _in_columns(self, params: SamplingParams) -> SamplingParams:
        bias_ids = self._columns([token_id for token_id, _ in params.logit_bias])
        return replace(
            params,
            logit_bias=tuple(zip(bias_ids, (bias for _, bias in params.logit_bias), strict=True)),
            allowed_token_ids=tuple(self._columns(params.allowed_token_ids)),
            bad_words=tuple(tuple(self._columns(word)) for word in params.bad_words),
            stop_token_ids=tuple(self._columns(params.stop_token_ids)),
        )


class _NoiseCache:
    """Noise over the head's tokens by (seed, output index): sibling branches and later rounds ask for the same ones.

    Args:
        ids_C: token id of each column.
    """

    def __init__(self, ids_C: IntArray) -> None:
        num_vectors = _NOISE_BYTES // (4 * len(ids_C))
        self.capacity = min(max(num_vectors, _MIN_NOISE_VECTORS), _MAX_NOISE_VECTORS)
        self.vectors_MC = np.empty((self.capacity, len(ids_C)), np.float32)
        self._ids_C = ids_C
        self._slots: OrderedDict[tuple[int, int], int] = OrderedDict()

    def slot(self, row: DrawRow) -> int:
        """Where the row's noise is; it stays there for the next `capacity` - 1 calls."""
        key = (row.settings.params.seed if row.own is None else row.own.seed, row.output_index)
        slot = self._slots.get(key)
        if slot is not None:
            self._slots.move_to_end(key)
            return slot
        slot = len(self._slots) if len(self._slots) < self.capacity else self._slots.popitem(last=False)[1]
        self._slots[key] = slot
        fill_gumbel(self.vectors_MC[slot], self._ids_C, *key)
        return slot


def _is_slow(row: DrawRow) -> bool:
    return row.own is not None or not row.settings.is_plain or row.output_index < row.settings.params.min_tokens
