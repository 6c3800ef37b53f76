"""From a plan to the forward pass's rows, and from rows to what the sampler must know about each. Pure; no torch."""

from collections.abc import Sequence as Seq
from functools import partial

import numpy as np
import numpy.typing as npt

from cluster.engine import token_tree
from cluster.engine.logits_processors import SamplingRow
from cluster.engine.model_input import Int32, ModelInput
from cluster.engine.plan import ScheduledSequence
from cluster.types import SamplingParams

Ints = npt.NDArray[np.int64]


def build_model_input(items: Seq[ScheduledSequence], block_size: int) -> ModelInput:
    """Pack the rows of all items.

    Logit rows, per item: all rows when prompt logprobs are due, else the rows to draw from, else none.

    Args:
        items: at least one, each with the blocks for its rows.
        block_size: tokens per KV block.
    """
    token_ids: list[int] = []
    for item in items:
        token_ids += item.sequence.token_ids[item.start : item.start + item.num_tokens]
        token_ids += item.draft_token_ids
    num_rows = np.array([item.num_rows for item in items])
    first_rows = np.cumsum(num_rows) - num_rows
    row_sequences = np.repeat(np.arange(len(items), dtype=np.int32), num_rows)
    starts = np.array([item.start for item in items])
    positions = np.arange(len(token_ids)) - np.repeat(first_rows - starts, num_rows)
    tables = np.zeros((len(items), max(len(item.sequence.block_table) for item in items)), np.int32)
    for table, item in zip(tables, items, strict=True):
        table[: len(item.sequence.block_table)] = item.sequence.block_table
    slots = tables[row_sequences, positions // block_size] * block_size + positions % block_size
    logit_rows = [
        np.arange(first + num - num_logit_rows(item), first + num)
        for item, first, num in zip(items, first_rows, num_rows, strict=True)
    ]
    row_parents = _place_trees(items, first_rows.tolist(), positions)
    return ModelInput(
        token_ids=np.array(token_ids, np.int32),
        positions=positions.astype(np.int32),
        slot_mapping=slots.astype(np.int32),
        row_sequences=row_sequences,
        block_tables=tables,
        logit_rows=np.concatenate(logit_rows).astype(np.int32),
        row_parents=row_parents,
    )


def _place_trees(items: Seq[ScheduledSequence], first_rows: Seq[int], positions: Ints) -> Int32 | None:
    """The parent row of each node of a tree; its position, so far that of its slot, becomes that of its depth."""
    if not any(item.draft_parents for item in items):
        return None
    row_parents: Int32 = np.full(len(positions), -1, np.int32)
    for item, first in zip(items, first_rows, strict=True):
        if item.draft_parents:
            root, nodes = first + item.num_tokens - 1, slice(first + item.num_tokens, first + item.num_rows)
            row_parents[nodes] = np.array(item.draft_parents) + root + 1
            positions[nodes] = positions[root] + token_tree.depths(len(item.draft_token_ids), item.draft_parents)
    return row_parents


def num_logit_rows(item: ScheduledSequence) -> int:
    """Trailing rows of an item whose logits are needed."""
    if needs_prompt_logprobs(item):
        return item.num_rows
    return len(item.draft_token_ids) + 1 if item.samples else 0


def needs_prompt_logprobs(item: ScheduledSequence) -> bool:
    """True when the item computes prompt rows whose tokens the client wants log-probabilities of."""
    request = item.sequence.request
    return request.sampling.prompt_logprobs is not None and item.start < len(request.prompt_token_ids)


def sampling_rows(item: ScheduledSequence) -> list[SamplingRow]:
    """What to draw with at each of an item's sampling rows: the last committed token's, then one per draft token."""
    sequence, params = item.sequence, item.sequence.request.sampling
    output = sequence.token_ids[sequence.num_prompt_tokens :] if _needs_history(params) else []
    grammar, parents = sequence.grammar, item.draft_parents
    assumed = [(), *token_tree.paths(item.draft_token_ids, parents)]
    return [
        SamplingRow(
            params=params,
            output_index=sequence.num_output_tokens + len(path),
            prompt_token_ids=sequence.request.prompt_token_ids,
            output_token_ids=[*output, *path] if output or path else output,
            assumed_token_id=path[-1] if path else None,
            assumed_row=parents[i - 1] + 1 if parents and path else None,
            allowed=None if grammar is None else partial(grammar.allowed, path),
        )
        for i, path in enumerate(assumed)
    ]


def _needs_history(params: SamplingParams) -> bool:
    penalties = (params.repetition_penalty != 1.0, params.presence_penalty != 0.0, params.frequency_penalty != 0.0)
    return any(penalties) or bool(params.bad_words)
