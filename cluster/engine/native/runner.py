"""Runs the kernels on the calling thread and a few workers, which all runners of that thread share."""

import ctypes
import threading
import weakref
from collections.abc import Callable
from collections.abc import Sequence as Seq
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from cluster.engine.cpu_share import share_of
from cluster.engine.features import RoundFeatures
from cluster.engine.model_input import ModelInput
from cluster.engine.native.arena import Arena
from cluster.engine.native.jit import load_kernels
from cluster.engine.native.structs import BatchStruct
from cluster.engine.native.weights import PANEL, NativeModel

# Shapes: T rows, N logit rows, V vocabulary.
_PHASES = 8
# A worker polls in native code this long after a step, so that the next step starts without the interpreter lock.
_POLL_US = 50_000

Array = npt.NDArray[Any]


class Buffers:
    """Work memory for up to `max_rows` rows; a pass over more makes new ones.

    Args:
        model: what runs.
        max_rows: rows of a pass.
        num_inputs: hidden states that the first linear layer of a row reads side by side.
    """

    def __init__(self, model: NativeModel, max_rows: int, num_inputs: int = 1) -> None:
        shape, arena = model.shape, Arena()
        self.hidden = arena.zeros((max_rows, shape.hidden), np.float32)
        self.normed = arena.zeros((max_rows, num_inputs * shape.hidden), np.float32)
        self.qkv = arena.zeros((max_rows, model.struct.qkv_stride), np.float32)
        self.attended = arena.zeros((max_rows, shape.num_heads * shape.head_dim), np.float32)
        self.activated = arena.zeros((max_rows, shape.intermediate), np.float32)
        self.counters = arena.zeros(((shape.num_layers + 1) * _PHASES,), np.int32)
        self.barrier = arena.zeros((2,), np.int32)


