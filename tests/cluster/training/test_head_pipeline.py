"""`outrider train eagle3` and `medusa` from end to end, with a tiny target, and what the engine makes of them."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from cluster.engine.drafters.head import Head, HeadRows
from cluster.engine.drafters.heads import head_target, load_heads
from cluster.engine.model_source import ModelSource
from cluster.errors import ConfigError, LoadError
from cluster.training import questions
from cluster.training.acceptance_report import write_acceptance
from cluster.training.dataset import make_batch
from cluster.training.draft_net import head_batch
from cluster.training.head_pipeline import HeadTraining
from cluster.training.measure import MeasureSettings, measure
from cluster.training.settings import HeadSettings
from tests.cluster.training.training_harness import Notes, save_target, write_shards, write_spec_bench

pytestmark = pytest.mark.engine

NUM_TOKENS = 20_000


def settings(target: Path, output: Path, kind: str, **changes: object) -> HeadSettings:
    values: dict[str, object] = {
        "kind": kind,
        "target": str(target),
        "output": output,
        "num_generated_tokens": 2000,
        "num_training_tokens": NUM_TOKENS,
        "num_draft_tokens": 3,
        "head_tokens": 300,
        "num_threads": 1,
        "tokens_per_batch": 256,
        "learning_rate": 5e-3,
        "max_new_tokens": 24,
        "prompts_per_shard": 40,
    }
    return HeadSettings(**{**values, **changes})  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_target(tmp_path_factory.mktemp("heads") / "tiny-target")


class Trained:
    """A finished run."""

    def __init__(self, output: Path, wanted: HeadSettings) -> None:
        self.output, self.notes = output, Notes()
        self.training = HeadTraining(wanted, self.notes)
        self.training.generate()
        self.training.train()
        self.facts = self.training.write()


@pytest.fixture(scope="module")
def eagle3(target: Path) -> Iterator[Trained]:
    trained = Trained(target.parent / "eagle3", settings(target, target.parent / "eagle3", "eagle3"))
    yield trained
    trained.training.close()


@pytest.fixture(scope="module")
def medusa(target: Path, eagle3: Trained) -> Iterator[Trained]:
    data = eagle3.output / "training" / "shards"
    trained = Trained(target.parent / "medusa", settings(target, target.parent / "medusa", "medusa", data=data))
    yield trained
    trained.training.close()


def load(output: Path, target: Path) -> Head:
    about = head_target(
        ModelSource(folder=target, model_id="tiny-target"),
        dtype=torch.bfloat16,
        device="cpu",
        max_model_len=1024,
        max_sequences=2,
        num_threads=1,
        kv_cache_tokens=1024,
    )
    (head,) = load_heads([str(output)], about)
    return head


@pytest.mark.parametrize("kind", ["eagle3", "medusa"])
def test_the_engines_head_computes_what_was_trained(kind: str, target: Path, request: pytest.FixtureRequest) -> None:
    trained: Trained = request.getfixturevalue(kind)
    head, loop, reader = load(trained.output, target), trained.training._loop, trained.training._reader
    assert loop is not None
    assert reader is not None
    text = max(trained.training.data.texts(held_out=True), key=lambda text: len(text.label_ids))
    token_ids, batch, features = text.token_ids.tolist(), make_batch([text], [0]), reader.read(text.token_ids)
    with torch.inference_mode():
        steps = [loop.net.logits(hidden) for hidden in loop.net.hidden_steps(head_batch(batch, features[None].float()))]
    for row in (0, 5, 9):
        position = text.label_start - 1 + row
        state = head.open()
        head.reserve(state, position + 4, position + 4)
        known = HeadRows(
            state=state,
            first_position=0,
            token_ids=token_ids[1 : position + 2],
            features_nF=features[: position + 1].float(),
        )
        logits = [head.begin([known]).copy()]
        for step in (1, 2):
            logits.append(head.step([state], [token_ids[position + 1 + step]]).copy())
        for step in range(3):
            expected = steps[step][row]
            # Weights are bfloat16 in both; the engine's activations may be, too.
            error = (torch.from_numpy(logits[step][0]) - expected).abs().max()
            assert error < 0.05 * (expected.max() - expected.min())
        head.close(state)
    head.shutdown()


def test_training_brings_a_head_nearer_to_its_target(target: Path, eagle3: Trained, tmp_path: Path) -> None:
    data = eagle3.output / "training" / "shards"
    before = Trained(tmp_path, settings(target, tmp_path / "head", "eagle3", data=data, num_training_tokens=1))
    before.training.close()
    assert before.facts.num_steps == 1
    for first, last in zip(before.facts.held_out.steps, eagle3.facts.held_out.steps, strict=True):
        assert last.loss < first.loss - 0.2
        assert last.overlap_ratio > first.overlap_ratio


@pytest.mark.parametrize("kind", ["eagle3", "medusa"])
def test_acceptance_is_measured_in_the_engine_and_written_beside_the_weights(
    kind: str, target: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: Trained = request.getfixturevalue(kind)
    monkeypatch.setattr(questions, "human_eval_prompts", lambda: iter(()))
    wanted = MeasureSettings(
        draft=str(trained.output),
        target=str(target),
        spec_bench=write_spec_bench(target.parent / "questions.jsonl"),
        max_tokens=24,
        num_threads=1,
        num_speculative_tokens=3,
    )
    report = measure(wanted, Notes())
    write_acceptance(report)
    counts = report.total(0.0)
    # Only the last rounds of a text, and drafts that end it, are shorter.
    assert counts.num_draft_tokens > 0.8 * 3 * counts.num_drafts > 0
    about = json.loads((trained.output / "outrider_head.json").read_text())
    assert about["kind"] == kind
    assert about["acceptance"]["coupling"] is None
    assert about["acceptance"]["alpha_t0"] == pytest.approx(counts.rate, abs=1e-4)
    assert "Measured in the engine" in (trained.output / "README.md").read_text()


def test_text_of_another_run_is_not_written_again(medusa: Trained, eagle3: Trained) -> None:
    assert [phase for phase, _, _ in eagle3.notes.phases] == ["generate", "train", "measure and write"]
    assert [phase for phase, _, _ in medusa.notes.phases] == ["train", "measure and write"]
    assert medusa.facts.sources == eagle3.facts.sources


def test_files_are_those_of_the_published_layouts(eagle3: Trained, medusa: Trained) -> None:
    weights = load_file(eagle3.output / "model.safetensors")
    assert (weights.pop("d2t").dtype, weights.pop("t2d").dtype) == (torch.int64, torch.bool)
    assert {tensor.dtype for tensor in weights.values()} == {torch.bfloat16}
    assert sum(tensor.numel() for tensor in weights.values()) == eagle3.facts.num_parameters
    config = json.loads((eagle3.output / "config.json").read_text())
    assert config["eagle_aux_hidden_state_layer_ids"] == [1, 2, 3]
    assert json.loads((medusa.output / "config.json").read_text())["medusa_num_heads"] == 3
    assert len(load_file(medusa.output / "medusa_lm_head.safetensors")) == 6


def test_a_finished_run_does_nothing_but_write_again(target: Path, eagle3: Trained) -> None:
    output, facts = eagle3.output, eagle3.facts
    before = (output / "model.safetensors").read_bytes()
    # A smaller cache changes nothing of what comes out, so the run is the same.
    again = Trained(output, settings(target, output, "eagle3", max_feature_bytes=0))
    again.training.close()
    assert again.facts == facts
    assert (output / "model.safetensors").read_bytes() == before
    assert len(again.notes.notes) == 1


def test_a_run_of_another_kind_in_the_same_folder_is_refused(target: Path, eagle3: Trained) -> None:
    with pytest.raises(ConfigError, match="kind was 'eagle3', now 'medusa'"):
        HeadTraining(settings(target, eagle3.output, "medusa"), Notes())


def test_text_of_a_target_with_more_tokens_is_refused(target: Path, tmp_path: Path) -> None:
    config = json.loads((target / "config.json").read_text())
    small = tmp_path / "small"
    shutil.copytree(target, small)
    (small / "config.json").write_text(json.dumps({**config, "vocab_size": 100}))
    wanted = settings(small, tmp_path / "head", "eagle3", data=write_shards(tmp_path / "data", 20))
    with pytest.raises(LoadError, match="text of another target"):
        HeadTraining(wanted, Notes()).train()


def test_data_without_text_to_hold_out_is_refused(target: Path, eagle3: Trained, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--data = .*-00000"):
        HeadTraining(settings(target, tmp_path / "head", "eagle3", data=tmp_path), Notes())
    assert not (tmp_path / "head").exists()


def test_the_card_names_data_steps_and_command(eagle3: Trained) -> None:
    output, facts = eagle3.output, eagle3.facts
    card = (output / "README.md").read_text()
    assert card.startswith("# EAGLE-3 head for tiny-target")
    assert f"| 2 | {facts.held_out.steps[1].same_top_ratio:.3f} |" in card
    assert "outrider train eagle3 --target" in card
    assert "--num-draft-tokens 3" in card
    assert "Python standard library" in card


@pytest.mark.parametrize(
    ("field", "value", "flag"),
    [("num_draft_tokens", 0, "--num-draft-tokens"), ("max_feature_bytes", -1, "max_feature_bytes")],
)
def test_bad_values_are_refused_with_their_flag(field: str, value: object, flag: str) -> None:
    with pytest.raises(ConfigError, match=flag):
        settings(Path("target"), Path("output"), "eagle3", **{field: value})
