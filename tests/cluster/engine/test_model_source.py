import shutil
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub.utils import filter_repo_objects  # type: ignore[attr-defined]

from cluster.engine.model_source import resolve_model
from cluster.errors import LoadError

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def test_a_local_folder_is_taken_as_it_is(tiny_model_dir: Path) -> None:
    source = resolve_model(str(tiny_model_dir), revision=None, cache_dir=None)
    assert source.folder == tiny_model_dir.resolve()
    assert source.model_id == tiny_model_dir.name
    assert source.revision is None


def fingerprint(folder: Path) -> str:
    return resolve_model(str(folder), revision=None, cache_dir=None).fingerprint


def test_copies_of_a_model_have_one_fingerprint_and_a_change_makes_another(
    tiny_model_dir: Path, tmp_path: Path
) -> None:
    copies = [Path(shutil.copytree(tiny_model_dir, tmp_path / place / "model")) for place in ("a", "b")]
    first = fingerprint(copies[0])
    assert fingerprint(copies[1]) == first
    for name in ("tokenizer_config.json", "model.safetensors"):
        with (copies[1] / name).open("ab") as file:
            file.write(b" ")
        assert fingerprint(copies[1]) != first
        first = fingerprint(copies[1])
    assert fingerprint(Path(shutil.copytree(copies[0], tmp_path / "renamed"))) != fingerprint(copies[0])


@pytest.mark.parametrize("model", ["/nowhere/at/all", "./missing", "~/missing", "a/b/c", "", "owner/name?x=1"])
def test_what_is_neither_folder_nor_hub_id_is_refused(model: str) -> None:
    with pytest.raises(LoadError, match="neither 'bundled', nor an existing folder, nor a hub id"):
        resolve_model(model, revision=COMMIT, cache_dir=None)


def test_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").touch()
    with pytest.raises(LoadError, match="is a file; expected a folder"):
        resolve_model(str(tmp_path / "model.gguf"), revision=None, cache_dir=None)


@pytest.mark.parametrize("revision", [None, "main", "v1.0", COMMIT[:12], COMMIT.upper(), COMMIT + "\n"])
def test_a_hub_id_needs_a_full_commit(revision: str | None) -> None:
    with pytest.raises(LoadError, match="needs the full commit"):
        resolve_model("owner/name", revision=revision, cache_dir=None)


@pytest.mark.parametrize("model", ["bundled", "folder"])
def test_a_revision_is_refused_where_it_would_be_ignored(model: str, tiny_model_dir: Path) -> None:
    with pytest.raises(LoadError, match="only applies to hub ids"):
        resolve_model(model if model == "bundled" else str(tiny_model_dir), revision=COMMIT, cache_dir=None)


def test_a_hub_id_without_network_or_cached_copy_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(LoadError, match=f"cannot fetch 'owner/name' at {COMMIT} from the hub: LocalEntryNotFoundError"):
        resolve_model("owner/name", revision=COMMIT, cache_dir=tmp_path)


class FakeHub:
    """Stands for `snapshot_download`: answers every call with one folder and remembers what was asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.calls: list[dict[str, Any]] = []

    def __call__(self, repo_id: str, **options: Any) -> str:
        self.calls.append({"repo_id": repo_id, **options})
        return str(self.folder)


def test_a_hub_model_is_fetched_at_its_commit_weights_last_and_never_pickles(
    tiny_model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = FakeHub(tiny_model_dir)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", hub)
    source = resolve_model("owner/name", revision=COMMIT, cache_dir=tmp_path)
    assert (source.folder, source.model_id, source.revision) == (tiny_model_dir, "owner/name", COMMIT)
    small, full = hub.calls
    assert "*.safetensors" not in small["allow_patterns"]
    assert "*.safetensors" in full["allow_patterns"]
    for call in hub.calls:
        assert (call["repo_id"], call["revision"]) == ("owner/name", COMMIT)
        assert call["cache_dir"] == tmp_path / "outrider" / "hub"
        for unwanted in ("pytorch_model.bin", "model.pt", "modeling_evil.py", "original/consolidated.safetensors"):
            wanted = filter_repo_objects(
                [unwanted], allow_patterns=call["allow_patterns"], ignore_patterns=call["ignore_patterns"]
            )
            assert list(wanted) == []


def test_the_weights_of_a_refused_hub_model_are_not_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama", "auto_map": {"AutoConfig": "evil.Config"}}')
    hub = FakeHub(tmp_path)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", hub)
    with pytest.raises(LoadError, match="auto_map"):
        resolve_model("owner/name", revision=COMMIT, cache_dir=None)
    assert len(hub.calls) == 1
