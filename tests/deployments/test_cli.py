import argparse
import socket
from pathlib import Path

import pytest

from cluster.errors import ConfigError
from deployments import cli, cli_serve
from deployments.app import AppArgs
from deployments.cli_app_args import read_app_args


def _parse(*argv: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    cli_serve.add_parser(parser.add_subparsers())
    return parser.parse_args(["serve", *argv])


def _args(*argv: str) -> AppArgs:
    return read_app_args(_parse(*argv))


def test_flags_win_over_set_wins_over_the_file(tmp_path: Path) -> None:
    config = tmp_path / "app.yaml"
    config.write_text("engine: {model: from-file, block_size: 64}\ndrafter: 'off'\nkeep_alive_s: 3\n")
    args = _args(
        "--config", str(config), "--drafter", "ngram", "--set", "engine.block_size=96", "--max-model-len", "128"
    )
    assert (args.engine.model, args.engine.block_size, args.drafter) == ("from-file", 96, "ngram")
    assert (args.engine.max_model_len, args.keep_alive_s) == (128, 3.0)


def test_folders_of_models_become_absolute_since_replicas_run_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / "draft").mkdir()
    monkeypatch.chdir(tmp_path)
    args = _args("--model", "target", "--draft-model", "draft", "--drafter", "actor")
    assert (args.engine.model, args.draft.model) == (str(tmp_path / "target"), str(tmp_path / "draft"))
    assert _args("--model", "owner/name").engine.model == "owner/name"


def test_the_keys_file_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert _args("--api-keys-file", "keys").api_keys_file == str(tmp_path / "keys")


@pytest.mark.parametrize(
    ("argv", "field"),
    [
        (("--set", "engine.nonsense=1"), "engine.nonsense"),
        (("--set", "novalue"), "--set"),
        (("--dtype", "int4"), "engine.dtype"),
        (("--drafter", "maybe"), "drafter"),
        (("--drafter", "actor", "--model", "owner/name"), "draft.model"),
        (("--set", "draft.num_threads=0"), "draft.num_threads"),
        (("--num-speculative-tokens", "1000"), "num_speculative_tokens"),
        (("--config", "/nothing.yaml"), "--config"),
    ],
)
def test_wrong_arguments_are_config_errors_that_name_the_field(argv: tuple[str, ...], field: str) -> None:
    with pytest.raises(ConfigError, match=field):
        _args(*argv)


def test_an_open_host_without_keys_exits_with_2_before_ray_starts(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OUTRIDER_API_KEYS", raising=False)
    assert cli.main(["serve", "--host", "0.0.0.0"]) == 2
    assert "--insecure" in capsys.readouterr().err


def test_a_port_in_use_exits_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert cli.main(["serve", "--port", str(port)]) == 2
    assert f"127.0.0.1:{port}" in capsys.readouterr().err


@pytest.mark.parametrize("grace_s", ["-1", "nan", "1e9"])
def test_a_grace_time_out_of_range_exits_with_2(grace_s: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["serve", "--grace-s", grace_s]) == 2
    assert "--grace-s" in capsys.readouterr().err


def test_direct_ingress_puts_the_gateway_on_the_port_and_several_gateways_need_the_proxy() -> None:
    direct = cli_serve._environment(_parse("--port", "8123"))
    assert direct["RAY_SERVE_DIRECT_INGRESS_MIN_HTTP_PORT"] == "8123"
    assert "RAY_SERVE_ENABLE_DIRECT_INGRESS" not in cli_serve._environment(_parse("--ingress", "proxy"))
    args = _parse("--set", "num_gateways=2")
    cli_serve._check_ingress(args, read_app_args(args))
    assert args.ingress == "proxy"


def test_every_listed_command_registers_itself() -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["--help"])
    assert caught.value.code == 0
