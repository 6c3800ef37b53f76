"""The phases of `outrider train draft-model`: generate, train, write. Each goes on from what the earlier ones left."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict

import torch
from torch import Tensor

from cluster.engine.drafters.draft_source import FORMAT
from cluster.engine.drafters.vocab_check import vocabulary_hash
from cluster.engine.model_loader import load_tokenizer
from cluster.errors import ConfigError
from cluster.training.card import TrainFacts, render_card
from cluster.training.dataset import LabelledText
from cluster.training.distill import DistillConfig, Distiller
from cluster.training.export import write_draft_folder
from cluster.training.loop import StepReporter
from cluster.training.reporter import Reporter
from cluster.training.run_data import RunData
from cluster.training.settings import RunSettings, TrainSettings, open_run
from cluster.training.student import Student, starting_layers, student_config, training_device


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
        self.data = RunData(settings, reporter)
        target = self.data.target
        num_target_layers = target.num_hidden_layers
        num_layers = settings.num_layers + settings.num_shared_layers
        if num_layers > num_target_layers:
            allowed = f"with --num-shared-layers at most {num_target_layers}, the layers of the target"
            raise ConfigError(field="--num-layers", value=settings.num_layers, allowed=allowed)
        self._config = student_config(target, num_layers)
        self._start_layers = starting_layers(num_target_layers, settings.num_layers, settings.num_shared_layers)
        open_run(settings)
        self._distiller: Distiller | None = None

    def generate(self) -> None:
        """Let the target write text until there is enough."""
        self.data.generate()

    def train(self) -> None:
        """Distil until the student has seen enough tokens; saves checkpoints."""
        settings = self._settings
        torch.set_num_threads(self.data.num_threads)  # the engine leaves torch with one
        texts = self.data.texts(held_out=False)
        config = DistillConfig(num_tokens=settings.num_training_tokens, seed=settings.seed)
        distiller = self._build_distiller(self.data.target_ids(texts), config)
        self._reporter.begin("train", distiller.progress.num_tokens, settings.num_training_tokens)
        distiller.run(texts, StepReporter(self._reporter, distiller.progress))
        self._distiller = distiller

    def write(self) -> TrainFacts:
        """Measure on held-out text and write the folder; what an earlier run wrote there is replaced."""
        distiller = self._distiller
        assert distiller is not None, "train first"
        self._reporter.begin("measure and write", 0, 1)
        distiller.round_weights()
        texts = self.data.texts(held_out=True)
        tensors = {**distiller.student.trained(), "target_ids": distiller.target_ids.to("cpu", torch.int32)}
        facts = self._facts(distiller, tensors, texts)
        write_draft_folder(self._settings.output, self._config, tensors, self._about(facts), render_card(facts))
        self._reporter.advance(1)
        return facts

    def _build_distiller(self, target_ids: Tensor, config: DistillConfig) -> Distiller:
        weights = self.data.weights()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self._settings.seed)
            student = Student(self._config, weights, self._start_layers, target_ids)
        torch.nn.Module.to(student, training_device())
        return Distiller(student, target_ids, self.data.target.vocab_size, config, self._settings.run_folder)

    def _facts(self, distiller: Distiller, tensors: Mapping[str, Tensor], texts: Sequence[LabelledText]) -> TrainFacts:
        num_parameters = sum(tensor.numel() for tensor in tensors.values() if tensor.is_floating_point())
        return TrainFacts(
            target=self.data.source.model_id,
            start_layers=self._start_layers,
            num_shared_layers=self._settings.num_shared_layers,
            num_columns=len(distiller.target_ids),
            vocab_size=self.data.target.vocab_size,
            num_parameters=num_parameters,
            num_bytes=2 * num_parameters + 4 * len(distiller.target_ids),
            sources=self.data.sources(),
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
            "tokenizer_hash": vocabulary_hash(load_tokenizer(self.data.source)),
            "embeddings": "target",
            "head": "target",
            "shared_layers": self._settings.num_shared_layers,
            "acceptance_rate": round((held_out.same_top_ratio + held_out.overlap_ratio) / 2, 3),
            "held_out": {name: round(value, 4) for name, value in asdict(held_out).items()},
        }


def _command(settings: TrainSettings) -> str:
    flags = (
        ("--num-layers", settings.num_layers),
        ("--num-shared-layers", settings.num_shared_layers),
        ("--head-tokens", settings.head_tokens),
    )
    return run_command("draft-model", settings, flags)


def run_command(kind: str, settings: RunSettings, flags: Sequence[tuple[str, float]]) -> str:
    """The command line that makes the result again; files by name, folders by their flag's word."""
    words = ["outrider", "train", kind, "--target", settings.target, "--output", "DIR"]
    words += ["--revision", settings.revision] if settings.revision else []
    words += ["--data", "DATA"] if settings.data else []
    for path in settings.text_files:
        words += ["--text-file", path.name]
    for flag, value in (
        ("--num-generated-tokens", settings.num_generated_tokens),
        ("--num-training-tokens", settings.num_training_tokens),
        *flags,
        ("--seed", settings.seed),
    ):
        words += [flag, str(value)]
    return shlex.join(words)
