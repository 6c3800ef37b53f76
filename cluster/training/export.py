"""Writes the folder of a draft model or head so that a reader, or a second run after a crash, never sees half of it."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save
from torch import Tensor
from transformers import LlamaConfig

from cluster.engine.drafters.draft_source import DRAFT_FILE
from cluster.engine.model_checks import CONFIG_FILE, WEIGHTS_FILE

CARD_FILE = "README.md"
HEAD_FILE = "outrider_head.json"
"""What a head is for and how good it is. Its loaders need no more than its configuration and weights."""


def write_draft_folder(
    folder: Path, config: LlamaConfig, tensors: Mapping[str, Tensor], about: Mapping[str, object], card: str
) -> None:
    """Write the four files; each is replaced as a whole, and the one that makes them a draft model comes last.

    Args:
        folder: made if need be.
        config: of the draft model.
        tensors: by checkpoint name; the floating-point ones are written in bfloat16.
        about: content of `outrider_draft.json`.
        card: content of README.md.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config.dtype = torch.bfloat16
    replace_file(folder / WEIGHTS_FILE, _stored(tensors))
    replace_file(folder / CONFIG_FILE, config.to_json_string().encode())
    replace_file(folder / CARD_FILE, card.encode())
    write_about(folder / DRAFT_FILE, about)


def write_head_folder(
    folder: Path,
    config: Mapping[str, object],
    tensors: Mapping[str, Tensor],
    *,
    weights_file: str,
    about: Mapping[str, object],
    card: str,
) -> None:
    """Write a head's four files; each is replaced as a whole, and the configuration, which makes it a head, comes last.

    Args:
        folder: made if need be.
        config: content of config.json.
        tensors: by checkpoint name; the floating-point ones are written in bfloat16.
        weights_file: name of their file.
        about: content of `outrider_head.json`.
        card: content of README.md.
    """
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / weights_file, _stored(tensors))
    replace_file(folder / CARD_FILE, card.encode())
    write_about(folder / HEAD_FILE, about)
    write_about(folder / CONFIG_FILE, config)


def write_about(path: Path, about: Mapping[str, object]) -> None:
    """Write a JSON file."""
    replace_file(path, (json.dumps(about, indent=2) + "\n").encode())


def _stored(tensors: Mapping[str, Tensor]) -> bytes:
    """A safetensors file."""
    stored = {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}
    stored = {name: t.to(torch.bfloat16) if t.is_floating_point() else t for name, t in stored.items()}
    content: bytes = save(stored, {"format": "pt"})
    return content


def replace_file(path: Path, content: bytes) -> None:
    """Write a file whole or not at all."""
    part = path.with_name(f"{path.name}.part")
    with part.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
