"""The phases of `outrider train draft-model`: generate, train, write. Each goes on from what the earlier ones left."""

import io
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from cluster.config import EngineConfig
from cluster.engine.drafters.draft_source import FORMAT
from cluster.engine.drafters.vocab_check import vocabulary_hash
from cluster.engine.engine import Engine
from cluster.engine.model_loader import load_config, load_tokenizer, load_weights
from cluster.engine.model_source import resolve_model
from cluster.engine.startup import available_threads
from cluster.errors import ConfigError
from cluster.training.card import TrainFacts, render_card
from cluster.training.corpus import read_passages
from cluster.training.dataset import LabelledText, head_vocabulary, read_texts
from cluster.training.distill import DistillConfig, Distiller, Progress
from cluster.training.export import replace_file, write_draft_folder
from cluster.training.generate import generate_texts
from cluster.training.prompts import PromptWriter
from cluster.training.reporter import Reporter
from cluster.training.settings import TrainSettings, open_run
from cluster.training.shards import ShardWriter, count_sources, shard_files
from cluster.training.student import Student, starting_layers, student_config, training_device

_MAX_TEXT_TOKENS = 640
_MAX_MODEL_LEN = 1024
_HELD_OUT_SUFFIX = "-00000"
_SHARD_FOLDER, _HEAD_FILE = "shards", "target_ids.npy"


