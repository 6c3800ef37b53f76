"""Rows of one pass of a draft model: spans of tokens from many sequences and branches, packed for the runner."""

from collections.abc import Sequence as Seq
from dataclasses import dataclass

import numpy as np

from cluster.engine.drafters.draft_sampling import DrawRow
from cluster.engine.model_input import ModelInput


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Consecutive rows of one sequence or branch.

    Attributes:
        token_ids: of the rows, at least one.
        start: position of the first row.
        block_table: KV blocks in order, enough for all rows.
        draws: what is drawn, by row: (index of the row in the span, what), rising.
    """

    token_ids: Seq[int]
    start: int
    block_table: Seq[int]
    draws: Seq[tuple[int, DrawRow]] = ()


def pack(spans: Seq[Span], *, block_size: int, vocab_size: int) -> ModelInput:
    """One batch of all spans; its logit rows are the draws of the first span, then of the second, ...

    Args:
        spans: at least one.
        block_size: tokens per KV block.
        vocab_size: ids known to the embedding. Ids come from other processes: unknown ones are read as 0, which can
            only cost acceptance.
    """
    num_rows = np.array([len(span.token_ids) for span in spans])
    first_rows = np.cumsum(num_rows) - num_rows
    row_sequences = np.repeat(np.arange(len(spans), dtype=np.int32), num_rows)
    starts = np.array([span.start for span in spans])
    positions = np.arange(len(row_sequences)) - np.repeat(first_rows - starts, num_rows)
    tables = np.zeros((len(spans), max(len(span.block_table) for span in spans)), np.int32)
    for table, span in zip(tables, spans, strict=True):
        table[: len(span.block_table)] = span.block_table
    token_ids = np.array([token_id for span in spans for token_id in span.token_ids], np.int64)
    token_ids[(token_ids < 0) | (token_ids >= vocab_size)] = 0
    logit_rows = [first + row for first, span in zip(first_rows, spans, strict=True) for row, _ in span.draws]
    return ModelInput(
        token_ids=token_ids.astype(np.int32),
        positions=positions.astype(np.int32),
        slot_mapping=(tables[row_sequences, positions // block_size] * block_size + positions % block_size).astype(
            np.int32
        ),
        row_sequences=row_sequences,
        block_tables=tables,
        logit_rows=np.array(logit_rows, np.int32),
    )
