"""Heads in training with a target that is made up: hidden states are a fixed function of the text."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cluster.training.dataset import LabelledText
from cluster.training.draft_net import DraftNet
from cluster.training.eagle3 import Eagle3Net
from cluster.training.features import FeatureStore
from cluster.training.head_loop import HeadLoop
from cluster.training.loop import LoopConfig, Progress
from cluster.training.medusa import MedusaNet
from cluster.training.student import student_config
from tests.cluster.training.test_distill import TARGET_IDS, VOCAB, target_config, target_weights
from tests.cluster.training.training_harness import random_texts

HIDDEN, HEAD_DIM, STEPS = 32, 8, 3
TEXTS = random_texts(40, target_config(), seed=7)


class Reader:
    """Stands for the target: its hidden states are a fixed function of the text."""

    def __init__(self, num_layers: int) -> None:
        self.num_features, self.num_reads = num_layers * HIDDEN, 0

    def read(self, token_ids: Any) -> Tensor:
        self.num_reads += 1
        generator = torch.Generator().manual_seed(int(np.dot(token_ids, np.arange(len(token_ids)))))
        return torch.randn(len(token_ids), self.num_features, generator=generator).bfloat16()


def eagle3(num_steps: int = STEPS) -> Eagle3Net:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        config = student_config(target_config(num_attention_heads=4, num_key_value_heads=2, head_dim=HEAD_DIM), 1)
        return Eagle3Net(
            config, num_target_layers=4, weights=target_weights(), target_ids=TARGET_IDS, num_steps=num_steps
        )


def medusa(num_heads: int = STEPS) -> MedusaNet:
    weights, ids = target_weights(), torch.arange(VOCAB)
    return MedusaNet(target_config(), weights=weights, target_ids=ids, num_heads=num_heads)


def store(num_layers: int, texts: list[LabelledText], **kept: Any) -> FeatureStore:
    return FeatureStore(Reader(num_layers), texts, **kept)  # type: ignore[arg-type]


def loop(net: DraftNet, folder: Path, texts: list[LabelledText] = TEXTS, **changes: Any) -> HeadLoop:
    folder.mkdir(exist_ok=True)
    values = {"num_tokens": 2500, "tokens_per_batch": 200, "checkpoint_interval_s": 0.0, **changes}
    ids = TARGET_IDS if isinstance(net, Eagle3Net) else torch.arange(VOCAB)
    return HeadLoop(
        net,
        target_ids=ids,
        vocab_size=VOCAB,
        config=LoopConfig(**values),
        folder=folder,
        features=store(len(net.feature_layers), texts),
    )


def ignore(progress: Progress, loss: float) -> None:
    pass
