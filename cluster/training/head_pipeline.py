"""The phases of `outrider train eagle3` and `medusa`: generate, train, write. Each goes on from what the earlier left.

Neither SpecForge nor `speculators` is used to train: both read the target through SGLang or vLLM on a GPU and bring a
data format of their own. What is written is their checkpoint layout, so that either can read it.
"""

from collections.abc import Sequence
from dataclasses import asdict

import torch
from torch import Tensor

from cluster.engine.drafters.medusa_source import WEIGHTS_FILE as MEDUSA_WEIGHTS_FILE
from cluster.engine.drafters.vocab_check import vocabulary_hash
from cluster.engine.model_checks import WEIGHTS_FILE
from cluster.engine.model_loader import load_tokenizer
from cluster.engine.model_runner import FeatureRunner
from cluster.engine.startup import load_parts
from cluster.errors import LoadError
from cluster.training.dataset import LabelledText
from cluster.training.draft_net import DraftNet
from cluster.training.eagle3 import Eagle3Net, eagle3_config, eagle3_tensors
from cluster.training.export import write_head_folder
from cluster.training.features import FeatureStore, TargetReader
from cluster.training.head_card import HeadFacts, render_head_card
from cluster.training.head_loop import HeadLoop
from cluster.training.loop import LoopConfig, StepReporter
from cluster.training.medusa import MedusaNet, medusa_config, medusa_tensors
from cluster.training.pipeline import run_command
from cluster.training.reporter import Reporter
from cluster.training.run_data import RunData
from cluster.training.settings import HeadSettings, open_run
from cluster.training.student import student_config, training_device

FORMAT = 1


