import argparse
from typing import Any

import pytest
from rich.console import Console

from cluster.errors import ConfigError
from deployments import cli, cli_pools
from tests.deployments.test_controller_core import Cluster


def parsed(*argv: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    cli_pools.add_parser(parser.add_subparsers())
    return parser.parse_args(["pools", *argv])


def shown(renderable: Any) -> str:
    console = Console(width=200, force_terminal=False)
    with console.capture() as capture:
        console.print(renderable)
    return capture.get()


def test_every_action_has_its_arguments() -> None:
    assert parsed("status", "--watch", "--json").watch
    pin = parsed("pin", "2", "--seconds", "30", "--app", "outrider")
    assert (pin.num_speculative, pin.seconds, pin.app) == (2, 30.0, "outrider")
    assert parsed("unpin").address == "auto"
    assert parsed("shift", "1", "--dry-run").dry_run


def test_a_status_is_shown_as_tables() -> None:
    cluster = Cluster()
    cluster.beat_for(2)
    cluster.core.pin(2, 60)
    cluster.beat_for(5)
    text = shown(cli_pools.render_status(cluster.core.status()))
    for piece in ("mode dynamic", "pinned to 2 for", "speculative", "batch", "r0", "r1", "r2", "→ batch"):
        assert piece in text


def test_a_controller_that_has_heard_nobody_can_be_shown() -> None:
    assert "no_replicas" in shown(cli_pools.render_status(Cluster(0).core.status()))


def test_a_shift_tells_what_changes() -> None:
    cluster = Cluster()
    cluster.beat_for(2)
    text = shown(cli_pools.render_shift(cluster.core.shift(2, dry_run=True)))
    assert "1 replica would change" in text
    assert "batch" in text


def test_without_a_cluster_the_error_names_the_address(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(**_: object) -> None:
        raise ConnectionError("Could not find any running Ray instance.\nmore lines")

    monkeypatch.setattr("ray.init", refuse)
    # Another test may have one on this machine.
    monkeypatch.setattr("deployments.cli_pools.gcs_addresses", set)
    assert cli.main(["pools", "status"]) == 2
    error = capsys.readouterr().err
    assert "--address = 'auto'" in error
    assert "running Ray cluster" in error
    assert "more lines" not in error


class Status:
    def __init__(self, **apps: list[str]) -> None:
        self.applications = {name: argparse.Namespace(deployments=dict.fromkeys(found)) for name, found in apps.items()}


@pytest.mark.parametrize(
    ("apps", "wanted"),
    [
        ({}, None),
        ({"plain": ["Gateway", "Verifier"]}, None),
        ({"plain": ["Verifier"]}, "plain"),
        ({"a": ["Controller"], "b": ["Controller"]}, None),
        ({"a": ["Controller"]}, "b"),
    ],
)
def test_an_application_without_pools_or_several_with_them_are_told_apart(
    monkeypatch: pytest.MonkeyPatch, apps: dict[str, list[str]], wanted: str | None
) -> None:
    monkeypatch.setattr("ray.serve.status", lambda: Status(**apps))
    with pytest.raises(ConfigError) as caught:
        cli_pools._controller(wanted)
    assert caught.value.field == "--app"
    for name, found in apps.items():
        assert (name in str(caught.value.allowed)) == ("Controller" in found)


@pytest.mark.parametrize(
    ("found", "variable", "expected"),
    [
        (set(), None, "auto"),
        ({"127.0.0.1:6379"}, None, "127.0.0.1:6379"),
        ({"127.0.0.1:6379"}, "192.0.2.2:6379", "auto"),
        ({"127.0.0.1:6379", "127.0.0.1:6380"}, "192.0.2.2:6379", "auto"),
    ],
)
def test_the_cluster_of_this_machine_is_meant_unless_a_variable_names_one(
    found: set[str], variable: str | None, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    if variable is not None:
        monkeypatch.setenv("RAY_ADDRESS", variable)
    assert cli_pools.address_here(found) == expected


def test_of_several_clusters_one_has_to_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with pytest.raises(ConfigError, match=r"one of 127\.0\.0\.1:1, 127\.0\.0\.1:2"):
        cli_pools.address_here({"127.0.0.1:2", "127.0.0.1:1"})


def test_a_ray_of_this_machine_alone_is_known_by_its_address() -> None:
    assert cli_pools.is_on_loopback("127.0.0.1:6379")
    assert not cli_pools.is_on_loopback("192.0.2.2:6379")
