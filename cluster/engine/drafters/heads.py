"""The one place where a head is chosen: by what the `config.json` of its folder says, or `mtp` for the target's own."""

from collections.abc import Iterator
from collections.abc import Sequence as Seq
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from cluster.config import TARGETS_OWN_HEAD
from cluster.engine.drafters.eagle3 import BLOCK_SIZE, Eagle3Head, Eagle3Layer
from cluster.engine.drafters.eagle3_source import is_eagle3, load_eagle3
from cluster.engine.drafters.eagle3_torch import TorchEagle3
from cluster.engine.drafters.head import Head, HeadTarget
from cluster.engine.drafters.head_blocks import TAIL_BLOCKS
from cluster.engine.drafters.medusa import MedusaHead, build_medusa
from cluster.engine.drafters.medusa_source import HEADS_FIELD
from cluster.engine.drafters.mtp import MtpHead, build_mtp
from cluster.engine.model_checks import CONFIG_FILE, read_json, weight_files
from cluster.engine.model_loader import load_config
from cluster.engine.model_source import ModelSource
from cluster.engine.native.eagle3 import NativeEagle3
from cluster.engine.native.weights import unsupported_reason
from cluster.errors import ConfigError, LoadError


def head_target(
    source: ModelSource,
    *,
    dtype: torch.dtype,
    device: str,
    max_model_len: int,
    max_sequences: int,
    num_threads: int,
    kv_cache_tokens: int,
    max_branches: int = 1,
) -> HeadTarget:
    """What heads need to know of a target that lies in `source`; see `HeadTarget`.

    Raises:
        LoadError: the folder is refused or incomplete.
    """
    return HeadTarget(
        config=load_config(source),
        weight=_CheckpointReader(source.folder).tensor,
        device=device,
        dtype=dtype,
        max_model_len=max_model_len,
        max_sequences=max_sequences,
        num_threads=num_threads,
        kv_cache_tokens=kv_cache_tokens,
        max_branches=max_branches,
    )


def head_kind(name: str) -> str:
    """The name of the drafter that an entry of `draft.heads` gives.

    Raises:
        LoadError: the folder holds no head.
    """
    if name == TARGETS_OWN_HEAD:
        return MtpHead.name
    folder = Path(name).expanduser()
    about = _about(folder)
    if is_eagle3(about):
        return Eagle3Head.name
    if HEADS_FIELD in about:
        return MedusaHead.name
    raise LoadError(
        f"{folder / CONFIG_FILE}: architectures = {about.get('architectures')!r} is no head that is known here: "
        f"EAGLE-3 of SafeAILab, SpecForge or speculators, or Medusa ({HEADS_FIELD})"
    )


def load_heads(names: Seq[str], target: HeadTarget) -> list[Head]:
    """Load heads for a target.

    Args:
        names: folders, or "mtp" for the module inside the target's checkpoint.
        target: what they draft for.

    Raises:
        ConfigError: two of them are of one kind.
        LoadError: a folder is refused or incomplete, or does not fit the target.
    """
    kinds = [head_kind(name) for name in names]
    if len(set(kinds)) != len(kinds):
        raise ConfigError(field="draft.heads", value=list(names), allowed=f"one head of each kind, not {kinds}")
    return [_load(kind, Path(name).expanduser(), target) for kind, name in zip(kinds, names, strict=True)]


def build_eagle3(folder: Path, target: HeadTarget) -> Eagle3Head:
    """Load an EAGLE-3 head: onto the CPU kernels where they can run it, else in torch.

    Raises:
        LoadError: the folder is refused or incomplete, or does not fit the target.
    """
    weights = load_eagle3(folder, target)
    max_len = min(weights.config.max_position_embeddings, target.max_model_len)
    num_spare_rows = (target.max_branches - 1) * TAIL_BLOCKS * BLOCK_SIZE
    most_rows = target.max_sequences * (max_len + BLOCK_SIZE + num_spare_rows)
    num_blocks = -(-min(target.kv_cache_tokens, most_rows) // BLOCK_SIZE)
    layer: Eagle3Layer
    if target.device == "cpu" and unsupported_reason(weights.config) is None:
        layer = NativeEagle3(weights, num_blocks=num_blocks, max_len=max_len, num_threads=target.num_threads)
    else:
        layer = TorchEagle3(
            weights, num_blocks=num_blocks, max_len=max_len, device=target.device, num_threads=target.num_threads
        )
    return Eagle3Head(
        layer,
        feature_layers=weights.feature_layers,
        target_ids=weights.target_ids,
        max_len=max_len,
        max_branches=target.max_branches,
    )


def heads_memory_bytes(names: Seq[str], source: ModelSource, *, kv_cache_tokens: int) -> int:
    """About what heads will hold, known without loading them: their files, the target's embedding, and KV.

    Raises:
        LoadError: a folder is refused or incomplete.
    """
    return sum(
        _memory_bytes(Path(name).expanduser(), source, kv_cache_tokens) for name in names if name != TARGETS_OWN_HEAD
    )


def _memory_bytes(folder: Path, source: ModelSource, kv_cache_tokens: int) -> int:
    about = _about(folder)
    num_bytes = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    if not is_eagle3(about):
        return num_bytes
    config = load_config(source).get_text_config()
    sizes = about.get("transformer_layer_config") or about
    num_heads = sizes.get("num_key_value_heads") or sizes.get("num_attention_heads") or 0
    head_dim = sizes.get("head_dim") or sizes.get("hidden_size", 0) // max(1, sizes.get("num_attention_heads") or 1)
    embedding_bytes = 2 * config.vocab_size * config.hidden_size
    return int(num_bytes + embedding_bytes + 4 * num_heads * head_dim * kv_cache_tokens)


def _load(kind: str, folder: Path, target: HeadTarget) -> Head:
    if kind == Eagle3Head.name:
        return build_eagle3(folder, target)
    return build_medusa(folder, target) if kind == MedusaHead.name else build_mtp(target)


def _about(folder: Path) -> dict[str, Any]:
    about = read_json(folder, CONFIG_FILE) if folder.is_dir() else None
    if about is None:
        raise LoadError(f"draft head {str(folder)!r}: there is no {folder / CONFIG_FILE}")
    return about


class _CheckpointReader:
    """Reads single tensors of a checkpoint; which file holds which is found out once, with the first of them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def tensor(self, name: str) -> Tensor:
        """One tensor.

        Raises:
            LoadError: there is none of that name, or a file is damaged.
        """
        path = self._files.get(name)
        if path is None:
            raise LoadError(f"{self._folder}: the checkpoint has no tensor {name}, which a draft head needs")
        with _opened(path) as file:
            tensor: Tensor = file.get_tensor(name)
            return tensor

    @cached_property
    def _files(self) -> dict[str, Path]:
        """The file of each tensor."""
        files: dict[str, Path] = {}
        for path in reversed(weight_files(self._folder)):  # Where several hold one, the first counts.
            with _opened(path) as file:
                files |= dict.fromkeys(file.keys(), path)
        return files


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """An open file of tensors.

    Raises:
        LoadError: it is damaged.
    """
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except (SafetensorError, OSError) as error:
        raise LoadError(f"{path} is damaged: {error}") from error