class HeadTraining:
    """One run. Call `generate`, `train` and `write` in this order.

    Args:
        settings: what is wanted.
        reporter: hears of progress.

    Raises:
        ConfigError: a setting does not fit the target, or the folder holds another run.
        LoadError: the target is refused.
    """

    def __init__(self, settings: HeadSettings, reporter: Reporter) -> None:
        self._settings, self._reporter = settings, reporter
        self.data = RunData(settings, reporter)
        self._layer_config = student_config(self.data.target, 1)
        open_run(settings)
        self._reader: TargetReader | None = None
        self._loop: HeadLoop | None = None

    def generate(self) -> None:
        """Let the target write text until there is enough."""
        self.data.generate()

    def train(self) -> None:
        """Train until the head has seen enough tokens; saves checkpoints."""
        settings = self._settings
        texts = self.data.texts(held_out=False)
        target_ids = self._columns(texts)
        net = self._build_net(target_ids)
        self._reader = self._open_target(net.feature_layers)
        torch.set_num_threads(self.data.num_threads)  # the target leaves torch with one
        loop = HeadLoop(
            net,
            target_ids=target_ids,
            vocab_size=self.data.target.vocab_size,
            config=LoopConfig(
                num_tokens=settings.num_training_tokens,
                tokens_per_batch=settings.tokens_per_batch,
                learning_rate=settings.learning_rate,
                seed=settings.seed,
            ),
            folder=settings.run_folder,
            features=FeatureStore(self._reader, texts, settings.run_folder, settings.max_feature_bytes),
        )
        self._reporter.begin("train", loop.progress.num_tokens, settings.num_training_tokens)
        loop.run(texts, StepReporter(self._reporter, loop.progress))
        self._loop = loop

    def write(self) -> HeadFacts:
        """Measure on held-out text and write the folder; what an earlier run wrote there is replaced."""
        loop = self._loop
        assert loop is not None, "train first"
        self._reporter.begin("measure and write", 0, 1)
        loop.round_weights()
        config, tensors, weights_file = self._checkpoint(loop)
        facts = self._facts(loop, tensors)
        write_head_folder(
            self._settings.output,
            config,
            tensors,
            weights_file=weights_file,
            about=self._about(facts),
            card=render_head_card(facts),
        )
        self._reporter.advance(1)
        return facts

    def close(self) -> None:
        """Release the target."""
        if self._reader is not None:
            self._reader.close()

    def _columns(self, texts: Sequence[LabelledText]) -> Tensor:
        """Token ids that are told apart: all for Medusa, whose heads share the target's output matrix."""
        if self._settings.kind == "medusa":
            return torch.arange(self.data.target.vocab_size)
        return self.data.target_ids(texts)

    def _build_net(self, target_ids: Tensor) -> DraftNet:
        settings, target, weights = self._settings, self.data.target, self.data.weights()
        net: DraftNet
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(settings.seed)
            if settings.kind == "medusa":
                net = MedusaNet(target, weights=weights, target_ids=target_ids, num_heads=settings.num_draft_tokens)
            else:
                net = Eagle3Net(
                    self._layer_config,
                    num_target_layers=target.num_hidden_layers,
                    weights=weights,
                    target_ids=target_ids,
                    num_steps=settings.num_draft_tokens,
                )
        torch.nn.Module.to(net, training_device())
        return net

    def _open_target(self, feature_layers: tuple[int, ...]) -> TargetReader:
        runner = load_parts(self.data.engine_config(1)).runner
        if not isinstance(runner, FeatureRunner):
            raise LoadError(f"{self.data.source.model_id}: its hidden states cannot be read")
        return TargetReader(runner, feature_layers)

    def _checkpoint(self, loop: HeadLoop) -> tuple[dict[str, object], dict[str, Tensor], str]:
        """Configuration, tensors and the name of their file."""
        net, target = loop.net, self.data.target
        if isinstance(net, MedusaNet):
            model_id = self.data.source.model_id
            config = medusa_config(net.num_steps, target.hidden_size, target.vocab_size, model_id)
            return config, medusa_tensors(net), MEDUSA_WEIGHTS_FILE
        assert isinstance(net, Eagle3Net)
        config = eagle3_config(self._layer_config, net.feature_layers, len(loop.target_ids))
        return config, eagle3_tensors(net, loop.target_ids, target.vocab_size), WEIGHTS_FILE

    def _facts(self, loop: HeadLoop, tensors: dict[str, Tensor]) -> HeadFacts:
        settings = self._settings
        texts = self.data.texts(held_out=True)
        assert self._reader is not None, "train first"
        return HeadFacts(
            kind=settings.kind,
            target=self.data.source.model_id,
            feature_layers=loop.net.feature_layers,
            num_draft_tokens=settings.num_draft_tokens,
            num_columns=len(loop.target_ids),
            vocab_size=self.data.target.vocab_size,
            num_parameters=sum(tensor.numel() for tensor in tensors.values() if tensor.is_floating_point()),
            num_bytes=sum(tensor.numel() * tensor.element_size() for tensor in tensors.values()),
            sources=self.data.sources(),
            num_training_tokens=loop.progress.num_tokens,
            num_steps=loop.progress.num_steps,
            seed=settings.seed,
            held_out=loop.evaluate(texts, FeatureStore(self._reader, texts)),
            num_held_out_tokens=sum(len(text.label_ids) for text in texts),
            command=_command(settings),
        )

    def _about(self, facts: HeadFacts) -> dict[str, object]:
        steps = [{name: round(value, 4) for name, value in asdict(step).items()} for step in facts.held_out.steps]
        return {
            "format": FORMAT,
            "kind": facts.kind,
            "target": facts.target,
            "tokenizer_hash": vocabulary_hash(load_tokenizer(self.data.source)),
            "held_out": {
                "steps": steps,
                "greedy_length": round(facts.held_out.greedy_length, 3),
                "sampled_length": round(facts.held_out.sampled_length, 3),
            },
        }


def _command(settings: HeadSettings) -> str:
    flags: list[tuple[str, float]] = [
        ("--num-draft-tokens", settings.num_draft_tokens),
        ("--learning-rate", settings.learning_rate),
    ]
    if settings.kind == "eagle3":
        flags.append(("--head-tokens", settings.head_tokens))
    return run_command(settings.kind, settings, flags)
