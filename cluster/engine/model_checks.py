"""What is refused in a model folder, before anything in it is executed or loaded.

Every error names the file, the field and the reason. A checkpoint from elsewhere may not bring code: neither Python
modules (`auto_map`), nor pickles, nor attention kernels that would be fetched by name.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from cluster.errors import LoadError

CONFIG_FILE = "config.json"
GENERATION_CONFIG_FILE = "generation_config.json"
TOKENIZER_CONFIG_FILE = "tokenizer_config.json"
WEIGHTS_FILE = "model.safetensors"
WEIGHTS_INDEX_FILE = "model.safetensors.index.json"

_CODE_FIELDS = ("auto_map", "trust_remote_code")
_KERNEL_FIELDS = ("attn_implementation", "_attn_implementation", "experts_implementation", "_experts_implementation")
_QUANTIZATION_FIELDS = ("quantization_config", "compression_config")
_PICKLE_SUFFIXES = frozenset({".bin", ".pt", ".pth", ".ckpt", ".pkl"})


def check_metadata(folder: Path) -> None:
    """Check everything but the weights, so that a refused model need not be downloaded.

    Args:
        folder: a model folder that holds at least the JSON files.

    Raises:
        LoadError: code or kernels are named, the configuration is missing or unreadable, or the architecture is not a
            plain decoder that runs unquantised.
    """
    config = read_json(folder, CONFIG_FILE)
    if config is None:
        raise LoadError(f"{folder / CONFIG_FILE} is missing: not a model folder in the format of transformers")
    for name in (CONFIG_FILE, TOKENIZER_CONFIG_FILE, GENERATION_CONFIG_FILE):
        _refuse_code(folder / name, read_json(folder, name) or {})
    _check_architecture(folder / CONFIG_FILE, config)
    _refuse_quantized(folder / CONFIG_FILE, config)


def weight_files(folder: Path) -> tuple[Path, ...]:
    """The safetensors files that hold the weights, in order of name.

    Args:
        folder: a model folder with one `model.safetensors`, or shards and their index.

    Raises:
        LoadError: there are only pickles or no weights at all, the index is unreadable or points out of the folder, or
            a shard is missing.
    """
    if (folder / WEIGHTS_FILE).is_file():
        return (folder / WEIGHTS_FILE,)
    index = read_json(folder, WEIGHTS_INDEX_FILE)
    if index is None:
        raise LoadError(_describe_missing_weights(folder))
    weight_map = index.get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise LoadError(f"{folder / WEIGHTS_INDEX_FILE}: weight_map is missing or empty")
    names = {str(name) for name in weight_map.values()}
    for name in sorted(names):
        if Path(name).name != name or not name.endswith(".safetensors"):
            raise LoadError(f"{folder / WEIGHTS_INDEX_FILE}: {name!r} is not a safetensors file of this folder")
        if not (folder / name).is_file():
            raise LoadError(f"{folder / name} is missing, but {WEIGHTS_INDEX_FILE} names it: an incomplete download?")
    return tuple(folder / name for name in sorted(names))


def read_json(folder: Path, name: str) -> dict[str, Any] | None:
    """The JSON object in `folder / name`, or None where there is no such file.

    Raises:
        LoadError: the file is unreadable or holds something else than one object.
    """
    path = folder / name
    if not path.is_file():
        return None
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise LoadError(f"{path} is not readable JSON: {error}") from error
    if not isinstance(value, dict):
        raise LoadError(f"{path} holds a JSON {type(value).__name__}, expected an object")
    return value


def _refuse_code(path: Path, value: dict[str, Any]) -> None:
    for field, content in _walk(value):
        if field in _CODE_FIELDS and content:
            raise LoadError(f"{path}: {field} asks for Python code from the model folder, which is never run")
        if field in _KERNEL_FIELDS and "/" in json.dumps(content):
            raise LoadError(
                f"{path}: {field} = {content!r} names a kernel outside this installation, which is never run"
            )


def _walk(value: object) -> Iterator[tuple[str, Any]]:
    """All (field, value) pairs at any depth."""
    if isinstance(value, dict):
        for field, content in value.items():
            yield field, content
            yield from _walk(content)
    elif isinstance(value, list):
        for item in value:
            yield from _walk(item)


def _check_architecture(path: Path, config: dict[str, Any]) -> None:
    model_type = config.get("model_type")
    if config.get("is_encoder_decoder"):
        raise LoadError(f"{path}: is_encoder_decoder is set ({model_type}); only decoder-only models can be served")
    known: dict[str, Any] = dict(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
    architectures = config.get("architectures")
    if not architectures:
        if not isinstance(model_type, str) or model_type not in known:
            raise LoadError(f"{path}: model_type {model_type!r} has no causal language model in transformers")
        return
    if not isinstance(architectures, list) or architectures[0] not in known.values():
        raise LoadError(f"{path}: architectures = {architectures!r} is not a causal language model of transformers")


def _refuse_quantized(path: Path, config: dict[str, Any]) -> None:
    for field, content in _walk(config):
        if field in _QUANTIZATION_FIELDS and content:
            method = content.get("quant_method", "unknown") if isinstance(content, dict) else content
            raise LoadError(
                f"{path}: {field} ({method}) says that the weights are quantised; only plain ones are served"
            )


def _describe_missing_weights(folder: Path) -> str:
    pickles = sorted(path.name for path in folder.iterdir() if path.suffix in _PICKLE_SUFFIXES)
    if pickles:
        return (
            f"{folder} holds its weights only as pickle ({pickles[0]}), which can run code when it is read; "
            "convert them to safetensors"
        )
    return f"{folder} holds neither {WEIGHTS_FILE} nor {WEIGHTS_INDEX_FILE}"
