"""The arithmetic of an EAGLE-3 head on the CPU kernels: weights are read once a pass, whatever its rows.

Legend: T rows of a pass, N rows with logits, C columns of the logits, F features, H hidden size.
"""

import ctypes
from collections.abc import Sequence as Seq

import numpy as np
import torch
from torch import Tensor

from cluster.engine.cpu_share import share_of
from cluster.engine.drafters.eagle3 import BLOCK_SIZE, MAX_ROWS
from cluster.engine.drafters.eagle3_source import FC, LAYER, OUTPUT, Eagle3Weights
from cluster.engine.drafters.head import Int32
from cluster.engine.model_input import ModelInput
from cluster.engine.native.arena import Arena
from cluster.engine.native.jit import load_kernels
from cluster.engine.native.runner import Array, Buffers, fill_batch, worker_pool
from cluster.engine.native.structs import BatchStruct, HeadStruct
from cluster.engine.native.weights import PANEL, build_native_model, pack_panels
from cluster.engine.noise import FloatArray


class NativeEagle3:
    """`Eagle3Layer` on the CPU kernels. A row has the same bits in every batch.

    Args:
        weights: of the head; copied.
        num_blocks: KV blocks.
        max_len: longest sequence in tokens.
        num_threads: of a pass, the caller's included, >= 1.

    Raises:
        LoadError: the kernels cannot run such a layer.
    """

    def __init__(self, weights: Eagle3Weights, *, num_blocks: int, max_len: int, num_threads: int) -> None:
        self._model = build_native_model(
            weights.config,
            weights.tensors,
            num_kv_blocks=num_blocks,
            block_size=BLOCK_SIZE,
            max_model_len=max_len,
            kv_dtype=torch.bfloat16,
        )
        assert num_threads >= 1, "a pass needs a thread"
        fc = weights.tensors[FC]
        self._head = HeadStruct(
            fc=self._model.hold(pack_panels(fc)),
            hidden_norm=self._model.hold(weights.tensors[f"{LAYER}hidden_norm.weight"].float().numpy()),
            feature_size=fc.shape[1],
            normed_residual=weights.normed_residual,
        )
        self._kernels = load_kernels()
        self._batch, self._num_threads = BatchStruct(), num_threads
        self._buffers = Buffers(self._model, MAX_ROWS, num_inputs=2)
        self.num_blocks, self.num_columns = num_blocks, len(weights.tensors[OUTPUT])
        self._logits_NC: Array = np.zeros((0, -(-self.num_columns // PANEL) * PANEL), np.float32)

    def run(
        self, batch: ModelInput, rotary_positions: Int32, *, features_TF: Tensor | None, hidden_TH: Tensor | None
    ) -> tuple[FloatArray, Tensor]:
        """One pass; see `Eagle3Layer.run`."""
        num_rows, num_logit_rows = len(batch.token_ids), len(batch.logit_rows)
        self._reserve(num_rows, num_logit_rows)
        struct, inputs = self._batch, None
        arrays = fill_batch(struct, batch, self._buffers, rotary_positions)
        if features_TF is not None:
            inputs = np.ascontiguousarray(features_TF.float().numpy())
        else:
            assert hidden_TH is not None
            self._buffers.hidden[:num_rows] = hidden_TH.numpy()
        struct.features = None if inputs is None else inputs.ctypes.data
        struct.logits = self._logits_NC.ctypes.data
        struct.num_threads = share_of(self._num_threads)
        worker_pool().run(self._share, struct.num_threads)
        del arrays, inputs
        hidden_NH = torch.from_numpy(self._buffers.hidden[batch.logit_rows])
        return self._logits_NC[:num_logit_rows, : self.num_columns], hidden_NH

    def copy_blocks(self, sources: Seq[int], destinations: Seq[int]) -> None:
        """Copy whole KV blocks; no block may be in both lists."""
        for cache in self._model.kv_caches:
            cache[list(destinations)] = cache[list(sources)]

    def close(self) -> None:
        """Nothing to do: memory goes with the last reference."""

    def _share(self, thread: int) -> None:
        model, head, batch = (ctypes.addressof(struct) for struct in (self._model.struct, self._head, self._batch))
        self._kernels.head_forward(model, head, batch, thread)

    def _reserve(self, num_rows: int, num_logit_rows: int) -> None:
        if num_rows > len(self._buffers.hidden):
            self._buffers = Buffers(self._model, 2 * num_rows, num_inputs=2)
        if num_logit_rows > len(self._logits_NC):
            self._logits_NC = Arena().zeros((2 * num_logit_rows, self._logits_NC.shape[1]), np.float32)
