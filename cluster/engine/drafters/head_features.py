"""Hidden states of sequences' rows that a head has not read yet, within a bound of memory.

Legend: n rows, F features of a row.
"""

from collections import OrderedDict
from dataclasses import dataclass, field

import torch
from torch import Tensor

_MAX_PARTS = 64
"""So many parts of a sequence are joined to one: rows that come one by one are read together in the end."""


@dataclass(slots=True)
class _Pending:
    """Rows of one sequence at consecutive positions, in parts as they came."""

    first_position: int
    end_position: int
    parts: list[Tensor] = field(default_factory=list)

    def add(self, part_nF: Tensor) -> None:
        self.parts.append(part_nF)
        self.end_position += len(part_nF)
        if len(self.parts) > _MAX_PARTS:
            self.parts = [torch.cat(self.parts)]


class FeatureStore:
    """Keeps rows as bf16 until they are taken; beyond the bound the sequences that grew longest ago lose their first.

    Args:
        max_bytes: most that is kept, at least one part of one sequence aside.

    Attributes:
        num_bytes: kept now.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._pending: OrderedDict[str, _Pending] = OrderedDict()
        self.num_bytes = 0

    def put(self, request_id: str, first_position: int, features_nF: Tensor) -> None:
        """Keep a copy of a sequence's rows, in place of what is known from `first_position` on.

        Rows that would not join what is known replace it all: a head reads rows without a gap.
        """
        pending = self._pending.get(request_id)
        if pending is None or not pending.first_position <= first_position <= pending.end_position:
            self.drop(request_id)
            pending = self._pending[request_id] = _Pending(first_position, first_position)
        self._cut(pending, first_position)
        part_nF = features_nF.to(torch.bfloat16, copy=True)
        pending.add(part_nF)
        self.num_bytes += part_nF.nbytes
        self._pending.move_to_end(request_id)
        while self.num_bytes > self._max_bytes and len(self._pending) > 1:
            self._drop_first_part()

    def num_ready(self, request_id: str, end_position: int) -> int:
        """Rows that `take` would give."""
        pending = self._pending.get(request_id)
        if pending is None or pending.end_position < end_position:
            return 0
        return max(0, end_position - pending.first_position)

    def take(self, request_id: str, end_position: int) -> tuple[int, Tensor]:
        """Position of the first row, and the rows before `end_position`, bf16 [n, F]; only where some are ready."""
        pending = self._pending.pop(request_id)
        self.num_bytes -= sum(part.nbytes for part in pending.parts)
        whole = pending.parts[0] if len(pending.parts) == 1 else torch.cat(pending.parts)
        return pending.first_position, whole[: end_position - pending.first_position]

    def drop(self, request_id: str) -> None:
        """Forget a sequence; unknown ids are ignored."""
        pending = self._pending.pop(request_id, None)
        if pending is not None:
            self.num_bytes -= sum(part.nbytes for part in pending.parts)

    def _cut(self, pending: _Pending, end_position: int) -> None:
        """Drop the rows from `end_position` on: drafts that were refused, or what is computed again."""
        num_surplus, pending.end_position = pending.end_position - end_position, end_position
        while num_surplus > 0:
            part = pending.parts.pop()
            self.num_bytes -= part.nbytes
            if len(part) > num_surplus:
                kept = part[: len(part) - num_surplus].clone()
                pending.parts.append(kept)
                self.num_bytes += kept.nbytes
            num_surplus -= len(part)

    def _drop_first_part(self) -> None:
        request_id, pending = next(iter(self._pending.items()))
        part = pending.parts.pop(0)
        self.num_bytes -= part.nbytes
        pending.first_position += len(part)
        if not pending.parts:
            del self._pending[request_id]
