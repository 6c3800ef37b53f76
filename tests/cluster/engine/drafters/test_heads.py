"""Heads are told apart by their configuration, loaded for a real target, timed, and refused by name."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from cluster.engine.drafters.eagle3 import Eagle3Head
from cluster.engine.drafters.head_build import measure_step_times
from cluster.engine.drafters.heads import head_kind, head_target, heads_memory_bytes, load_heads
from cluster.engine.model_source import ModelSource
from cluster.errors import ConfigError, LoadError
from tests.cluster.engine.drafters.head_harness import head_target as tiny_target
from tests.cluster.engine.drafters.head_harness import save_specforge, save_speculators
from tests.tiny import save_tiny_model


def test_the_configuration_tells_which_head_it_is(tmp_path: Path) -> None:
    assert head_kind("mtp") == "mtp"
    assert head_kind(str(save_specforge(tmp_path / "a"))) == "eagle3"
    assert head_kind(str(save_speculators(tmp_path / "b"))) == "eagle3"
    (tmp_path / "config.json").write_text('{"medusa_num_heads": 2, "medusa_num_layers": 1}')
    assert head_kind(str(tmp_path)) == "medusa"


def test_what_is_no_head_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="nowhere"):
        head_kind(str(tmp_path / "nowhere"))
    with pytest.raises(LoadError, match="LlamaForCausalLM"):
        head_kind(str(save_specforge(tmp_path / "llama", architectures=["LlamaForCausalLM"])))


def test_two_heads_of_one_kind_are_refused(tmp_path: Path) -> None:
    names = [str(save_specforge(tmp_path / "a")), str(save_speculators(tmp_path / "b"))]
    with pytest.raises(ConfigError, match=r"draft\.heads"):
        load_heads(names, tiny_target())


def test_a_head_takes_the_tensors_that_it_lacks_from_the_targets_checkpoint(tmp_path: Path) -> None:
    source = ModelSource(folder=save_tiny_model(tmp_path / "target"), model_id="tiny")
    target = head_target(
        source,
        dtype=torch.float32,
        device="cpu",
        max_model_len=256,
        max_sequences=4,
        num_threads=1,
        kv_cache_tokens=1024,
    )
    embedding = load_file(source.folder / "model.safetensors")["model.embed_tokens.weight"]
    assert torch.equal(target.weight("model.embed_tokens.weight"), embedding)
    with pytest.raises(LoadError, match=r"no tensor model\.nothing"):
        target.weight("model.nothing")
    (head,) = load_heads([str(save_specforge(tmp_path / "head"))], target)
    assert isinstance(head, Eagle3Head)
    assert head.num_free_blocks == 1024 // 32


def test_memory_is_known_before_anything_is_loaded(tmp_path: Path) -> None:
    source = ModelSource(folder=save_tiny_model(tmp_path / "target"), model_id="tiny")
    folder = save_specforge(tmp_path / "head")
    file_bytes = (folder / "model.safetensors").stat().st_size
    expected = file_bytes + 2 * 512 * 64 + 4 * 2 * 32 * 1000
    assert heads_memory_bytes([str(folder), "mtp"], source, kv_cache_tokens=1000) == expected
    with pytest.raises(LoadError):
        heads_memory_bytes([str(tmp_path / "nowhere")], source, kv_cache_tokens=1000)


def test_steps_are_timed_for_as_many_sequences_as_fit_and_nothing_is_left_open(tmp_path: Path) -> None:
    (head,) = load_heads([str(save_specforge(tmp_path / "head"))], tiny_target(kv_cache_tokens=256))
    times = measure_step_times(head, tiny_target())
    assert [rows for rows, _ in times.knots] == [1, 2, 4, 8]
    assert all(seconds > 0 for _, seconds in times.knots)
    assert isinstance(head, Eagle3Head)
    assert head.num_free_blocks == 8


def test_a_damaged_target_is_named(tmp_path: Path) -> None:
    folder = save_tiny_model(tmp_path / "target")
    (folder / "model.safetensors").write_bytes(b"nonsense")
    target = head_target(
        ModelSource(folder=folder, model_id="tiny"),
        dtype=torch.float32,
        device="cpu",
        max_model_len=256,
        max_sequences=4,
        num_threads=1,
        kv_cache_tokens=1024,
    )
    with pytest.raises(LoadError, match="damaged"):
        target.weight("lm_head.weight")
