"""Heads in training: what a row learns, that they learn it, resume, and keep the target's hidden states."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cluster.training.dataset import LabelledText, make_batch
from cluster.training.draft_net import DraftNet, head_batch, step_weights
from cluster.training.features import FeatureStore
from cluster.training.head_loop import HeldOutSteps
from cluster.training.held_out import HeldOut
from cluster.training.loop import Progress
from cluster.training.medusa import medusa_config, medusa_tensors
from tests.cluster.training.heads_harness import HIDDEN, STEPS, TEXTS, Reader, eagle3, ignore, loop, medusa, store
from tests.cluster.training.test_distill import TARGET_IDS, VOCAB, target_weights
from tests.cluster.training.training_harness import same_tensors


@torch.inference_mode()
def test_a_medusa_head_is_a_residual_block_before_the_targets_output_matrix() -> None:
    net = medusa()
    with torch.no_grad():
        for weight in net.trained().values():
            weight.normal_(std=0.2)
    features = torch.randn(1, 9, HIDDEN)
    batch = make_batch(
        [
            LabelledText(
                token_ids=np.arange(9, dtype=np.int32),
                label_start=1,
                label_ids=np.zeros((8, 2), np.int32),
                label_probs=np.zeros((8, 2), np.float32),
            )
        ],
        [0],
    )
    heads = head_batch(batch, features)
    own, weights = medusa_tensors(net), target_weights()
    for head, hidden in enumerate(net.hidden_steps(heads)):
        x = features[0, :8] / (features[0, :8].square().mean(-1, keepdim=True) + 1e-6).sqrt()
        linear = x @ net.trained()[f"{head}.0.linear.weight"].T + net.trained()[f"{head}.0.linear.bias"]
        expected = (x + linear * linear.sigmoid()) @ weights["lm_head.weight"].T
        torch.testing.assert_close(net.logits(hidden), expected, rtol=1e-4, atol=1e-4)
    assert {tensor.dtype for tensor in own.values()} == {torch.bfloat16}


def test_the_label_of_a_row_is_that_of_the_token_so_many_places_behind_it() -> None:
    batch = make_batch(TEXTS, (2, 5))
    heads = head_batch(batch, torch.zeros(*batch.token_ids.shape, 1))
    for step in range(STEPS):
        rows = heads.labelled(step).tolist()
        expected = []
        for text, index in enumerate((2, 5)):
            own = TEXTS[index]
            for row, position in enumerate(range(own.label_start - 1, len(own.token_ids) - 1)):
                if row + 1 + step < len(own.label_ids):
                    # The draft token after t + 1 + step is the one at t + 2 + step.
                    expected.append((text, position, own.label_ids[row + 1 + step].tolist()))
        found = [
            (int(heads.texts[row]), int(heads.positions[row]), batch.label_ids[row + 1 + step].tolist()) for row in rows
        ]
        assert found == expected
        behind = heads.tokens_behind(1 + step)[rows].tolist()
        assert behind == [int(TEXTS[(2, 5)[t]].token_ids[p + 1 + step]) for t, p, _ in expected]


def learnable_texts() -> list[LabelledText]:
    """Texts in which every token follows from the one before."""
    texts = []
    for start in range(12):
        ids = [int(TARGET_IDS[(start + 5 * n) % len(TARGET_IDS)]) for n in range(30)]
        labels = np.array(ids[4:], np.int32)[:, None]
        texts.append(
            LabelledText(
                token_ids=np.array(ids, np.int32),
                label_start=4,
                label_ids=labels,
                label_probs=np.full(labels.shape, 0.99, np.float32),
            )
        )
    return texts


def test_an_eagle3_head_learns_a_text_by_heart(tmp_path: Path) -> None:
    texts, net = learnable_texts(), eagle3()
    one = loop(net, tmp_path, texts, num_tokens=20_000, learning_rate=1e-2, checkpoint_interval_s=1e9)
    features = store(3, texts)
    assert one.evaluate(texts, features).greedy_length < 1.5
    one.run(texts, ignore)
    after = one.evaluate(texts, features)
    assert after.greedy_length > STEPS + 0.9
    assert all(step.same_top_ratio > 0.95 and step.overlap_ratio > 0.8 for step in after.steps)


def test_medusa_heads_come_nearer_to_the_target(tmp_path: Path) -> None:
    texts = learnable_texts()
    one = loop(medusa(), tmp_path, texts, num_tokens=10_000, learning_rate=1e-2, checkpoint_interval_s=1e9)
    features = store(1, texts)
    before = one.evaluate(texts, features)
    one.run(texts, ignore)
    after = one.evaluate(texts, features)
    for earlier, later in zip(before.steps, after.steps, strict=True):
        assert later.loss < 0.9 * earlier.loss
        assert later.overlap_ratio > 1.5 * earlier.overlap_ratio


@pytest.mark.parametrize("make", [eagle3, medusa])
@pytest.mark.parametrize("interval_s", [0.0, 1e9], ids=["checkpointed", "no checkpoint yet"])
def test_a_run_that_was_killed_ends_with_the_same_weights(make: Any, interval_s: float, tmp_path: Path) -> None:
    whole = loop(make(), tmp_path / "whole", checkpoint_interval_s=1e9)
    whole.run(TEXTS, ignore)
    assert whole.progress.epoch >= 1  # so that order and position of several epochs are restored

    def kill(progress: Progress, loss: float) -> None:
        if progress.num_steps == 9:
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        loop(make(), tmp_path / "killed", checkpoint_interval_s=interval_s).run(TEXTS, kill)
    resumed = loop(make(), tmp_path / "killed")
    assert resumed.progress.num_steps == (8 if interval_s == 0 else 0)
    resumed.run(TEXTS, ignore)
    assert resumed.progress == whole.progress
    assert same_tensors(resumed.net.trained(), whole.net.trained())


def test_embedding_norm_and_output_matrix_of_the_target_stay_as_they_are(tmp_path: Path) -> None:
    weights = target_weights()
    nets: list[DraftNet] = [eagle3(), medusa()]
    for net in nets:
        loop(net, tmp_path / type(net).__name__).run(TEXTS, ignore)
    assert torch.equal(nets[0].get_buffer("embedding_TH"), weights["model.embed_tokens.weight"])
    assert torch.equal(nets[1].get_buffer("head_VH"), weights["lm_head.weight"])
    assert torch.equal(nets[1].get_parameter("norm.weight"), weights["model.norm.weight"])


def test_hidden_states_on_disk_are_those_that_were_computed_and_are_computed_once(tmp_path: Path) -> None:
    reader = Reader(2)
    num_bytes = sum(len(text.token_ids) for text in TEXTS[:20]) * 2 * reader.num_features
    kept = FeatureStore(reader, TEXTS, tmp_path, num_bytes)  # type: ignore[arg-type]
    fresh = store(2, TEXTS)
    batches = [make_batch(TEXTS, (n, n + 1, n + 2)) for n in range(0, 30, 3)]
    for _ in range(2):
        assert all(torch.equal(kept.of(batch), fresh.of(batch)) for batch in batches)
    assert reader.num_reads == 30 + 10
    # A later run, with room for more, finds them.
    more = Reader(2)
    again = FeatureStore(more, TEXTS, tmp_path, 1 << 30)  # type: ignore[arg-type]
    assert all(torch.equal(again.of(batch), fresh.of(batch)) for batch in batches)
    assert more.num_reads == 10


def test_written_medusa_heads_have_the_published_names() -> None:
    tensors = medusa_tensors(medusa(2))
    assert {name: tuple(tensor.shape) for name, tensor in tensors.items()} == {
        "0.0.linear.weight": (32, 32),
        "0.0.linear.bias": (32,),
        "1.0.linear.weight": (32, 32),
        "1.0.linear.bias": (32,),
    }
    config = medusa_config(2, 32, VOCAB, "target")
    assert (config["medusa_num_heads"], config["medusa_num_layers"]) == (2, 1)


def test_lengths_follow_from_the_steps() -> None:
    steps = tuple(HeldOut(loss=1.0, same_top_ratio=r, overlap_ratio=r / 2) for r in (0.8, 0.5, 0.5))
    assert HeldOutSteps(steps=steps).greedy_length == pytest.approx(1 + 0.8 + 0.4 + 0.2)
    assert HeldOutSteps(steps=steps).sampled_length == pytest.approx(1 + 0.4 + 0.1 + 0.025)
    weights = step_weights(3)
    assert sum(weights) == pytest.approx(1.0)
    assert weights[1] / weights[0] == pytest.approx(0.8)
