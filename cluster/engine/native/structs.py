"""ctypes mirrors of the structs in kernels.c, field by field."""

import ctypes

_POINTER, _INT, _FLOAT = ctypes.c_void_p, ctypes.c_int32, ctypes.c_float


class LayerStruct(ctypes.Structure):
    """Weights and KV cache of one layer (`Layer` in kernels.c)."""

    _fields_ = [
        (name, _POINTER)
        for name in (
            *("input_norm", "post_norm", "q_norm", "k_norm", "qkv_bias"),
            *("qkv", "o", "gate_up", "down", "k_cache", "v_cache"),
        )
    ]


class ModelStruct(ctypes.Structure):
    """Shapes and shared weights (`Model` in kernels.c)."""

    _fields_ = [
        *((name, _INT) for name in ("num_layers", "hidden", "num_heads", "num_kv_heads", "head_dim", "intermediate")),
        *((name, _INT) for name in ("vocab", "weight_is_bf16", "kv_is_bf16", "block_size", "window", "qkv_stride")),
        ("norm_eps", _FLOAT),
        ("attention_scale", _FLOAT),
        *((name, _POINTER) for name in ("embedding", "final_norm", "lm_head", "rope_cos", "rope_sin", "layers")),
    ]


class BatchStruct(ctypes.Structure):
    """One round's rows and work buffers (`Batch` in kernels.c)."""

    _fields_ = [
        *((name, _INT) for name in ("num_rows", "num_logit_rows", "max_blocks", "num_threads")),
        *((name, _POINTER) for name in ("token_ids", "positions", "slots", "row_sequences", "block_tables")),
        *((name, _POINTER) for name in ("logit_rows", "hidden", "normed", "qkv", "attended", "activated", "logits")),
        *((name, _POINTER) for name in ("counters", "barrier", "rotary_positions", "feature_layers", "features")),
        ("num_features", _INT),
        ("row_parents", _POINTER),
    ]


class HeadStruct(ctypes.Structure):
    """An EAGLE-3 head: a model of one layer and what stands before it (`Head` in kernels.c)."""

    _fields_ = [
        *((name, _POINTER) for name in ("fc", "hidden_norm")),
        *((name, _INT) for name in ("feature_size", "normed_residual")),
    ]