class DraftTraining:
    """One run. Call `generate`, `train` and `write` in this order.

    Args:
        settings: what is wanted.
        reporter: hears of progress.

    Raises:
        ConfigError: a setting does not fit the target, or the folder holds another run.
        LoadError: the target is refused.
    """

    def __init__(self, settings: TrainSettings, reporter: Reporter) -> None:
        self._settings, self._reporter = settings, reporter
        self._source = resolve_model(settings.target, revision=settings.revision, cache_dir=None)
        self._target = load_config(self._source)
        num_target_layers = self._target.num_hidden_layers
        num_layers = settings.num_layers + settings.num_shared_layers
        if num_layers > num_target_layers:
            allowed = f"with --num-shared-layers at most {num_target_layers}, the layers of the target"
            raise ConfigError(field="--num-layers", value=settings.num_layers, allowed=allowed)
        self._config = student_config(self._target, num_layers)
        self._start_layers = starting_layers(num_target_layers, settings.num_layers, settings.num_shared_layers)
        open_run(settings)
        self._shards = settings.run_folder / _SHARD_FOLDER
        self._num_threads = settings.num_threads or available_threads()
        self._distiller: Distiller | None = None

    def generate(self) -> None:
        """Let the target write text until there is enough."""
        settings = self._settings
        shards = ShardWriter(self._shards, settings.prompts_per_shard)
        self._reporter.begin("generate", shards.num_tokens, settings.num_generated_tokens)
        if self._has_enough(shards):
            return
        engine = self._build_engine()
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

    def train(self) -> None:
        """Distil until the student has seen enough tokens; saves checkpoints."""
        settings = self._settings
        torch.set_num_threads(self._num_threads)  # the engine leaves torch with one
        texts = read_texts(self._shard_files(held_out=False), _MAX_TEXT_TOKENS)
        config = DistillConfig(num_tokens=settings.num_training_tokens, seed=settings.seed)
        distiller = self._build_distiller(self._head(texts), config)
        last = distiller.progress.num_tokens
        self._reporter.begin("train", last, settings.num_training_tokens)

        def on_step(progress: Progress, loss: float) -> None:
            nonlocal last
            self._reporter.advance(progress.num_tokens - last, f"loss {loss:.2f}")
            last = progress.num_tokens

        if not distiller.is_done:
            distiller.run(texts, on_step)
        self._distiller = distiller

    def write(self) -> TrainFacts:
        """Measure on held-out text and write the folder; what an earlier run wrote there is replaced."""
        distiller = self._distiller
        assert distiller is not None, "train first"
        self._reporter.begin("measure and write", 0, 1)
        distiller.round_weights()
        texts = read_texts(self._shard_files(held_out=True), _MAX_TEXT_TOKENS)
        tensors = {**distiller.student.trained(), "target_ids": distiller.target_ids.to("cpu", torch.int32)}
        facts = self._facts(distiller, tensors, texts)
        write_draft_folder(self._settings.output, self._config, tensors, self._about(facts), render_card(facts))
        self._reporter.advance(1)
        return facts

    def _has_enough(self, shards: ShardWriter) -> bool:
        """Enough tokens, and text both to learn from and to hold out."""
        is_split = self._shard_files(held_out=True) and self._shard_files(held_out=False)
        return shards.num_tokens >= self._settings.num_generated_tokens and bool(is_split)

    def _shard_files(self, *, held_out: bool) -> list[Path]:
        """The first shard is held out; the same one however many there are."""
        return [path for path in shard_files(self._shards) if path.stem.endswith(_HELD_OUT_SUFFIX) == held_out]

    def _build_engine(self) -> Engine:
        max_num_seqs = 256 if training_device().type == "cuda" else 48
        max_model_len = min(_MAX_MODEL_LEN, self._target.max_position_embeddings)
        config = EngineConfig(
            model=self._settings.target,
            revision=self._settings.revision,
            num_threads=self._num_threads,
            drafter="off",
            num_speculative_tokens=0,
            max_num_seqs=max_num_seqs,
            max_model_len=max_model_len,
            kv_cache_tokens=max_num_seqs * _MAX_MODEL_LEN,
        )
        return Engine.from_config(config)

    def _head(self, texts: Sequence[LabelledText]) -> Tensor:
        """Token ids of the head's columns; chosen once in a run."""
        path = self._settings.run_folder / _HEAD_FILE
        if not path.exists():
            buffer = io.BytesIO()
            np.save(buffer, head_vocabulary(texts, self._settings.head_tokens, self._target.vocab_size))
            replace_file(path, buffer.getvalue())
        return torch.from_numpy(np.load(path)).long()

    def _build_distiller(self, target_ids: Tensor, config: DistillConfig) -> Distiller:
        # In the checkpoint's own type tensors are views of the file: no copy of a large target is made.
        dtype = self._target.dtype if isinstance(self._target.dtype, torch.dtype) else torch.float32
        weights = load_weights(self._source, dtype)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self._settings.seed)
            student = Student(self._config, weights, self._start_layers, target_ids)
        torch.nn.Module.to(student, training_device())
        return Distiller(student, target_ids, self._target.vocab_size, config, self._settings.run_folder)

    def _facts(self, distiller: Distiller, tensors: Mapping[str, Tensor], texts: Sequence[LabelledText]) -> TrainFacts:
        num_parameters = sum(tensor.numel() for tensor in tensors.values() if tensor.is_floating_point())
        return TrainFacts(
            target=self._source.model_id,
            start_layers=self._start_layers,
            num_shared_layers=self._settings.num_shared_layers,
            num_columns=len(distiller.target_ids),
            vocab_size=self._target.vocab_size,
            num_parameters=num_parameters,
            num_bytes=2 * num_parameters + 4 * len(distiller.target_ids),
            sources=count_sources(shard_files(self._shards)),
            num_training_tokens=distiller.progress.num_tokens,
            num_steps=distiller.progress.num_steps,
            seed=self._settings.seed,
            held_out=distiller.evaluate(texts),
            num_held_out_tokens=sum(len(text.label_ids) for text in texts),
            command=_command(self._settings),
        )

    def _about(self, facts: TrainFacts) -> dict[str, object]:
        held_out = facts.held_out
        return {
            "format": FORMAT,
            "target": facts.target,
            "tokenizer_hash": vocabulary_hash(load_tokenizer(self._source)),
            "embeddings": "target",
            "head": "target",
            "shared_layers": self._settings.num_shared_layers,
            "acceptance_rate": round((held_out.same_top_ratio + held_out.overlap_ratio) / 2, 3),
            "held_out": {name: round(value, 4) for name, value in asdict(held_out).items()},
        }


def _command(settings: TrainSettings) -> str:
    words = ["outrider", "train", "draft-model", "--target", settings.target, "--output", "DIR"]
    words += ["--revision", settings.revision] if settings.revision else []
    for path in settings.text_files:
        words += ["--text-file", path.name]
    for flag, value in (
        ("--num-generated-tokens", settings.num_generated_tokens),
        ("--num-training-tokens", settings.num_training_tokens),
        ("--num-layers", settings.num_layers),
        ("--num-shared-layers", settings.num_shared_layers),
        ("--head-tokens", settings.head_tokens),
        ("--seed", settings.seed),
    ):
        words += [flag, str(value)]
    return shlex.join(words)
