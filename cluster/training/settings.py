"""What `outrider train` is asked for, and the folder in which such a run lies."""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from cluster.config import BUNDLED
from cluster.errors import ConfigError, check_range
from cluster.training.corpus import check_text_file

_MAX_SEED = (1 << 63) - 1
_RUN_FILE = "run.json"
_RUN_FOLDER = "training"
_CHANGES_NOTHING = ("output", "num_threads", "max_feature_bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """A training run. All but `num_threads` decide what comes out; a run goes on only with the same ones.

    Attributes:
        output: folder of what is trained.
        target: "bundled", a folder, or a hub id.
        revision: commit of a hub id.
        text_files: further text to read from.
        data: folder of shards that an earlier run of the same target left; None has the target write its own.
        num_generated_tokens: tokens that the target writes.
        num_training_tokens: tokens to learn from, repetitions and prompts counted.
        head_tokens: tokens that can be guessed; the whole vocabulary if it has no more.
        seed: of prompts, noise and order.
        num_threads: CPU threads; 0 takes the cores this process may use.
        max_new_tokens: longest text of the target.
        prompts_per_shard: prompts whose texts are written to disk together.
    """

    output: Path
    target: str = BUNDLED
    revision: str | None = None
    text_files: tuple[Path, ...] = ()
    data: Path | None = None
    num_generated_tokens: int = 1_700_000
    num_training_tokens: int = 8_500_000
    head_tokens: int = 8192
    seed: int = 0
    num_threads: int = 0
    max_new_tokens: int = 256
    prompts_per_shard: int = 100

    def __post_init__(self) -> None:
        """Refuse values out of range, naming field, value and range."""
        check_range("--num-generated-tokens", self.num_generated_tokens, 1, 1 << 40)
        check_range("--num-training-tokens", self.num_training_tokens, 1, 1 << 44)
        check_range("--head-tokens", self.head_tokens, 16, 1 << 24)
        check_range("--seed", self.seed, 0, _MAX_SEED)
        check_range("--threads", self.num_threads, 0, 1024)
        check_range("max_new_tokens", self.max_new_tokens, 2, 1 << 20)
        check_range("prompts_per_shard", self.prompts_per_shard, 1, 1 << 20)
        for path in self.text_files:
            check_text_file(path)

    @property
    def run_folder(self) -> Path:
        """Where shards and checkpoint lie; it can be deleted when the result is written."""
        return self.output / _RUN_FOLDER

    def fingerprint(self) -> dict[str, object]:
        """What must not change within a run, as JSON values."""
        values = {name: value for name, value in asdict(self).items() if name not in _CHANGES_NOTHING}
        values["data"] = None if self.data is None else str(self.data)
        values["text_files"] = [[path.name, _sha256(path)] for path in self.text_files]
        return values


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSettings(RunSettings):
    """A draft model.

    Attributes:
        num_layers: that the draft model has of its own.
        num_shared_layers: the target's first layers that stand before them as they are.
    """

    num_layers: int = 2
    num_shared_layers: int = 4

    def __post_init__(self) -> None:
        """Refuse values out of range, naming field, value and range."""
        RunSettings.__post_init__(self)  # a class with slots is made twice, which super() without arguments cannot see
        check_range("--num-layers", self.num_layers, 1, 1024)
        check_range("--num-shared-layers", self.num_shared_layers, 0, 1024)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadSettings(RunSettings):
    """A head on the target's hidden states.

    Attributes:
        kind: of head.
        num_training_tokens: as of every run.
        num_draft_tokens: of a draft that it learns: steps that are unrolled, or heads.
        max_feature_bytes: of the target's hidden states on disk; those beyond it are computed again in each repetition.
            Changes nothing of what comes out.
        tokens_per_batch: padded tokens of one step.
        learning_rate: at its highest.
    """

    kind: Literal["eagle3", "medusa"]
    num_training_tokens: int = 6_000_000
    num_draft_tokens: int = 5
    max_feature_bytes: int = 12_000_000_000
    tokens_per_batch: int = 2048
    learning_rate: float = 1e-3

    def __post_init__(self) -> None:
        """Refuse values out of range, naming field, value and range."""
        RunSettings.__post_init__(self)
        check_range("--num-draft-tokens", self.num_draft_tokens, 1, 16)
        check_range("tokens_per_batch", self.tokens_per_batch, 1, 1 << 24)
        check_range("--learning-rate", self.learning_rate, 0, 1, kind="a number")
        check_range("max_feature_bytes", self.max_feature_bytes, 0, 1 << 50)


def open_run(settings: RunSettings) -> None:
    """Make the run's folder, or check that the run in it is the same.

    Raises:
        ConfigError: the folder holds something else, or a run with other settings.
    """
    output, file = settings.output, settings.run_folder / _RUN_FILE
    if output.exists() and not output.is_dir():
        raise ConfigError(field="--output", value=str(output), allowed="a folder")
    if file.exists():
        _check_same(settings, json.loads(file.read_text("utf-8")))
        return
    if output.exists() and any(output.iterdir()) and not settings.run_folder.is_dir():
        raise ConfigError(
            field="--output", value=str(output), allowed="a new or empty folder, or one of an earlier run"
        )
    try:
        settings.run_folder.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(settings.fingerprint(), indent=2) + "\n", "utf-8")
    except OSError as error:
        raise ConfigError(field="--output", value=str(output), allowed=f"a folder to write into ({error})") from None


def _check_same(settings: RunSettings, earlier: dict[str, object]) -> None:
    now = json.loads(json.dumps(settings.fingerprint()))
    for name in now.keys() | earlier.keys():
        if now.get(name) != earlier.get(name):
            raise ConfigError(
                field="--output",
                value=str(settings.output),
                allowed=f"another folder, or the settings of the run in it: {name} was {earlier.get(name)!r}, "
                f"now {now.get(name)!r}",
            )


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
