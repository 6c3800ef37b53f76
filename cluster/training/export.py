"""Writes a draft model's folder so that a reader, or a second run after a crash, never sees half of it."""

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
    stored = {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}
    stored = {name: t.to(torch.bfloat16) if t.is_floating_point() else t for name, t in stored.items()}
    config.dtype = torch.bfloat16
    replace_file(folder / WEIGHTS_FILE, save(stored, {"format": "pt"}))
    replace_file(folder / CONFIG_FILE, config.to_json_string().encode())
    replace_file(folder / CARD_FILE, card.encode())
    write_about(folder, about)


def write_about(folder: Path, about: Mapping[str, object]) -> None:
    """Write `outrider_draft.json`."""
    replace_file(folder / DRAFT_FILE, (json.dumps(about, indent=2) + "\n").encode())


def replace_file(path: Path, content: bytes) -> None:
    """Write a file whole or not at all."""
    part = path.with_name(f"{path.name}.part")
    with part.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
