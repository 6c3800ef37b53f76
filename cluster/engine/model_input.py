"""One round's rows for the forward pass: packed, ragged, host side."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

# Shapes: T rows, B sequences, N rows whose logits are wanted.
Int32 = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInput:
    """Rows of all sequences, one after the other. Prefill, decode and verification rows look alike.

    Rows of one sequence are consecutive. Every row first writes its KV to its slot, then attends to its sequence's
    positions up to and including its own. They ascend in position, but for the nodes of a draft tree: these stand
    behind the row of the last committed token in the order of their slots, have the positions that their paths give
    them, and attend to what is committed, to their ancestors and to themselves.

    Attributes:
        token_ids: int32 [T].
        positions: position in the sequence, int32 [T].
        slot_mapping: KV slot to write, block_id * block_size + offset, int32 [T].
        row_sequences: index into block_tables, int32 [T].
        block_tables: KV block ids in order, unused entries 0, int32 [B, max_blocks].
        logit_rows: rows whose logits are returned, ascending, int32 [N].
        row_parents: for a node of a draft tree the row before it on its path, which for the first of a path is the row
            of the last committed token; -1 for every other row; int32 [T]. None where no row is in a tree.
    """

    token_ids: Int32
    positions: Int32
    slot_mapping: Int32
    row_sequences: Int32
    block_tables: Int32
    logit_rows: Int32
    row_parents: Int32 | None = None
