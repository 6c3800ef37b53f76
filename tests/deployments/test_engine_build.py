"""Real engines with each source of drafts: the same text, and the layout that was asked for or measured."""

import json
import logging
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cluster.config import DraftConfig, EngineConfig
from cluster.engine.engine import Engine
from cluster.engine.memory_plan import DraftMemory, MemoryPlan
from cluster.engine.plan import ScheduledSequence
from cluster.engine.rule_verifier import RuleVerifier
from cluster.engine.startup import available_threads
from cluster.errors import LoadError
from cluster.types import Request, Role, SamplingParams, SpeculationParams, StepStats
from deployments import engine_build
from deployments.engine_build import BuiltEngine, build_engine, expected_rates
from deployments.layout import DrafterMode, Layout, Measurements, NodeShare
from deployments.verifier_config import RoleSeats, VerifierConfig
from tests.cluster.engine.drafters.head_harness import save_specforge

pytestmark = pytest.mark.engine

PROMPT = tuple(range(40, 70))


@pytest.fixture
def config(tiny_model_dir: Path, tiny_draft_dir: Path) -> VerifierConfig:
    return VerifierConfig(
        engine=EngineConfig(
            model=str(tiny_model_dir), kv_cache_tokens=2048, dtype="float32", max_num_seqs=4, num_threads=1
        ),
        draft=DraftConfig(model=str(tiny_draft_dir), kv_cache_tokens=2048),
    )


def build(config: VerifierConfig, **changes: Any) -> BuiltEngine:
    return build_engine(replace(config, **changes), NodeShare(node_id="n", num_drafters=1), name="v")


def generate(engine: Engine, temperature: float, drafter: str | None = None) -> tuple[tuple[int, ...], list[StepStats]]:
    sampling = SamplingParams(max_tokens=40, seed=7, temperature=temperature, ignore_eos=True)
    speculation = SpeculationParams(drafter=drafter)
    engine.add(Request(request_id="r", prompt_token_ids=PROMPT, sampling=sampling, speculation=speculation))
    token_ids: tuple[int, ...] = ()
    rounds = []
    while engine.has_work:
        for output in engine.step():
            token_ids += output.token_ids
        rounds.append(engine.last_step)
    engine.check_integrity()
    return token_ids, rounds


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_every_layout_writes_the_same_text(config: VerifierConfig, temperature: float) -> None:
    texts = {}
    for kind in ("off", "ngram", "local", "actor"):
        built = build(config, drafter=kind)
        assert built.layout.kind == kind
        texts[kind], rounds = generate(built.engine, temperature)
        if kind == "off":
            assert sum(stats.num_drafts for stats in rounds) == 0
        built.engine.close()
    assert len(texts["off"]) == 40
    assert set(texts.values()) == {texts["off"]}


def test_the_local_draft_model_drafts_and_its_drafts_are_accepted(config: VerifierConfig) -> None:
    # Without prompt lookup, so that all drafts are the draft model's.
    built = build(config, drafter="local", engine=replace(config.engine, drafter="off", draft_budget="fixed"))
    _, rounds = generate(built.engine, 0.0)
    sources = [source for stats in rounds for source in stats.draft_sources]
    assert {source.source for source in sources} == {"draft_model"}
    assert sum(source.num_accepted_tokens for source in sources) > 0
    built.engine.close()


@pytest.mark.parametrize("kind", ["ngram", "local", "actor", "off"])
def test_heads_draft_beside_whatever_drafts_and_off_turns_them_off_too(
    config: VerifierConfig, tmp_path: Path, kind: DrafterMode
) -> None:
    draft = replace(config.draft, heads=(str(save_specforge(tmp_path / "head")),))
    engine = replace(config.engine, drafter="off", draft_budget="fixed")
    built = build(config, drafter=kind, draft=draft, engine=engine)
    text, rounds = generate(built.engine, 0.8, drafter=None if kind == "off" else "eagle3")
    drafted = {source.source for stats in rounds for source in stats.draft_sources}
    assert drafted == (set() if kind == "off" else {"eagle3"})
    built.engine.close()
    plain = build(config, drafter="off")
    assert generate(plain.engine, 0.8)[0] == text
    plain.engine.close()


