"""`outrider train draft-model` from end to end, with a tiny target."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from cluster.config import DraftConfig
from cluster.engine.drafters.draft_build import build_draft_model
from cluster.engine.drafters.draft_source import load_draft_model
from cluster.engine.model_source import ModelSource
from cluster.errors import ConfigError
from cluster.training.card import TrainFacts
from cluster.training.pipeline import DraftTraining
from cluster.training.settings import TrainSettings
from cluster.training.shards import count_sources
from cluster.types import SamplingParams
from tests.cluster.training.training_harness import Notes, same_tensors, save_target, tiny_settings
from tests.tiny import EOS_TOKEN_ID

pytestmark = pytest.mark.engine


def run(settings: TrainSettings, notes: Notes | None = None) -> TrainFacts:
    training = DraftTraining(settings, notes or Notes())
    training.generate()
    training.train()
    return training.write()


def shards(output: Path) -> dict[str, dict[str, torch.Tensor]]:
    return {path.name: load_file(path) for path in sorted((output / "training" / "shards").iterdir())}


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_target(tmp_path_factory.mktemp("target") / "tiny-target")


@pytest.fixture(scope="module")
def trained(target: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, TrainFacts, Notes]:
    output, notes = tmp_path_factory.mktemp("trained") / "draft", Notes()
    facts = run(tiny_settings(target, output), notes)
    return output, facts, notes


def test_the_student_comes_nearer_to_the_target_on_text_that_it_did_not_learn_from(
    target: Path, trained: tuple[Path, TrainFacts, Notes], tmp_path: Path
) -> None:
    _, after, _ = trained
    before = run(tiny_settings(target, tmp_path / "draft", num_training_tokens=1))
    assert before.num_steps == 1
    assert after.held_out.loss < 0.9 * before.held_out.loss
    assert after.held_out.same_top_ratio > before.held_out.same_top_ratio + 0.05
    assert after.held_out.overlap_ratio > before.held_out.overlap_ratio + 0.05


def test_the_first_shard_is_held_out_and_no_other(target: Path, trained: tuple[Path, TrainFacts, Notes]) -> None:
    output, facts, _ = trained
    training = DraftTraining(tiny_settings(target, output), Notes())
    held_out, learnt = training.data.files(held_out=True), training.data.files(held_out=False)
    assert [path.name for path in held_out] == ["shard-00000.safetensors"]
    assert sorted(path.name for path in held_out + learnt) == sorted(shards(output))
    assert not set(held_out) & set(learnt)
    assert facts.num_held_out_tokens == sum(count.num_tokens for count in count_sources(held_out))


def test_the_folder_loads_as_a_draft_model_and_drafts(target: Path, trained: tuple[Path, TrainFacts, Notes]) -> None:
    output, facts, _ = trained
    loaded = load_draft_model(output, ModelSource(folder=target, model_id="tiny-target"))
    lent = load_file(target / "model.safetensors")
    shared = [name for name in lent if name.startswith("model.layers.0.")]
    assert shared
    assert all(torch.equal(loaded.weights[name], lent[name].to(torch.bfloat16)) for name in shared)
    assert loaded.target_ids is not None
    assert len(loaded.target_ids) == facts.num_columns == 300
    model = build_draft_model(loaded, DraftConfig(kv_cache_tokens=1024), eos_token_ids=frozenset({EOS_TOKEN_ID}))
    sampling = SamplingParams(max_tokens=50, seed=0, temperature=0.0, ignore_eos=True)
    job = model.start(model.open([5, 6, 7], 3, sampling), (), 3, (1,))
    while not job.is_done:
        model.step([job])
    (entry,) = job.entries
    assert len(entry.token_ids) == 4
    assert set(entry.token_ids) <= set(loaded.target_ids.tolist())


def test_files_hold_only_what_is_not_the_targets_in_bfloat16(trained: tuple[Path, TrainFacts, Notes]) -> None:
    output, facts, _ = trained
    assert {path.name for path in output.iterdir()} == {
        "README.md",
        "config.json",
        "model.safetensors",
        "outrider_draft.json",
        "training",
    }
    tensors = load_file(output / "model.safetensors")
    assert tensors.pop("target_ids").dtype == torch.int32
    assert {tensor.dtype for tensor in tensors.values()} == {torch.bfloat16}
    assert not {"model.embed_tokens.weight", "lm_head.weight"} & tensors.keys()
    assert {name.split(".")[2] for name in tensors if "layers" in name} == {"1", "2"}
    assert sum(tensor.numel() for tensor in tensors.values()) == facts.num_parameters
    about = json.loads((output / "outrider_draft.json").read_text())
    assert (about["format"], about["target"], about["head"]) == (1, "tiny-target", "target")
    assert 0 < about["acceptance_rate"] < 1


def test_the_card_names_sources_with_licences_and_counts(trained: tuple[Path, TrainFacts, Notes]) -> None:
    output, facts, _ = trained
    card = (output / "README.md").read_text()
    rows = {line.split(" | ")[0].removeprefix("| "): line for line in card.splitlines() if line.startswith("| ")}
    names = {count.source.name for count in facts.sources if count.source is not None}
    assert {"Python standard library", "the target itself"} <= names
    for count in facts.sources:
        assert count.source is not None
        if not count.source.name.startswith("description of"):
            row = rows[f"{count.source.use}: {count.source.name} ({count.source.licence})"]
            assert f"| {count.num_texts:,} | {count.num_tokens:,} |" in row
    total = sum(count.num_tokens for count in facts.sources)
    assert f"| {total:,} |" in rows["all"]
    assert total >= 3000
    assert f"{facts.num_steps:,}\nsteps" in card
    assert f"{facts.held_out.same_top_ratio:.3f}" in card
    assert "--num-training-tokens 90000" in card


def test_a_run_that_was_stopped_while_generating_writes_the_same_shards(
    target: Path, trained: tuple[Path, TrainFacts, Notes], tmp_path: Path
) -> None:
    settings, notes = tiny_settings(target, tmp_path / "draft"), Notes()
    with pytest.raises(KeyboardInterrupt):
        DraftTraining(settings, Notes("generate", stop_after=90)).generate()
    num_before = len(shards(settings.output))
    assert num_before >= 1
    DraftTraining(settings, notes).generate()
    assert notes.phases[0][1] > 0
    whole, resumed = shards(trained[0]), shards(settings.output)
    assert num_before < len(whole)
    # What was written is not generated again.
    assert notes.notes.count("") < trained[2].notes.count("") - 30
    assert whole.keys() == resumed.keys()
    assert all(same_tensors(whole[name], resumed[name]) for name in whole)


def test_a_finished_run_does_nothing_but_write_again(target: Path, trained: tuple[Path, TrainFacts, Notes]) -> None:
    output, facts, _ = trained
    before = (output / "model.safetensors").read_bytes()
    notes = Notes()
    again = run(tiny_settings(target, output), notes)
    assert (output / "model.safetensors").read_bytes() == before
    assert again == facts
    assert [phase for phase, _, _ in notes.phases] == ["generate", "train", "measure and write"]
    assert len(notes.notes) == 1


def test_other_settings_in_the_same_folder_are_refused_by_name(
    target: Path, trained: tuple[Path, TrainFacts, Notes]
) -> None:
    with pytest.raises(ConfigError, match="seed was 0, now 1"):
        DraftTraining(tiny_settings(target, trained[0], seed=1), Notes())


def test_a_folder_with_other_things_is_left_alone(target: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("do not touch")
    with pytest.raises(ConfigError, match="--output"):
        DraftTraining(tiny_settings(target, tmp_path), Notes())
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_more_layers_than_the_target_has_are_refused(target: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--num-layers = 5 .* at most 4"):
        DraftTraining(tiny_settings(target, tmp_path / "draft", num_layers=5), Notes())


@pytest.mark.parametrize(
    ("field", "value", "flag"),
    [
        ("num_generated_tokens", 0, "--num-generated-tokens"),
        ("num_training_tokens", -1, "--num-training-tokens"),
        ("num_layers", 0, "--num-layers"),
        ("num_shared_layers", -1, "--num-shared-layers"),
        ("head_tokens", 1, "--head-tokens"),
        ("seed", -1, "--seed"),
        ("num_threads", -1, "--threads"),
        ("text_files", (Path("nowhere.txt"),), "--text-file"),
    ],
)
def test_bad_values_are_refused_with_their_flag(field: str, value: object, flag: str) -> None:
    with pytest.raises(ConfigError, match=flag):
        tiny_settings(Path("target"), Path("output"), **{field: value})