class NativeRunner:
    """`ModelRunner` on the CPU kernels. A row's logits have the same bits in every batch.

    Args:
        model: packed weights and KV cache.
        num_kv_blocks: blocks in the KV cache.
        max_model_len: longest sequence in tokens.
        num_threads: threads of one forward pass, the caller's included, >= 1.
    """

    numerics = "invariant"

    def __init__(self, model: NativeModel, *, num_kv_blocks: int, max_model_len: int, num_threads: int) -> None:
        self._model, self._kernels = model, load_kernels()
        self._model_address = ctypes.addressof(model.struct)
        self._batch = BatchStruct()
        self._buffers = Buffers(model, 256)
        self._logits_NV: Array = np.zeros((0, -(-model.shape.vocab // PANEL) * PANEL), np.float32)
        self._layers: Array = np.zeros(0, np.int32)
        self._features_TF: Array = np.zeros((0, 0), np.float32)
        self._num_rows = 0
        self.vocab_size, self.block_size = model.shape.vocab, model.struct.block_size
        self.hidden_size, self.num_layers = model.shape.hidden, model.shape.num_layers
        self.num_kv_blocks, self.max_model_len, self.num_threads = num_kv_blocks, max_model_len, num_threads
        self.dtype = "bfloat16" if model.struct.kv_is_bf16 else "float32"

    @property
    def kv_cache_bytes(self) -> int:
        """Memory of the KV cache."""
        return sum(cache.nbytes for cache in self._model.kv_caches)

    def forward(self, batch: ModelInput) -> torch.Tensor:
        """Logits of the asked rows.

        Returns:
            float32 [N, V], a view that the next call overwrites.
        """
        num_rows, num_logit_rows = len(batch.token_ids), len(batch.logit_rows)
        self._reserve(num_rows, num_logit_rows)
        arrays = self._fill(batch)
        self._batch.num_threads = share_of(self.num_threads)
        worker_pool().run(self._share, self._batch.num_threads)
        del arrays
        return torch.from_numpy(self._logits_NV)[:num_logit_rows, : self.vocab_size]

    def capture(self, layers: tuple[int, ...]) -> None:
        """Keep what enters these layers, strictly rising, from the next pass on; see `FeatureRunner`."""
        assert all(0 <= layer <= self.num_layers for layer in layers), "there is no such layer"
        self._layers, self._num_rows = np.array(layers, np.int32), 0
        self._features_TF = np.zeros((0, len(layers) * self.hidden_size), np.float32)

    @property
    def features(self) -> RoundFeatures:
        """The hidden states of the last pass; the next one overwrites them."""
        return RoundFeatures(tuple(self._layers.tolist()), torch.from_numpy(self._features_TF)[: self._num_rows])

    def copy_kv_blocks(self, sources: Seq[int], destinations: Seq[int]) -> None:
        """Copy whole KV blocks of all layers; no block may be in both lists."""
        for cache in self._model.kv_caches:
            cache[list(destinations)] = cache[list(sources)]

    def move_kv(self, sources: Seq[int], destinations: Seq[int]) -> None:
        """Copy the KV of single slots in all layers, pair by pair; see `TreeRunner`."""
        pairs = np.array([sources, destinations], np.int32)
        self._kernels.move_kv(self._model_address, pairs[0].ctypes.data, pairs[1].ctypes.data, len(sources))

    def set_num_threads(self, num_threads: int) -> None:
        """Use so many threads from the next pass on, the caller's included, >= 1. The logits keep their bits."""
        self.num_threads = num_threads

    def close(self) -> None:
        """Nothing to do: the workers are of the thread, and end with it."""

    def _share(self, thread: int) -> None:
        self._kernels.forward(self._model_address, ctypes.addressof(self._batch), thread)

    def _reserve(self, num_rows: int, num_logit_rows: int) -> None:
        if num_rows > len(self._buffers.hidden):
            self._buffers = Buffers(self._model, 2 * num_rows)
        if num_logit_rows > len(self._logits_NV):
            self._logits_NV = Arena().zeros((2 * num_logit_rows, self._logits_NV.shape[1]), np.float32)
        if self._layers.size and num_rows > len(self._features_TF):
            self._features_TF = Arena().zeros((2 * num_rows, self._features_TF.shape[1]), np.float32)

    def _fill(self, batch: ModelInput) -> list[Array]:
        """Point the batch struct at this round's arrays; the caller keeps them alive during the pass."""
        struct = self._batch
        arrays = fill_batch(struct, batch, self._buffers, batch.positions)
        struct.logits = self._logits_NV.ctypes.data
        struct.num_features = self._layers.size
        struct.feature_layers, struct.features = self._layers.ctypes.data, self._features_TF.ctypes.data
        self._num_rows = len(batch.token_ids)
        return [*arrays, self._layers]


def fill_batch(struct: BatchStruct, batch: ModelInput, buffers: Buffers, rotary_positions: Array) -> list[Array]:
    """Point a batch struct at a pass's rows and work memory; the caller keeps what comes back alive during the pass."""
    buffers.counters.fill(0)
    inputs = {
        "token_ids": batch.token_ids,
        "positions": batch.positions,
        "rotary_positions": rotary_positions,
        "slots": batch.slot_mapping,
        "row_sequences": batch.row_sequences,
        "block_tables": batch.block_tables,
        "logit_rows": batch.logit_rows,
    }
    if batch.row_parents is not None:
        inputs["row_parents"] = batch.row_parents
    arrays = {name: np.ascontiguousarray(array, np.int32) for name, array in inputs.items()}
    struct.row_parents = None
    for name, array in arrays.items():
        setattr(struct, name, array.ctypes.data)
    for name in ("hidden", "normed", "qkv", "attended", "activated", "counters", "barrier"):
        setattr(struct, name, getattr(buffers, name).ctypes.data)
    struct.num_rows, struct.num_logit_rows = len(batch.token_ids), len(batch.logit_rows)
    struct.max_blocks = batch.block_tables.shape[1]
    return list(arrays.values())


class _Pool:
    """The workers of one calling thread.

    A target and a local draft model run in turn on one thread. With workers of their own, those of the one would look
    for work while the other computes: on two cores that made a pass of 24 rows 40 % slower.
    """

    def __init__(self) -> None:
        self._workers: list[_Worker] = []
        weakref.finalize(self, _close, self._workers)

    @property
    def thread_ids(self) -> tuple[int, ...]:
        """The system's ids of the workers."""
        return tuple(worker.thread_id for worker in self._workers)

    def run(self, share: Callable[[int], None], num_threads: int) -> None:
        """Let so many threads, the caller's included, run their shares of a pass."""
        while len(self._workers) < num_threads - 1:
            self._workers.append(_Worker(len(self._workers) + 1))
        busy = self._workers[: num_threads - 1]
        for worker in busy:
            worker.start(share)
        share(0)
        for worker in busy:
            worker.join()


def _close(workers: "list[_Worker]") -> None:
    for worker in workers:
        worker.close()


_of_thread = threading.local()


def worker_pool() -> _Pool:
    """The workers of the calling thread."""
    pool: _Pool | None = getattr(_of_thread, "pool", None)
    if pool is None:
        pool = _of_thread.pool = _Pool()
    return pool


class _Worker:
    """A thread that runs its share of each pass. Hand-over is by two tickets in shared memory, see `outrider_wait`.

    Args:
        index: which share it runs.
    """

    def __init__(self, index: int) -> None:
        self._kernels = load_kernels()
        self._started, self._finished = ctypes.c_int32(0), ctypes.c_int32(0)
        self._wake, self._closing = threading.Event(), False
        self._share: Callable[[int], None] | None = None
        self._index = index
        self._thread = threading.Thread(target=self._run, name=f"forward-{index}", daemon=True)
        self._thread.start()

    @property
    def thread_id(self) -> int:
        """The system's id of the thread."""
        assert self._thread.native_id is not None, "it runs"
        return self._thread.native_id

    def start(self, share: Callable[[int], None]) -> None:
        """Let the worker run its share of a pass."""
        self._share = share
        self._kernels.signal(ctypes.addressof(self._started))
        self._wake.set()

    def join(self) -> None:
        """Return when the worker has finished the pass that was started last."""
        while self._finished.value != self._started.value:
            self._kernels.wait(ctypes.addressof(self._finished), self._finished.value, 1000)
        self._share = None  # It holds the runner, and so the weights.

    def close(self) -> None:
        """End the thread."""
        self._closing = True
        self._wake.set()
        self._thread.join()

    def _run(self) -> None:
        while True:
            if (
                self._kernels.wait(ctypes.addressof(self._started), self._finished.value, _POLL_US)
                == self._finished.value
            ):
                self._wake.wait()
                self._wake.clear()
                if self._closing:
                    return
                continue
            assert self._share is not None
            self._share(self._index)
            self._kernels.signal(ctypes.addressof(self._finished))