@pytest.mark.parametrize(("name", "kind"), [("draft_model", "local"), ("eagle3", "ngram")])
def test_under_a_rule_that_needs_it_drafters_here_say_what_they_draw_from(
    config: VerifierConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, kind: DrafterMode
) -> None:
    seen: list[object] = []
    verify = RuleVerifier.verify

    def spy(self: RuleVerifier, item: ScheduledSequence, logits_NV: object, probabilities: object) -> object:
        seen.extend([probabilities] if item.draft_token_ids else [])
        return verify(self, item, logits_NV, probabilities)  # type: ignore[arg-type]

    monkeypatch.setattr(RuleVerifier, "verify", spy)
    heads = (str(save_specforge(tmp_path / "head")),) if name == "eagle3" else ()
    engine = replace(config.engine, drafter="off", draft_budget="fixed", acceptance="block")
    built = build(config, drafter=kind, draft=replace(config.draft, heads=heads), engine=engine)
    generate(built.engine, 0.8, drafter=name)
    assert len(seen) > 5
    assert None not in seen
    built.engine.close()


def test_a_measured_budget_knows_what_a_heads_steps_cost(config: VerifierConfig, tmp_path: Path) -> None:
    draft = replace(config.draft, heads=(str(save_specforge(tmp_path / "head")),))
    built = build(config, drafter="ngram", draft=draft)
    text, _ = generate(built.engine, 0.0)
    built.engine.close()
    plain = build(config, drafter="off")
    assert generate(plain.engine, 0.0)[0] == text
    plain.engine.close()


def test_actors_are_reached_through_a_client_that_waits_for_nobody(config: VerifierConfig) -> None:
    built = build(config, drafter="actor")
    assert built.client is not None
    generate(built.engine, 0.0)
    assert built.client.stats().fallbacks["disconnected"] > 0
    assert built.engine.config.overlap == "off", "its drafts are ahead of the verdict already"
    built.engine.close()


