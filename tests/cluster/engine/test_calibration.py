import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cluster.engine.calibration import MAX_FILE_BYTES, load_calibration, save_calibration
from cluster.errors import ConfigError, LoadError
from tests.calibrations import make_acceptance, make_calibration


def saved(tmp_path: Path, **changes: Any) -> Path:
    path = tmp_path / "calibration.json"
    save_calibration(make_calibration(**changes), path)
    return path


def damaged(tmp_path: Path, place: str, value: object) -> Path:
    """A file in which one value was replaced, by a path such as points.0.tpot_s."""
    path = saved(tmp_path)
    tree: Any = json.loads(path.read_text())
    *parents, last = place.split(".")
    node = tree
    for name in parents:
        node = node[int(name) if name.isdigit() else name]
    if value is ...:
        del node[last]
    else:
        node[int(last) if last.isdigit() else last] = value
    path.write_text(json.dumps(tree))
    return path


def test_what_is_saved_is_what_is_loaded(tmp_path: Path) -> None:
    path = saved(tmp_path)
    assert load_calibration(path) == make_calibration()
    assert load_calibration(str(path), model_id="tiny") == make_calibration()


def test_an_interrupted_calibration_without_points_is_valid(tmp_path: Path) -> None:
    empty = make_calibration(points=(), acceptance=(), crossover={}, estimates=(), is_complete=False)
    path = tmp_path / "calibration.json"
    save_calibration(empty, path)
    assert load_calibration(path) == empty


def test_rates_stand_in_the_file_for_readers_and_follow_from_the_counts(tmp_path: Path) -> None:
    entry = make_acceptance(rate=0.5)
    shown = json.loads(saved(tmp_path, acceptance=(entry,)).read_text())["acceptance"][0]
    assert shown["per_position"] == list(entry.per_position) == pytest.approx([0.5] * 4, abs=0.01)
    assert entry.mean_acceptance_length == shown["mean_acceptance_length"] == pytest.approx(1 + 0.9375, abs=0.01)
    assert entry.acceptance_rate == pytest.approx(0.9375 / 4, abs=0.01)
    assert entry.conditional_rate == pytest.approx(0.5, abs=0.01)


def test_acceptance_without_a_draft_has_no_rates_to_divide_by() -> None:
    nothing = replace(make_acceptance(), num_drafts=0, num_tried=(), num_accepted=(), num_draft_tokens=0, num_rounds=0)
    assert (nothing.per_position, nothing.acceptance_rate, nothing.conditional_rate) == ((), 0.0, 0.0)
    assert (nothing.mean_acceptance_length, nothing.draft_ratio) == (1.0, 0.0)


@pytest.mark.parametrize(
    ("place", "value", "named"),
    [
        ("version", 2, "version: 2"),
        ("version", ..., "version: None"),
        ("version", True, "version: True"),
        ("model_id", ..., "model_id"),
        ("model_id", 7, "model_id"),
        ("step_times", ..., "step_times"),
        ("step_times.knots", [], "step_times.knots"),
        ("step_times.knots.0", [2, 0.01], "step_times.knots"),
        ("step_times.knots.1.1", 0.001, r"step_times.knots\[1\]: 0.001 s after 0.01 s"),
        ("step_times.knots.1.0", 1, r"step_times.knots\[1\]"),
        ("step_times.knots.1.1", math.nan, r"step_times.knots\[1\]: nan"),
        ("step_times.knots.3.1", math.inf, r"step_times.knots\[3\]: inf"),
        ("step_times.context_s", -1e-9, "step_times.context_s"),
        ("step_times.draft_row_s", math.nan, "step_times.draft_row_s: nan"),
        ("points.0.tokens_per_s", 0, r"points\[0\].tokens_per_s"),
        ("points.0.tokens_per_s", "fast", r"points\[0\].tokens_per_s"),
        ("points.1.tpot_s", math.nan, r"points\[1\].tpot_s: nan"),
        ("points.1.concurrency", 0, r"points\[1\].concurrency"),
        ("points.1.num_speculative_tokens", 65, r"points\[1\].num_speculative_tokens"),
        ("points.1.num_speculative_tokens", 0, r"points\[1\]: the same cell as points\[0\]"),
        ("points.1.round.total_s", 0, r"points\[1\].round.total_s"),
        ("points.1.round.forward_s", ..., r"points\[1\].round"),
        ("points.1.mean_acceptance_length", 0.5, r"points\[1\].mean_acceptance_length"),
        ("points.1.acceptance_rate", 1.5, r"points\[1\].acceptance_rate"),
        ("acceptance.0.num_accepted.0", 1001, r"acceptance\[0\].num_accepted\[0\]"),
        ("acceptance.0.num_accepted", [1], r"acceptance\[0\]: 4 positions tried, but 1 accepted"),
        ("acceptance.0.num_drafts", 1001, r"acceptance\[0\].num_drafts"),
        ("acceptance.0.num_draft_tokens", 3, r"acceptance\[0\].num_draft_tokens"),
        ("crossover.copy", 0.5, "crossover.copy"),
        ("crossover.copy", math.nan, "crossover.copy: nan"),
        ("estimates.0.predicted", 1.1, r"estimates\[0\].predicted"),
        ("estimates.0.num_tokens", 0, r"estimates\[0\].num_tokens"),
        ("machine.num_cores", 0, "machine: 0 cores"),
    ],
)
def test_an_impossible_value_is_refused_by_file_and_field(
    tmp_path: Path, place: str, value: object, named: str
) -> None:
    path = damaged(tmp_path, place, value)
    with pytest.raises(LoadError, match=named) as caught:
        load_calibration(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 100_000, b"{}"])
def test_what_is_no_calibration_at_all_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "calibration.json"
    path.write_bytes(content)
    with pytest.raises(LoadError, match=r"calibration\.json"):
        load_calibration(path)


def test_a_file_that_is_far_too_large_is_not_parsed(tmp_path: Path) -> None:
    path = tmp_path / "calibration.json"
    path.write_bytes(b" " * (MAX_FILE_BYTES + 1))
    with pytest.raises(LoadError, match="more than 16 MiB"):
        load_calibration(path)


def test_a_calibration_of_another_model_is_refused_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match=r"model_id: it was measured with 'tiny', but the model is 'other'.*calibrate"):
        load_calibration(saved(tmp_path), model_id="other")


def test_a_file_that_cannot_be_read_or_written_is_a_setting_at_fault(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"calibration = .*missing\.json"):
        load_calibration(tmp_path / "missing.json")
    with pytest.raises(ConfigError, match="a readable file"):
        load_calibration(tmp_path)
    with pytest.raises(ConfigError, match="can be written"):
        save_calibration(make_calibration(), tmp_path / "missing" / "calibration.json")


def test_saving_replaces_the_file_at_once_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = saved(tmp_path)
    save_calibration(make_calibration(model_id="other"), path)
    assert load_calibration(path).model_id == "other"
    assert list(tmp_path.iterdir()) == [path]
