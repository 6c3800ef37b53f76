"""Every command of k8s/README.md exists: subcommands and flags are parsed by the programs themselves."""

import argparse
import re
import shlex
import subprocess
from collections.abc import Iterator
from importlib import import_module

import click
import pytest
from ray.scripts.scripts import cli as ray_cli
from ray.serve.scripts import cli as serve_cli

from deployments.cli import COMMANDS
from tests.k8s.manifests import K8S, KUBECTL, OVERLAYS, ROOT, render

README = (K8S / "README.md").read_text()
UNCHECKED = {"helm", "kind", "curl", "openssl", "cat", "git"}
"""Programs that are neither ours nor installed with the development packages."""


def commands() -> list[str]:
    """Lines of code blocks, and code inside sentences, that call a program; one for each program of a pipe."""
    blocks = re.findall(r"^ *```\n(.*?)^ *```$", README, flags=re.MULTILINE | re.DOTALL)
    lines = [line.strip() for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    programs = UNCHECKED | {"kubectl", "outrider", "serve", "ray", "docker", "make"}
    lines += [text for text in re.findall(r"`([^`\n]+)`", README) if text.split()[0] in programs and " " in text]
    lines = [re.sub(r"^\w+=\$\((.*)\)$", r"\1", line) for line in lines]
    return sorted({part.strip() for line in lines for part in re.split(r" \| | > ", line)[:2] if " " in part.strip()})


def calling(program: str) -> list[str]:
    """Commands that call a program, also inside a pod."""
    found = [line for line in commands() if line.startswith(f"{program} ")]
    inside = [line.partition(" -- ")[2] for line in commands() if line.startswith("kubectl ")]
    return found + [line for line in inside if line.startswith(f"{program} ")]


def options_of(group: click.Command, words: list[str]) -> Iterator[str]:
    """The options of a click command that is named by words, which must exist."""
    for word in words:
        if not isinstance(group, click.Group):
            break
        assert word in group.commands, f"no subcommand {word!r}"
        group = group.commands[word]
    for parameter in group.params:
        yield from parameter.opts


def test_every_command_calls_a_program_that_is_known() -> None:
    known = UNCHECKED | {"kubectl", "outrider", "serve", "ray", "docker", "make"}
    assert {line.split()[0] for line in commands()} <= known
    assert len(commands()) > 25


@pytest.mark.parametrize("command", calling("kubectl"))
def test_kubectl_knows_the_command_and_its_flags(command: str) -> None:
    words = shlex.split(command.partition(" -- ")[0])[1:]
    # It reads all flags before the last one, and complains about those that it does not know.
    done = subprocess.run([str(KUBECTL), *words, "--help"], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    # For a subcommand that it does not know, it shows its general help.
    subcommand = re.sub(r"^kubectl (-n \S+ )?", "", command).split()[0]
    assert f"\nUsage:\n  kubectl {subcommand} " in done.stdout


def test_kubectl_would_complain() -> None:
    words = [str(KUBECTL), "apply", "-k", "folder", "--no-such-flag", "--help"]
    assert subprocess.run(words, capture_output=True, timeout=30, check=False).returncode != 0


@pytest.mark.parametrize("command", calling("outrider"))
def test_outrider_takes_the_arguments(command: str) -> None:
    parser = argparse.ArgumentParser(exit_on_error=False)
    subparsers = parser.add_subparsers(required=True)
    for module in COMMANDS:
        import_module(module).add_parser(subparsers)
    if len(command.split()) > 2:
        parser.parse_args(shlex.split(command)[1:])
    else:
        assert command.split()[1] in subparsers.choices


@pytest.mark.parametrize(("program", "group"), [("serve", serve_cli), ("ray", ray_cli)])
def test_rays_own_programs_know_the_subcommand_and_its_flags(program: str, group: click.Command) -> None:
    for command in calling(program):
        words = shlex.split(command)[1:]
        known = set(options_of(group, [word for word in words if not word.startswith("-")]))
        assert {word.partition("=")[0] for word in words if word.startswith("-")} <= known, command


def test_make_and_docker_have_the_targets() -> None:
    makefile, dockerfile = (ROOT / "Makefile").read_text(), (ROOT / "Dockerfile").read_text()
    for command in calling("make"):
        assert f"\n{command.split()[1]}:" in makefile
    for command in calling("docker"):
        target = re.search(r"--target (\w+)", command)
        assert target is None or f" AS {target[1]}\n" in dockerfile


def test_every_path_exists() -> None:
    paths = set(re.findall(r"\bk8s/[\w./-]*[\w-]", README))
    assert len(paths) > 4
    assert all((ROOT / path).exists() for path in paths), paths


def test_every_overlay_is_in_the_table() -> None:
    assert set(re.findall(r"^\| `([\w-]+)` \| (?!what)", README.split("## ")[0], flags=re.MULTILINE)) == set(OVERLAYS)


def test_every_secret_that_pods_need_is_made() -> None:
    made = set(re.findall(r"create secret generic ([\w-]+)", README))
    references = r"(?:secretKeyRef:\n +key: \w+\n +name|credentials:\n +key: \w+\n +name|secretName): ([\w-]+)"
    wanted = set(re.findall(references, render("secure")))
    assert len(wanted) == 5
    assert wanted <= made
