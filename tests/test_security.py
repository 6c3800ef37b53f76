"""What SECURITY.md promises of the code as a whole; each promise there names its test."""

import argparse
import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from deployments import cli_serve, http_guard

ROOT = Path(__file__).parents[1]
PACKAGES = ("autoscaling", "cluster", "deployments")

RUNS_CODE = frozenset({"pickle", "_pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve", "pty", "code"})
"""Modules that turn data into code."""

RUNS_CODE_CALLS = frozenset(
    {
        "eval", "exec", "compile", "__import__", "os.system", "os.popen", "yaml.load", "yaml.unsafe_load",
        "yaml.full_load", "jinja2.Environment", "jinja2.Template",
    }
)  # fmt: skip
OBJECT_METHODS = frozenset({"recv_pyobj", "send_pyobj", "recv_serialized", "loads_pickle"})
"""Of ZeroMQ's sockets."""


@cache
def _product() -> tuple[tuple[str, list[ast.AST]], ...]:
    """Paths of our modules, with their nodes."""
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    return tuple((str(path.relative_to(ROOT)), list(ast.walk(ast.parse(path.read_text())))) for path in paths)


def _calls(nodes: list[ast.AST]) -> Iterator[tuple[str, ast.Call]]:
    """Calls with the dotted name of what is called."""
    for node in nodes:
        if isinstance(node, ast.Call):
            yield _dotted(node.func), node


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else "?"


def _argument(call: ast.Call, name: str) -> object:
    """The constant given for a keyword; None where there is none."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value.value if isinstance(keyword.value, ast.Constant) else keyword.value
    return None


def _runs_code(name: str, call: ast.Call) -> bool:
    last = name.rsplit(".", 1)[-1]
    return (
        name in RUNS_CODE_CALLS
        or last in OBJECT_METHODS
        or (name == "torch.load" and _argument(call, "weights_only") is not True)
        or (last == "load" and _argument(call, "allow_pickle") not in (None, False))
        or _argument(call, "shell") not in (None, False)
    )


def test_nothing_that_runs_code_from_data_is_used() -> None:
    found = []
    for path, nodes in _product():
        for node in nodes:
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            found += [f"{path}: import {name}" for name in modules if name.split(".")[0] in RUNS_CODE]
        found += [f"{path}:{call.lineno}: {name}" for name, call in _calls(nodes) if _runs_code(name, call)]
    assert found == []


def test_no_call_trusts_remote_code() -> None:
    loads = 0
    for path, nodes in _product():
        for name, call in _calls(nodes):
            given = _argument(call, "trust_remote_code")
            assert given in (None, False), f"{path}:{call.lineno}"
            # A loader of transformers asks at a terminal, or takes the default of its version, unless it is told.
            if re.search(r"\bAuto\w+\.from_", name):
                assert given is False, f"{path}:{call.lineno}: {name}"
                loads += 1
    assert loads > 3


def test_no_command_takes_a_secret_as_an_argument() -> None:
    options = set()
    for path, nodes in _product():
        if Path(path).name.startswith("cli"):
            for name, call in _calls(nodes):
                if name.endswith("add_argument"):
                    options |= {each.value for each in call.args if isinstance(each, ast.Constant)}
    assert "--api-keys-file" in options
    secrets = {
        str(option) for option in options if re.search(r"key|secret|password|credential|auth|token\b", str(option))
    }
    assert all(option.endswith("-file") for option in secrets), secrets


def _name(requirement: str) -> str:
    match = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert match is not None, requirement
    return re.sub(r"[-_.]+", "-", match[0]).lower()


def test_every_dependency_is_pinned_to_one_version() -> None:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][\w.!+]*", line)] == []
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    assert {_name(each) for each in wanted} <= {_name(line) for line in lines}


def test_every_server_that_outrider_serve_starts_is_guarded() -> None:
    for ingress in ("direct", "proxy"):
        environment = cli_serve._environment(argparse.Namespace(ingress=ingress, port=8000, verbose=False))
        assert environment["RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH"] == http_guard.CALLBACK


CLAIMS = sorted(set(re.findall(r"`(tests/[\w/]+\.py(?:::\w+)+)`", (ROOT / "SECURITY.md").read_text())))


@pytest.mark.parametrize("claim", CLAIMS)
def test_every_test_that_the_page_names_exists(claim: str) -> None:
    path, *names = claim.split("::")
    scope: list[ast.stmt] = ast.parse((ROOT / path).read_text()).body
    for name in names:
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        found = [node for node in scope if isinstance(node, kinds) and node.name == name]
        assert found, f"{claim}: {name} is not there"
        scope = found[0].body


def test_every_part_of_the_page_names_tests() -> None:
    parts = (ROOT / "SECURITY.md").read_text().split("\n### ")[1:]
    assert len(parts) == 6
    assert all("`tests/" in part for part in parts)
    assert len(CLAIMS) > 30
