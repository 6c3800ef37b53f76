"""Loads Medusa heads in the layout of FasterDecoding/Medusa (arXiv 2401.10774).

A folder holds `config.json` with `medusa_num_heads` and `medusa_num_layers`, and `medusa_lm_head.safetensors`, or
weights under the usual names. Head i is a chain of residual blocks `{i}.{j}.linear.weight` and `.bias`, then its own
output matrix `{i}.{num_layers}.weight`. Heads of its second version bring no output matrix and use the target's. Names
may begin with `medusa_lm_head.` or `medusa_head.`, as in checkpoints that hold the target too.

Legend: K heads, H hidden size, V vocabulary.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from cluster.engine.drafters.head import HeadTarget
from cluster.engine.drafters.target_parts import final_norm, output_matrix
from cluster.engine.model_checks import CONFIG_FILE, read_json, weight_files
from cluster.errors import LoadError

HEADS_FIELD, LAYERS_FIELD = "medusa_num_heads", "medusa_num_layers"
WEIGHTS_FILE, PICKLE_FILE = "medusa_lm_head.safetensors", "medusa_lm_head.pt"

_PREFIXES = ("", "medusa_lm_head.", "medusa_head.")
_MOST_HEADS, _MOST_LAYERS = 16, 16
# The blocks of one head may share memory, which safetensors refuses: hence the clones.
_CONVERT = (
    "python -c \"import torch, safetensors.torch as s; s.save_file({{n: t.clone() for n, t in torch.load('{source}', "
    "map_location='cpu', weights_only=True).items()}}, '{target}')\""
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MedusaWeights:
    """Loaded heads, on the target's device in its dtype.

    Attributes:
        blocks: for each head its residual blocks, each a weight [H, H] and a bias [H].
        outputs: output matrix of each head, [V, H]; a single one where all share the target's.
        norm: the target's final norm.
    """

    blocks: tuple[tuple[tuple[Tensor, Tensor], ...], ...]
    outputs: tuple[Tensor, ...]
    norm: nn.Module


def load_medusa(folder: Path, target: HeadTarget) -> MedusaWeights:
    """Load and check the heads in a folder.

    Raises:
        LoadError: the folder is refused or incomplete, or a tensor does not fit the target.
    """
    config = read_json(folder, CONFIG_FILE) or {}
    num_heads = _count(folder, config, HEADS_FIELD, _MOST_HEADS)
    num_layers = _count(folder, config, LAYERS_FIELD, _MOST_LAYERS)
    hidden, vocab = target.config.hidden_size, target.config.vocab_size
    tensors = _Tensors(folder, _files(folder), f"0.{num_layers - 1}.linear.weight")

    def take(name: str, *shape: int) -> Tensor:
        tensor = tensors.read(name)
        if tuple(tensor.shape) != shape:
            raise LoadError(f"{folder}: {name} has shape {tuple(tensor.shape)}, the target needs {shape}")
        return tensor.to(target.device, target.dtype)

    blocks = tuple(_blocks(take, head, num_layers, hidden) for head in range(num_heads))
    names = [f"{head}.{num_layers}.weight" for head in range(num_heads)]
    if not any(map(tensors.has, names)):
        outputs: tuple[Tensor, ...] = (output_matrix(target),)
    else:
        outputs = tuple(take(name, vocab, hidden) for name in names)
    return MedusaWeights(blocks=blocks, outputs=outputs, norm=final_norm(target))


def _blocks(take: Callable[..., Tensor], head: int, num_layers: int, hidden: int) -> tuple[tuple[Tensor, Tensor], ...]:
    names = [f"{head}.{layer}.linear" for layer in range(num_layers)]
    return tuple((take(f"{name}.weight", hidden, hidden), take(f"{name}.bias", hidden)) for name in names)


def _count(folder: Path, config: dict[str, Any], field: str, most: int) -> int:
    value = config.get(field)
    if type(value) is not int or not 1 <= value <= most:
        raise LoadError(f"{folder / CONFIG_FILE}: {field} = {value!r} is no number from 1 to {most}")
    return value


def _files(folder: Path) -> tuple[Path, ...]:
    """Where the heads' tensors lie."""
    if (folder / WEIGHTS_FILE).is_file():
        return (folder / WEIGHTS_FILE,)
    if (folder / PICKLE_FILE).is_file():
        command = _CONVERT.format(source=folder / PICKLE_FILE, target=folder / WEIGHTS_FILE)
        raise LoadError(
            f"{folder / PICKLE_FILE} is a pickle, which can run code when it is read; convert it once:\n{command}"
        )
    return weight_files(folder)


class _Tensors:
    """Tensors of a few files by their names without prefix, read when asked for.

    Args:
        folder: for errors.
        files: where to look.
        known: a tensor that must be there; shows which prefix is in use.
    """

    def __init__(self, folder: Path, files: tuple[Path, ...], known: str) -> None:
        self._folder = folder
        self._file_of: dict[str, Path] = {}
        for path in files:
            self._file_of |= dict.fromkeys(self._open(path, lambda file: file.keys()), path)
        prefixes = [prefix for prefix in _PREFIXES if prefix + known in self._file_of]
        if not prefixes:
            raise LoadError(f"{folder}: {known} is missing: these are no Medusa heads, or config.json is of others")
        self._prefix = prefixes[0]

    def has(self, name: str) -> bool:
        return self._prefix + name in self._file_of

    def read(self, name: str) -> Tensor:
        full = self._prefix + name
        path = self._file_of.get(full)
        if path is None:
            raise LoadError(f"{self._folder}: {full} is missing from the checkpoint")
        tensor: Tensor = self._open(path, lambda file: file.get_tensor(full))
        return tensor

    @staticmethod
    def _open(path: Path, use: Callable[[Any], Any]) -> Any:
        try:
            with safe_open(path, framework="pt") as file:
                return use(file)
        except (SafetensorError, OSError) as error:
            raise LoadError(f"{path} is damaged: {error}") from error
