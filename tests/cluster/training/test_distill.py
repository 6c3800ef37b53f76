"""The training loop: it learns, it resumes as if it had not stopped, and its loss is what its docstring says."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import GPTNeoXConfig, LlamaConfig, LlamaModel

from cluster.errors import LoadError
from cluster.training.distill import DistillConfig, Distiller
from cluster.training.held_out import HeldOut, lumped_divergence
from cluster.training.loop import Progress
from cluster.training.student import Student, starting_layers, student_config
from tests.cluster.training.training_harness import random_texts, same_tensors

VOCAB, COLUMNS = 96, 64
TARGET_IDS = torch.arange(0, VOCAB)[torch.arange(VOCAB) % 3 != 1]


def target_config(**changes: Any) -> LlamaConfig:
    return LlamaConfig(
        **{
            "vocab_size": VOCAB,
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 4,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "head_dim": 16,
            "max_position_embeddings": 128,
            **changes,
        }
    )


def target_weights() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    sizes = {
        "self_attn.q_proj": (32, 32),
        "self_attn.k_proj": (16, 32),
        "self_attn.v_proj": (16, 32),
        "self_attn.o_proj": (32, 32),
        "mlp.gate_proj": (48, 32),
        "mlp.up_proj": (48, 32),
        "mlp.down_proj": (32, 48),
        "input_layernorm": (32,),
        "post_attention_layernorm": (32,),
    }
    shapes: dict[str, tuple[int, ...]] = {
        f"model.layers.{layer}.{name}.weight": shape for layer in range(4) for name, shape in sizes.items()
    }
    shapes |= {"model.embed_tokens.weight": (VOCAB, 32), "lm_head.weight": (VOCAB, 32), "model.norm.weight": (32,)}
    return {
        name: torch.ones(shape) if name.endswith("norm.weight") else 0.2 * torch.randn(shape, generator=generator)
        for name, shape in shapes.items()
    }


def student(num_shared_layers: int = 1) -> Student:
    config = student_config(target_config(), num_shared_layers + 2)
    return Student(config, target_weights(), starting_layers(4, 2, num_shared_layers), TARGET_IDS)


def distiller(folder: Path, **changes: Any) -> Distiller:
    folder.mkdir(exist_ok=True)
    config = DistillConfig(**{"num_tokens": 6000, "tokens_per_batch": 200, "checkpoint_interval_s": 0.0, **changes})
    return Distiller(student(), TARGET_IDS, VOCAB, config, folder)


TEXTS = random_texts(60, target_config())


def ignore(progress: Progress, loss: float) -> None:
    pass


def test_the_loss_falls(tmp_path: Path) -> None:
    losses: list[float] = []
    one = distiller(tmp_path, num_tokens=20_000, learning_rate=1e-2)
    before = one.evaluate(TEXTS)
    one.run(TEXTS, lambda progress, loss: losses.append(loss))
    assert one.progress.num_steps == len(losses) > 80
    after = one.evaluate(TEXTS)
    assert after.loss < 0.9 * before.loss
    assert sum(losses[-20:]) < sum(losses[:20])
    assert after.same_top_ratio > before.same_top_ratio + 0.1
    assert after.overlap_ratio > before.overlap_ratio


def test_embedding_shared_layers_and_head_stay_the_targets(tmp_path: Path) -> None:
    one = distiller(tmp_path)
    one.run(TEXTS, ignore)
    weights = target_weights()
    assert torch.equal(one.student.model.embed_tokens.weight, weights["model.embed_tokens.weight"])
    assert torch.equal(dict(one.student.named_buffers())["head_VH"], weights["lm_head.weight"][TARGET_IDS])
    assert not torch.equal(one.student.trained()["model.norm.weight"], weights["model.norm.weight"])
    layers = one.student.model.state_dict()
    assert all(
        torch.equal(layers[name.removeprefix("model.")], weight)
        for name, weight in weights.items()
        if name.startswith("model.layers.0.")
    )
    assert not any(name.startswith("model.layers.0.") for name in one.student.trained())


@pytest.mark.parametrize("max_kept_bytes", [0, 10_000], ids=["nothing", "some"])
def test_what_of_the_shared_layers_is_kept_changes_no_weight(tmp_path: Path, max_kept_bytes: int) -> None:
    all_kept, some_kept = distiller(tmp_path / "all"), distiller(tmp_path / "some", max_kept_bytes=max_kept_bytes)
    all_kept.run(TEXTS, ignore)
    some_kept.run(TEXTS, ignore)
    assert same_tensors(all_kept.student.trained(), some_kept.student.trained())


def test_a_student_is_a_llama(tmp_path: Path) -> None:
    one = student()
    reference = LlamaModel(one.config)
    reference.load_state_dict(one.model.state_dict())
    token_ids, rows = torch.arange(24).view(2, 12), torch.arange(24)
    hidden = reference(input_ids=token_ids, use_cache=False).last_hidden_state.flatten(0, 1)
    torch.testing.assert_close(one(token_ids, rows), hidden @ target_weights()["lm_head.weight"][TARGET_IDS].T)


@pytest.mark.parametrize("stop_at", [1, 17, 31])
@pytest.mark.parametrize("interval_s", [0.0, 1e9], ids=["checkpointed", "no checkpoint yet"])
def test_a_run_that_was_killed_ends_with_the_same_steps_and_weights(
    tmp_path: Path, stop_at: int, interval_s: float
) -> None:
    whole = distiller(tmp_path / "whole")
    whole.run(TEXTS, ignore)
    assert whole.progress.epoch >= 2  # so that order and position of several epochs are restored

    def kill(progress: Progress, loss: float) -> None:
        if progress.num_steps == stop_at:
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        distiller(tmp_path / "killed", checkpoint_interval_s=interval_s).run(TEXTS, kill)
    resumed = distiller(tmp_path / "killed")
    # The step that was killed came after the checkpoint of the one before it.
    assert resumed.progress.num_steps == (stop_at - 1 if interval_s == 0 else 0)
    resumed.run(TEXTS, ignore)
    assert resumed.progress == whole.progress
    assert same_tensors(resumed.student.trained(), whole.student.trained())


def test_a_finished_run_is_done_at_once(tmp_path: Path) -> None:
    first = distiller(tmp_path)
    first.run(TEXTS, ignore)
    again = distiller(tmp_path)
    assert again.is_done
    assert same_tensors(again.student.trained(), first.student.trained())


@pytest.mark.parametrize("content", [b"", b"not a checkpoint"])
def test_a_damaged_checkpoint_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "checkpoint.pt").write_bytes(content)
    with pytest.raises(LoadError, match=r"checkpoint\.pt is damaged or of another run"):
        distiller(tmp_path)


def test_a_checkpoint_of_another_student_is_refused(tmp_path: Path) -> None:
    distiller(tmp_path).save()
    one_layer = Student(student_config(target_config(), 1), target_weights(), (0,), TARGET_IDS)
    with pytest.raises(LoadError, match="other tensors"):
        Distiller(one_layer, TARGET_IDS, VOCAB, DistillConfig(num_tokens=1), tmp_path)


def test_lumped_divergence_is_the_cross_entropy_of_full_distributions_with_all_other_tokens_as_one() -> None:
    """Against the sum over every token of the vocabulary, written plainly."""
    generator = torch.Generator().manual_seed(0)
    rows, num_labels = 12, 9
    p_RV = torch.randn(rows, VOCAB, generator=generator).mul(2).softmax(-1).double()
    logits_RC = torch.randn(rows, COLUMNS, generator=generator).double()
    q_RV = torch.zeros(rows, VOCAB).double()
    q_RV[:, TARGET_IDS] = logits_RC.softmax(-1)
    top = p_RV.topk(num_labels)
    column_of = torch.full((VOCAB,), -1)
    column_of[TARGET_IDS] = torch.arange(COLUMNS)
    expected = 0.0
    for row in range(rows):
        own = [int(token) for token in top.indices[row] if int(token) in TARGET_IDS.tolist()]
        rest_p = sum(float(p_RV[row, v]) for v in range(VOCAB) if v not in own)
        rest_q = sum(float(q_RV[row, v]) for v in range(VOCAB) if v not in own)
        for token in own:
            expected -= float(p_RV[row, token] * q_RV[row, token].log())
        expected -= rest_p * float(torch.tensor(rest_q).log())
    actual = lumped_divergence(logits_RC, top.indices, top.values, column_of)
    assert any(int(token) not in TARGET_IDS.tolist() for token in top.indices.flatten())
    assert float(actual) == pytest.approx(expected / rows, rel=1e-5)


def test_lumped_divergence_is_least_where_the_student_equals_the_target() -> None:
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(4, VOCAB, generator=generator)
    top = logits.softmax(-1).topk(8)
    at_target = lumped_divergence(logits, top.indices, top.values, torch.arange(VOCAB))
    for _ in range(20):
        other = logits + 0.3 * torch.randn(4, VOCAB, generator=generator)
        assert lumped_divergence(other, top.indices, top.values, torch.arange(VOCAB)) > at_target


def test_evaluation_compares_likeliest_tokens_and_overlap_on_every_position(tmp_path: Path) -> None:
    """Against one text at a time, over full distributions, without padding."""
    one = distiller(tmp_path)
    same, overlap, count = 0, 0.0, 0
    for text in TEXTS:
        rows = torch.arange(text.label_start - 1, len(text.token_ids) - 1)
        with torch.no_grad():
            logits = one.student(torch.from_numpy(text.token_ids).long()[None], rows)
        q_RV = torch.zeros(len(rows), VOCAB)
        q_RV[:, TARGET_IDS] = logits.softmax(-1)
        ids, probs = torch.from_numpy(text.label_ids).long(), torch.from_numpy(text.label_probs.copy())
        same += int((q_RV.argmax(-1) == ids[:, 0]).sum())
        overlap += float(torch.minimum(q_RV.gather(1, ids), probs).sum())
        count += len(rows)
    found: HeldOut = one.evaluate(TEXTS)
    assert found.same_top_ratio == pytest.approx(same / count)
    assert found.overlap_ratio == pytest.approx(overlap / count, rel=1e-4)


def test_a_student_starts_from_layers_at_equal_distances() -> None:
    assert starting_layers(30, 2) == (0, 15)
    assert starting_layers(30, 1) == (0,)
    assert starting_layers(4, 4) == (0, 1, 2, 3)
    weights, trained = target_weights(), student(0).trained()
    assert torch.equal(trained["model.layers.1.mlp.up_proj.weight"], weights["model.layers.2.mlp.up_proj.weight"])


def test_behind_shared_layers_the_last_one_starts_from_the_targets_last() -> None:
    assert starting_layers(30, 2, 4) == (16, 29)
    assert starting_layers(30, 1, 6) == (29,)
    assert starting_layers(4, 2, 2) == (2, 3)
    weights, trained = target_weights(), student(1).trained()
    assert torch.equal(trained["model.layers.2.mlp.up_proj.weight"], weights["model.layers.3.mlp.up_proj.weight"])


def test_layers_that_are_not_llamas_are_trained_but_not_shared() -> None:
    weights = target_weights()
    weights |= {f"model.layers.{layer}.self_attn.q_norm.weight": torch.ones(16) for layer in range(4)}
    Student(student_config(target_config(), 2), weights, starting_layers(4, 2), TARGET_IDS)
    with pytest.raises(LoadError, match="--num-shared-layers 0"):
        Student(student_config(target_config(), 2), weights, (3,), TARGET_IDS)


def test_tensors_that_a_llama_has_no_place_for_are_left_out() -> None:
    weights = target_weights()
    weights["model.layers.0.self_attn.q_norm.weight"] = torch.ones(16)
    built = Student(student_config(target_config(), 1), weights, (0,), TARGET_IDS)
    assert "model.layers.0.self_attn.q_norm.weight" not in built.trained()


def test_targets_unlike_llama_are_refused() -> None:
    weights = target_weights()
    del weights["model.embed_tokens.weight"]
    with pytest.raises(LoadError, match="relatives of Llama"):
        Student(student_config(target_config(), 1), weights, (0,), TARGET_IDS)
    with pytest.raises(LoadError, match="a gpt_neox has no num_key_value_heads"):
        student_config(GPTNeoXConfig(), 1)
