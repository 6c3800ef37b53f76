"""Text of one training run: the target writes it, or an earlier run did; the first shard is held out."""

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from cluster.config import EngineConfig
from cluster.engine.engine import Engine
from cluster.engine.model_loader import load_config, load_weights
from cluster.engine.model_source import resolve_model
from cluster.engine.startup import available_threads
from cluster.errors import ConfigError, LoadError
from cluster.training.corpus import read_passages
from cluster.training.dataset import LabelledText, head_vocabulary, read_texts
from cluster.training.export import replace_file
from cluster.training.generate import generate_texts
from cluster.training.prompts import PromptWriter
from cluster.training.reporter import Reporter
from cluster.training.settings import RunSettings
from cluster.training.shards import ShardWriter, SourceCount, count_sources, shard_files
from cluster.training.student import training_device

MAX_TEXT_TOKENS = 640
_MAX_MODEL_LEN = 1024
_HELD_OUT_SUFFIX = "-00000"
_SHARD_FOLDER, _HEAD_FILE = "shards", "target_ids.npy"


class RunData:
    """Target and texts of a run.

    Args:
        settings: what is wanted.
        reporter: hears of progress.

    Attributes:
        source: where the target lies.
        target: its configuration.
        num_threads: CPU threads.

    Raises:
        ConfigError: `data` holds no text to learn from or none to hold out.
        LoadError: the target is refused.
    """

    def __init__(self, settings: RunSettings, reporter: Reporter) -> None:
        self._settings, self._reporter = settings, reporter
        self.source = resolve_model(settings.target, revision=settings.revision, cache_dir=None)
        self.target = load_config(self.source)
        self.num_threads = settings.num_threads or available_threads()
        self._folder = settings.data or settings.run_folder / _SHARD_FOLDER
        if settings.data is not None and not self._is_split:
            allowed = "a folder with shards of an earlier run, one of them with a name that ends in -00000"
            raise ConfigError(field="--data", value=str(settings.data), allowed=allowed)

    def generate(self) -> None:
        """Let the target write text until there is enough; nothing where an earlier run's is used."""
        settings = self._settings
        if settings.data is not None:
            return
        shards = ShardWriter(self._folder, settings.prompts_per_shard)
        self._reporter.begin("generate", shards.num_tokens, settings.num_generated_tokens)
        if self._has_enough(shards):
            return
        engine = Engine.from_config(self.engine_config(256 if training_device().type == "cuda" else 48))
        try:
            writer = PromptWriter(
                engine.tokenizer,
                read_passages(settings.seed, settings.text_files),
                seed=settings.seed,
                max_tokens=settings.max_new_tokens,
            )
            while not self._has_enough(shards):
                goal = max(settings.num_generated_tokens, shards.num_tokens + 1)
                generate_texts(
                    engine, writer, shards, num_tokens=goal, seed=settings.seed, on_tokens=self._reporter.advance
                )
        finally:
            engine.close()

    def files(self, *, held_out: bool) -> list[Path]:
        """The first shard is held out; the same one however many there are."""
        return [path for path in shard_files(self._folder) if path.stem.endswith(_HELD_OUT_SUFFIX) == held_out]

    def texts(self, *, held_out: bool) -> list[LabelledText]:
        """All texts to learn from, or those to hold out.

        Raises:
            LoadError: a shard is damaged, or holds the text of a target with more tokens.
        """
        texts = read_texts(self.files(held_out=held_out), MAX_TEXT_TOKENS)
        highest = max((int(max(text.token_ids.max(), text.label_ids.max())) for text in texts), default=0)
        if highest >= self.target.vocab_size:
            raise LoadError(
                f"{self._folder} holds the text of another target: token {highest} is not among the "
                f"{self.target.vocab_size} of {self.source.model_id}"
            )
        return texts

    def sources(self) -> list[SourceCount]:
        """What all texts are made of, held-out ones included."""
        return count_sources(shard_files(self._folder))

    def target_ids(self, texts: Sequence[LabelledText]) -> Tensor:
        """Token ids of the head's columns, int64; chosen once in a run."""
        path = self._settings.run_folder / _HEAD_FILE
        if not path.exists():
            buffer = io.BytesIO()
            np.save(buffer, head_vocabulary(texts, self._settings.head_tokens, self.target.vocab_size))
            replace_file(path, buffer.getvalue())
        return torch.from_numpy(np.load(path)).long()

    def weights(self) -> dict[str, Tensor]:
        """The target's, by checkpoint name, in the checkpoint's own type: tensors are views of the file, not copies."""
        dtype = self.target.dtype if isinstance(self.target.dtype, torch.dtype) else torch.float32
        return load_weights(self.source, dtype)

    def engine_config(self, max_num_seqs: int) -> EngineConfig:
        """Settings under which the target runs, without drafts."""
        return EngineConfig(
            model=self._settings.target,
            revision=self._settings.revision,
            num_threads=self.num_threads,
            drafter="off",
            num_speculative_tokens=0,
            max_num_seqs=max_num_seqs,
            max_model_len=min(_MAX_MODEL_LEN, self.target.max_position_embeddings),
            kv_cache_tokens=max_num_seqs * _MAX_MODEL_LEN,
        )

    @property
    def _is_split(self) -> bool:
        """There is text both to learn from and to hold out."""
        return bool(self.files(held_out=True) and self.files(held_out=False))

    def _has_enough(self, shards: ShardWriter) -> bool:
        return shards.num_tokens >= self._settings.num_generated_tokens and self._is_split
