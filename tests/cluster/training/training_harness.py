"""A tiny target, a few shards of its text, and a reporter that remembers."""

import json
from pathlib import Path

import numpy as np
import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from cluster.engine.drafters.vocab_check import vocabulary_hash
from cluster.engine.model_loader import load_config, load_weights
from cluster.engine.model_source import ModelSource
from cluster.training.dataset import LabelledText
from cluster.training.export import write_draft_folder
from cluster.training.prompts import INVENTED, TrainingPrompt
from cluster.training.settings import TrainSettings
from cluster.training.shards import ShardWriter, Text
from cluster.training.student import Student, starting_layers, student_config
from tests.tiny import EOS_TOKEN_ID, VOCAB_SIZE, build_tokenizer

NUM_LABELS = 20


class Notes:
    """A reporter; `stop_after` raises KeyboardInterrupt after so many calls in a phase."""

    def __init__(self, phase: str = "", stop_after: int = 0) -> None:
        self.phases: list[tuple[str, int, int]] = []
        self.notes: list[str] = []
        self._phase, self._stop_after, self._num_calls = phase, stop_after, 0

    def begin(self, phase: str, done: int, total: int) -> None:
        self.phases.append((phase, done, total))

    def advance(self, amount: int, note: str = "") -> None:
        self.notes.append(note)
        if self.phases[-1][0] == self._phase:
            self._num_calls += 1
            if self._num_calls == self._stop_after:
                raise KeyboardInterrupt


def save_target(folder: Path) -> Path:
    """A random Llama of four layers that the CPU kernels run, so that its texts do not depend on the batch.

    Its distributions are sharp and depend mostly on the last token: there is much to learn from a little text.
    """
    config = LlamaConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=4,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        max_position_embeddings=1024,
        initializer_range=0.15,
        eos_token_id=EOS_TOKEN_ID,
        dtype="bfloat16",
    )
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        model = LlamaForCausalLM(config)
        for name, weight in model.named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                weight.mul_(0.3)
        model.model.norm.weight.mul_(3.0)
    nn.Module.to(model, torch.bfloat16)
    model.save_pretrained(folder)
    build_tokenizer().save_pretrained(folder)
    return folder


def tiny_settings(target: Path, output: Path, **changes: object) -> TrainSettings:
    values: dict[str, object] = {
        "target": str(target),
        "output": output,
        "num_generated_tokens": 3000,
        "num_training_tokens": 90_000,
        "num_layers": 2,
        "num_shared_layers": 1,
        "head_tokens": 300,
        "num_threads": 1,
        "max_new_tokens": 24,
        "prompts_per_shard": 40,
    }
    return TrainSettings(**{**values, **changes})  # type: ignore[arg-type]


def random_texts(num_texts: int, config: LlamaConfig, seed: int = 0) -> list[LabelledText]:
    """Texts of random tokens, 4 to 40 long, with random labels."""
    rng = np.random.default_rng(seed)
    texts = []
    for _ in range(num_texts):
        length = int(rng.integers(4, 40))
        start = int(rng.integers(1, length))
        shape = (length - start, NUM_LABELS)
        ids = np.argsort(rng.random((shape[0], config.vocab_size)), axis=1)[:, :NUM_LABELS]
        probs = rng.dirichlet(np.ones(NUM_LABELS), shape[0]) * rng.uniform(0.3, 1.0, (shape[0], 1))
        texts.append(
            LabelledText(
                token_ids=rng.integers(0, config.vocab_size, length).astype(np.int32),
                label_start=start,
                label_ids=ids.astype(np.int32),
                label_probs=np.sort(probs, axis=1)[:, ::-1].astype(np.float32),
            )
        )
    return texts


def same_tensors(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def save_draft(folder: Path, target: Path, *, num_layers: int, num_columns: int) -> Path:
    """An untrained draft model: some of the target's layers as they are. With all layers and columns: the target."""
    source = ModelSource(folder=target, model_id=target.name)
    config = student_config(load_config(source), num_layers)
    target_ids = torch.arange(num_columns)
    student = Student(config, load_weights(source, torch.bfloat16), starting_layers(4, num_layers), target_ids)
    about = {
        "format": 1,
        "target": target.name,
        "tokenizer_hash": vocabulary_hash(build_tokenizer()),
        "embeddings": "target",
        "head": "target",
    }
    tensors = {**student.trained(), "target_ids": target_ids.int()}
    write_draft_folder(folder, config, tensors, about, "# Draft model\n\n## Acceptance\n\nNot yet.\n\n## Last\n\nend\n")
    return folder


def write_spec_bench(path: Path) -> Path:
    """Questions of two categories in Spec-Bench's form, one of them with two turns."""
    questions: list[dict[str, object]] = [
        {"question_id": n, "category": "qa", "turns": [f"question {n} about {n * n}"]} for n in range(4)
    ]
    questions.append({"question_id": 81, "category": "writing", "turns": ["write a poem", "now again, but longer"]})
    path.write_text("".join(json.dumps(question) + "\n" for question in questions), "utf-8")
    return path


def write_shards(folder: Path, num_tokens: int) -> Path:
    """Two shards of random text and labels, so that one can be held out."""
    rng = np.random.default_rng(0)
    shards = ShardWriter(folder, 1)
    for index in range(2):
        prompt = TrainingPrompt(token_ids=(5, 6, 7), temperature=1.0, max_tokens=num_tokens, source=INVENTED)
        ids = rng.integers(3, VOCAB_SIZE, (num_tokens, NUM_LABELS))
        logprobs = np.full(ids.shape, np.log(0.04))
        shards.add(index, [Text(index, prompt, ids[:, 0].tolist(), ids.tolist(), logprobs.tolist())])
        shards.write_next()
    return folder
