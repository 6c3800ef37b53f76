"""A drafter replica's model: known before it is loaded, refused before it is loaded, and at work after."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cluster.config import DraftConfig, EngineConfig
from cluster.engine.memory_plan import DraftMemory
from cluster.errors import ConfigError, LoadError
from cluster.messages import PROTOCOL_VERSION, Hello, Refusal, Welcome
from deployments import drafter_model
from deployments.drafter_model import DrafterModel

pytestmark = pytest.mark.engine


@pytest.fixture
def engine(tiny_model_dir: Path) -> EngineConfig:
    return EngineConfig(model=str(tiny_model_dir))


@pytest.fixture
def draft(tiny_draft_dir: Path) -> DraftConfig:
    return DraftConfig(model=str(tiny_draft_dir), kv_cache_tokens=512, num_speculative_tokens=3, max_model_len=100)


@pytest.fixture
def model(engine: EngineConfig, draft: DraftConfig) -> Iterator[DrafterModel]:
    model = DrafterModel(engine, draft, on_gpu=False)
    yield model
    model.release()
    model.release()


def hello(tokenizer_hash: str) -> Hello:
    return Hello(version=PROTOCOL_VERSION, incarnation=1, model_hash="", tokenizer_hash=tokenizer_hash, name="v")


def test_what_is_published_holds_for_the_loaded_model(model: DrafterModel) -> None:
    assert (model.model_id, model.target_id) == ("tiny-draft", "tiny")
    ahead = model.build()
    ((_, answer),) = ahead.handle(b"v", hello(model.tokenizer_hash))
    assert answer == Welcome(
        version=PROTOCOL_VERSION, incarnation=model.incarnation, num_speculative_tokens=3, max_model_len=100
    )
    ((_, answer),) = ahead.handle(b"w", hello("another"))
    assert isinstance(answer, Refusal)


def test_each_start_is_another_incarnation(engine: EngineConfig, draft: DraftConfig, model: DrafterModel) -> None:
    again = DrafterModel(engine, draft, on_gpu=False)
    assert again.incarnation != model.incarnation
    assert again.tokenizer_hash == model.tokenizer_hash


def test_d3_a_draft_model_that_does_not_fit_is_refused_at_start_with_its_table(
    engine: EngineConfig, draft: DraftConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    mib = 1 << 20
    memory = DraftMemory(weights_bytes=50 * mib, kv_token_bytes=mib, kv_cache_tokens=512, workspace_bytes=mib)
    monkeypatch.setattr(drafter_model, "draft_memory_bytes", lambda _, *, kv_cache_tokens: memory)
    monkeypatch.setattr(drafter_model, "available_bytes", lambda: 500 * mib)
    with pytest.raises(ConfigError, match=r"(?s)draft.kv_cache_tokens = 512 .*at most 449 here.*draft model, weights"):
        DrafterModel(engine, draft, on_gpu=False)


@pytest.mark.parametrize("model_name", ["/no/such/folder", "bundled"])
def test_a_folder_that_is_missing_is_refused_at_start(
    engine: EngineConfig, draft: DraftConfig, model_name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("cluster.engine.drafters.draft_source.BUNDLED_DRAFT_FOLDER", tmp_path / "missing")
    with pytest.raises(LoadError, match="is not a folder"):
        DrafterModel(engine, replace(draft, model=model_name), on_gpu=False)


def test_a_draft_model_of_another_vocabulary_is_refused_when_it_is_loaded(
    engine: EngineConfig, draft: DraftConfig, tmp_path: Path
) -> None:
    folder = shutil.copytree(str(draft.model), tmp_path / "other")
    about = json.loads((folder / "outrider_draft.json").read_text()) | {"tokenizer_hash": "0" * 64}
    (folder / "outrider_draft.json").write_text(json.dumps(about))
    with pytest.raises(LoadError, match="tokenizer"):
        DrafterModel(engine, replace(draft, model=str(folder)), on_gpu=False).build()


def test_a_length_beyond_the_draft_models_own_is_refused(engine: EngineConfig, draft: DraftConfig) -> None:
    with pytest.raises(ConfigError, match=r"draft.max_model_len = 100000 .* at most 2048"):
        DrafterModel(engine, replace(draft, max_model_len=100_000), on_gpu=False).build()
