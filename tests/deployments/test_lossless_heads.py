"""`outrider verify-lossless` with draft heads: each is a source of its own, and changes no token."""

from pathlib import Path

import pytest

from cluster.config import DraftConfig, EngineConfig
from cluster.engine.lossless import check
from cluster.engine.lossless.cases import scenarios
from cluster.engine.lossless.check import LosslessCheck
from cluster.engine.lossless.prompts import Prompt
from cluster.engine.model_source import ModelSource
from cluster.engine.startup import EngineParts
from cluster.errors import LoadError
from deployments.lossless_sources import draft_sources
from tests.cluster.engine.drafters.head_harness import save_specforge, target_runner
from tests.cluster.engine.engine_harness import tiny_llama, tokenizer
from tests.tiny import EOS_TOKEN_ID

PROMPTS = [Prompt(name=f"p{i}", text=f"{i} guesses of a head, {'in a row ' * i}") for i in range(4)]


@pytest.mark.parametrize("source", ["head eagle3", "head eagle3 tree"])
def test_a_head_is_a_source_of_drafts_and_changes_no_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    name = f"{source}, batch"
    monkeypatch.setattr(check, "scenarios", lambda **kinds: [s for s in scenarios(**kinds) if s.name == name])
    parts, engine = parts_of(tmp_path / "target"), EngineConfig(num_threads=1)
    draft = DraftConfig(heads=(str(save_specforge(tmp_path / "head")),), kv_cache_tokens=4096)
    with draft_sources(parts, engine, draft) as sources:
        assert set(sources) == {"head eagle3", "head eagle3 tree"}
        found = LosslessCheck(parts, engine, PROMPTS, max_tokens=12, sources=sources).run(lambda _: None, lambda: None)
    assert found.num_compared == found.num_identical > 10
    assert found.scenarios[name].num_draft_tokens > 100


def test_a_wrong_folder_is_refused_before_anything_runs(tmp_path: Path) -> None:
    draft = DraftConfig(heads=(str(tmp_path / "nowhere"),))
    with pytest.raises(LoadError, match="nowhere"), draft_sources(parts_of(tmp_path), EngineConfig(), draft):
        pass


def parts_of(folder: Path) -> EngineParts:
    tiny_llama().save_pretrained(folder)
    return EngineParts(
        runner=target_runner(64),
        tokenizer=tokenizer(),
        eos_token_ids=frozenset({EOS_TOKEN_ID}),
        model_id="tiny",
        source=ModelSource(folder=folder, model_id="tiny"),
    )
