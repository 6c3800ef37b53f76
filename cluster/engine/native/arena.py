"""Memory for weights, KV cache and work buffers: aligned to cache lines, on huge pages where the system has them.

numpy aligns to 16 bytes. A 64-byte vector load then touches two cache lines, and 4 KiB pages make the prefetcher stop
every few panels: together they cost about a tenth of the speed of a step.
"""

import mmap
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

_CACHE_LINE = 64
_HUGE_PAGE = 2 << 20
_CHUNK_BYTES = 64 << 20


class Arena:
    """Hands out zeroed arrays from large anonymous mappings. They live as long as any array from them.

    Attributes:
        num_bytes: handed out so far.
    """

    def __init__(self) -> None:
        self.num_bytes = 0
        self._chunk: npt.NDArray[np.uint8] = np.empty(0, np.uint8)
        self._used = 0

    def zeros(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """A zeroed array that starts on a cache line."""
        num_bytes = prod(shape) * np.dtype(dtype).itemsize
        if self._used + num_bytes > len(self._chunk):
            self._chunk, self._used = _map(max(num_bytes, _CHUNK_BYTES)), 0
        view = self._chunk[self._used : self._used + num_bytes]
        self._used += -(-num_bytes // _CACHE_LINE) * _CACHE_LINE
        self.num_bytes += num_bytes
        return view.view(dtype).reshape(shape)

    def copy(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """A copy of `array` that starts on a cache line."""
        result = self.zeros(array.shape, array.dtype)
        result[...] = array
        return result


def _map(num_bytes: int) -> npt.NDArray[np.uint8]:
    # Private: shared anonymous memory gets no huge pages.
    mapping = mmap.mmap(-1, num_bytes + _HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        mapping.madvise(mmap.MADV_HUGEPAGE)
    chunk = np.frombuffer(mapping, np.uint8)
    start = -chunk.ctypes.data % _HUGE_PAGE
    return chunk[start : start + num_bytes]