def test_the_measured_choice_is_used_and_tells_its_numbers(
    config: VerifierConfig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[Measurements] = []

    def choose(measured: Measurements) -> Layout:
        seen.append(measured)
        return Layout(kind="local", reason="because", tokens_per_s=(("local", 2.0),))

    monkeypatch.setattr(engine_build, "choose_layout", choose)
    with caplog.at_level(logging.INFO):
        # Beside a target as small as the draft model no draft pays.
        built = build(config, drafter="auto", engine=replace(config.engine, draft_budget="fixed"))
    (measured,) = seen
    assert built.layout.kind == "local"
    assert "layout local: because" in caplog.text
    assert measured.num_speculative_tokens == 4
    assert measured.shares_node
    times = (measured.target, measured.target_beside_actor, measured.draft_local, measured.draft_actor)
    assert all(0 < passes.one_s < 10 and 0 < passes.many_s < 10 for passes in times)
    _, rounds = generate(built.engine, 0.0)
    assert "draft_model" in {source.source for stats in rounds for source in stats.draft_sources}
    built.engine.close()


def test_auto_ends_in_one_of_the_layouts(config: VerifierConfig) -> None:
    built = build(config, drafter="auto")
    assert built.layout.kind in ("actor", "local", "ngram")
    assert {kind for kind, _ in built.layout.tokens_per_s} == {"actor", "local", "ngram"}
    assert (built.client is not None) == (built.layout.kind == "actor")
    built.engine.close()


def test_more_threads_than_cores_are_told(config: VerifierConfig, caplog: pytest.LogCaptureFixture) -> None:
    engine = replace(config.engine, num_threads=available_threads())
    build(config, drafter="actor", engine=engine).engine.close()
    assert f"{available_threads() + 1} threads on {available_threads()} cores" in caplog.text


def test_a_draft_model_of_another_tokenizer_is_refused(config: VerifierConfig, tmp_path: Path) -> None:
    folder = shutil.copytree(str(config.draft.model), tmp_path / "other")
    about = json.loads((folder / "outrider_draft.json").read_text()) | {"tokenizer_hash": "0" * 64}
    (folder / "outrider_draft.json").write_text(json.dumps(about))
    with pytest.raises(LoadError, match="tokenizer"):
        build(config, drafter="local", draft=replace(config.draft, model=str(folder)))


@pytest.mark.parametrize(
    ("card", "rates", "warns"),
    [
        ({}, (0.5, 0.6), False),
        ({"acceptance_rate": 0.7, "table_hit_rate": 0}, (0.7, 0.0), False),
        ({"acceptance_rate": 7, "table_hit_rate": "high"}, (0.5, 0.6), True),
    ],
)
def test_the_card_tells_what_to_expect(
    tmp_path: Path, card: dict[str, Any], rates: tuple[float, float], warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "outrider_draft.json").write_text(json.dumps(card))
    assert expected_rates(tmp_path) == rates
    assert ("no share of 0 to 1" in caplog.text) == warns


def test_d3_a_local_draft_model_is_part_of_the_memory_plan(
    config: VerifierConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    class PlannedError(Exception):
        pass

    def load_parts(_: EngineConfig, draft: object, **_others: object) -> None:
        planned.append(draft)
        raise PlannedError

    planned: list[object] = []
    memory = DraftMemory(weights_bytes=1, kv_token_bytes=1, kv_cache_tokens=2048, workspace_bytes=1)
    monkeypatch.setattr(engine_build, "draft_memory_bytes", lambda _, *, kv_cache_tokens: memory)
    monkeypatch.setattr(engine_build, "load_parts", load_parts)
    for kind in ("local", "auto", "actor", "ngram"):
        with pytest.raises(PlannedError):
            build(config, drafter=kind)
    assert planned == [memory, memory, None, None]


def test_heads_are_part_of_the_memory_plan(
    config: VerifierConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load_parts(_: EngineConfig, __: object, *, heads_bytes: int = 0, **_others: object) -> None:
        planned.append(heads_bytes)
        raise InterruptedError

    planned: list[int] = []
    monkeypatch.setattr(engine_build, "load_parts", load_parts)
    folder = save_specforge(tmp_path / "head")
    with_heads = replace(config.draft, heads=(str(folder),))
    for kind, draft in (("ngram", with_heads), ("off", with_heads), ("ngram", config.draft)):
        with pytest.raises(InterruptedError):
            build(config, drafter=kind, draft=draft)
    assert planned[0] > (folder / "model.safetensors").stat().st_size
    assert planned[1:] == [0, 0]
    plan = MemoryPlan(
        weights_bytes=0,
        kv_token_bytes=1,
        kv_cache_tokens=1,
        lookahead_tokens=0,
        workspace_bytes=0,
        available_bytes=3 << 20,
        heads_bytes=7 << 20,
    )
    assert plan.total_bytes == (7 << 20) + 1
    assert "draft heads" in plan.table()


SEATS = RoleSeats(speculative=2, batch=16)


def test_with_roles_the_engine_starts_with_the_speculative_seats_and_its_kv_tax(config: VerifierConfig) -> None:
    lookahead = 2 * config.engine.num_speculative_tokens
    built = build(config, drafter="ngram", max_num_seqs_by_role=SEATS)
    assert built.engine.config.max_num_seqs == 2
    assert 0 <= built.engine.kv_tax_tokens - lookahead < 32
    built.engine.set_role(Role.BATCH, max_num_seqs=16)
    assert built.engine.kv_tax_tokens == 0
    built.engine.close()


def test_the_kv_cache_of_a_local_draft_model_is_part_of_the_tax(config: VerifierConfig) -> None:
    draft = replace(config.draft, kv_cache_tokens=512)
    built = build(config, drafter="local", draft=draft, max_num_seqs_by_role=SEATS)
    lookahead = 2 * config.engine.num_speculative_tokens
    draft_kv = built.engine.kv_tax_tokens - lookahead
    assert 100 < draft_kv <= 512 + 32, "tokens of the target, which are no smaller than its own"
    built.engine.close()


def test_without_roles_or_without_drafts_there_is_no_tax(config: VerifierConfig) -> None:
    for changes in ({"drafter": "ngram"}, {"drafter": "off", "max_num_seqs_by_role": SEATS}):
        built = build(config, **changes)
        assert built.engine.kv_tax_tokens == 0
        built.engine.close()


def test_the_memory_plan_counts_the_larger_role(config: VerifierConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, int]] = []

    class PlannedError(Exception):
        pass

    def load_parts(engine: EngineConfig, _: object, *, max_plain_seqs: int, **_others: object) -> None:
        seen.append((engine.max_num_seqs, max_plain_seqs))
        raise PlannedError

    monkeypatch.setattr(engine_build, "load_parts", load_parts)
    for seats in (None, SEATS):
        with pytest.raises(PlannedError):
            build(config, drafter="ngram", max_num_seqs_by_role=seats)
    assert seen == [(4, 0), (2, 16)]
