"""Traces of real traffic: CSV with a header, or JSON lines, with arrival_s, prompt_tokens, output_tokens and domain."""

import csv
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from autoscaling.simulation.workload import TraceEntry
from cluster.errors import ConfigError
from cluster.routing.types import Domain

_COLUMNS = ("arrival_s", "prompt_tokens", "output_tokens")


def read_trace(path: Path) -> tuple[TraceEntry, ...]:
    """All lines; `domain` may be left out for general chat.

    Raises:
        ConfigError: the file cannot be read, or a line is wrong; the line is named.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(field="traffic.path", value=str(path), allowed=f"a readable file ({error})") from None
    rows = _csv_rows(text) if path.suffix == ".csv" else _json_rows(text, path)
    entries = tuple(_entry(row, number, path) for number, row in rows)
    if not entries:
        raise ConfigError(field="traffic.path", value=str(path), allowed="a trace with at least one request")
    return entries


def _csv_rows(text: str) -> Iterable[tuple[int, Any]]:
    return enumerate(csv.DictReader(text.splitlines()), start=2)


def _json_rows(text: str, path: Path) -> Iterable[tuple[int, Any]]:
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            try:
                yield number, json.loads(line)
            except ValueError as error:
                raise _wrong(path, number, str(error)) from None


def _entry(row: Any, number: int, path: Path) -> TraceEntry:
    if not isinstance(row, dict) or any(row.get(name) is None for name in _COLUMNS):
        raise _wrong(path, number, "expected " + ", ".join(_COLUMNS))
    values = {name: row[name] for name in _COLUMNS} | {"domain": row.get("domain") or Domain.GENERAL_CHAT.value}
    try:
        entry = msgspec.convert(values, TraceEntry, strict=False)
    except msgspec.ValidationError as error:
        raise _wrong(path, number, str(error)) from None
    if not 0 <= entry.arrival_s < float("inf") or entry.prompt_tokens < 1 or entry.output_tokens < 1:
        raise _wrong(path, number, "arrival_s must be at least 0, prompt_tokens and output_tokens at least 1")
    return entry


def _wrong(path: Path, number: int, problem: str) -> ConfigError:
    return ConfigError(field="traffic.path", value=f"{path}, line {number}", allowed=f"a request ({problem})")
