"""The command as users call it: what it prints, refuses, and that Ray and the application take its configuration."""

import json
import socket
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from ray.serve.schema import ServeDeploySchema

from deployments import cli
from deployments.app import AppArgs

LLAMA = ("--target", "meta-llama/Llama-3.3-70B-Instruct", "--draft", "Llama-3.2-1B")
DEEPSEEK = ("--target", "DeepSeek-V3", "--draft", "mtp", "--gpus", "8xH200", "--dtype", "fp8")


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a plan needs no network")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)


def _json(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, Any]:
    assert cli.main(["plan", *argv, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def _text(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert cli.main(["plan", *argv]) == 0
    return capsys.readouterr().out


def _refused(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert cli.main(["plan", *argv]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err


def test_people_get_memory_sequences_degrees_and_a_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    shown = _text(capsys, *LLAMA, "--gpus", "8xH100")
    for words in (
        "Llama-3.3-70B: 70.55 billion parameters, bf16",
        "Llama-3.2-1B, bf16, in an actor on a GPU of its own",
        "8 x H100: 1 verifier(s) of 8",
        "1,414,944 tokens a verifier, 40,960 bytes each on a rank",
        "speculative         16       345        16",
        "2                      4              26,848",
        "context and graphs, assumed               3072 MiB",
        "Assumed, not measured",
        "placement_group_strategy: STRICT_PACK",
    ):
        assert words in shown
    assert "Tight" not in shown


def test_a_tight_plan_says_so_and_how_much_kv_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    shown = _text(capsys, *LLAMA, "--gpus", "2xH100")
    assert "26,848 tokens" in shown and "Tight: KV, not the seats" in shown


def test_programs_get_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    found = _json(capsys, *DEEPSEEK)
    memory = found["memory"]
    parts = ("weights", "kv", "workspace", "draft", "reserve")
    assert memory["total_bytes"] == sum(memory[f"{part}_bytes"] for part in parts) <= memory["available_bytes"]
    assert (found["tensor_parallel"], found["kv_cache_tokens"], found["kv_token_bytes"]) == (8, 77_856, 624_640)
    assert found["roles"]["batch"] == {"seats": 128, "fitting_sequences": 19, "max_sequences": 19}
    assert found["is_tight"] and found["degrees"] == {"8": 77_856}
    assert any("70,272 bytes" in note for note in found["notes"])
    assert any("no fp8 weights yet" in note for note in found["notes"])
    assert _json(capsys, *DEEPSEEK, "--latent-kv")["kv_token_bytes"] == 70_272


def test_what_does_not_fit_ends_with_status_2_the_setting_and_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    shown = _refused(capsys, *LLAMA, "--gpus", "1xH100")
    assert shown.startswith("outrider: --gpus = '1xH100' is not allowed: expected at least 2xH100, or 1xB200")
    assert "available                                76294 MiB" in shown


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("--gpus", "8"), "8xH100; kinds are H100, H200, B200"),
        (("--gpus", "8xA4"), "kinds are H100"),
        (("--gpus", "0xH100"), "from 1 to 1024"),
        (("--gpus", "8xH100", "--tp", "-1"), "--tp = -1"),
        (("--gpus", "8xH100", "--target", "owner/unknown"), "--target = 'owner/unknown'"),
        (("--gpus", "8xH100", "--draft", "owner/unknown"), "--draft = 'owner/unknown'"),
        (("--gpus", "8xH100", "--draft", "mtp"), "no next-n module"),
        (("--gpus", "8xH100", "--latent-kv"), "no latent attention"),
        (("--gpus", "8xH100", "--reserve-gib", "nan"), "--reserve-gib = nan"),
        (("--gpus", "8xH100", "--speculative-seqs", "0"), "role speculative"),
    ],
)
def test_a_wrong_argument_is_named(argv: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert words in _refused(capsys, "--target", "Llama-3.3-70B", *argv)


@pytest.mark.parametrize(
    "argv",
    [
        (*LLAMA, "--gpus", "8xH100"),
        (*LLAMA, "--gpus", "8xH100", "--drafter-place", "shared-gpu", "--tp", "4"),
        (*LLAMA, "--gpus", "8xH200", "--drafter-place", "local"),
        (*LLAMA, "--gpus", "16xH100", "--tp", "16"),
        ("--target", "Qwen3-8B", "--gpus", "1xH100", "--max-model-len", "8192"),
        DEEPSEEK,
    ],
    ids=["own-gpu", "shared-gpu", "local", "two nodes", "one GPU", "mtp"],
)
def test_ray_and_the_application_take_the_configuration(
    argv: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["plan", *argv, "--yaml"]) == 0
    config = yaml.safe_load(capsys.readouterr().out)
    assert config == _json(capsys, *argv)["serve_config"]
    ServeDeploySchema.model_validate(config)
    (application,) = config["applications"]
    args = AppArgs.model_validate(application["args"])
    plan = _json(capsys, *argv)
    assert args.engine.kv_cache_tokens == plan["kv_cache_tokens"]
    assert args.engine.max_model_len == plan["max_model_len"]
    assert (args.num_verifiers, args.most_verifiers) == (plan["num_verifiers"], plan["num_verifiers"])
    assert args.seats is not None
    assert (args.seats.speculative, args.seats.batch) == (16, 128)
    (verifier,) = application["deployments"]
    assert len(verifier["placement_group_bundles"]) == plan["tensor_parallel"]
    assert verifier["ray_actor_options"]["num_cpus"] == args.verifier_cpus
    # Serve puts the replica into the first bundle, and takes a share of its GPU away for a drafter.
    share = args.drafter_gpus if "shared-gpu" in argv else 0
    assert verifier["placement_group_bundles"][0]["GPU"] == pytest.approx(1 - share)


def test_a_folder_is_planned_from_its_config(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = {"hidden_size": 4096, "intermediate_size": 14_336, "num_hidden_layers": 32, "num_attention_heads": 32}
    config = {
        "model_type": "llama",
        "num_key_value_heads": 8,
        "vocab_size": 128_256,
        "max_position_embeddings": 131_072,
    }
    (tmp_path / "config.json").write_text(json.dumps(sizes | config))
    own = _json(capsys, "--target", str(tmp_path), "--gpus", "1xH100")
    known = _json(capsys, "--target", "Llama-3.1-8B", "--gpus", "1xH100")
    assert own["memory"] == known["memory"]
    assert own["serve_config"]["applications"][0]["args"]["engine"]["model"] == str(tmp_path)


def test_help_lists_the_models_that_are_built_in(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["plan", "--help"])
    shown = capsys.readouterr().out
    for name in ("Llama-3.3-70B", "Qwen3-0.6B", "DeepSeek-V3", "SmolLM2-135M"):
        assert name in shown
