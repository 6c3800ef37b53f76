"""`outrider calibrate` on the tiny model: files, table, refusals, resuming, and Ctrl-C in a process of its own."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cluster.config import EngineConfig
from cluster.engine.calibration import Calibration, load_calibration
from cluster.engine.engine import Engine
from deployments import cli

ROOT = Path(__file__).parents[2]
SMALL = ("--workload", "copy,chat", "--concurrency", "1,2", "--lookahead", "0,2,auto", "--turns", "1", "--turn-s", "0")
CELLS = {(workload, n, k) for workload in ("copy", "chat") for n in (1, 2) for k in (0, 2, None)}


def options(model: Path, out: Path, *more: str) -> list[str]:
    engine = ("--model", str(model), "--dtype", "float32", "--num-threads", "1")
    return ["calibrate", *engine, "--out", str(out), *(more or SMALL)]


def cells(calibration: Calibration) -> set[tuple[str, int, int | None]]:
    return {(p.workload, p.concurrency, p.num_speculative_tokens) for p in calibration.points}


@pytest.fixture(scope="module")
def measured(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("calibrate") / "c.json"
    assert cli.main(options(tiny_model_dir, out)) == 0
    return out


@pytest.mark.engine
def test_every_cell_of_the_grid_is_measured(measured: Path) -> None:
    calibration = load_calibration(measured, model_id="tiny")
    assert cells(calibration) == CELLS
    assert calibration.is_complete
    assert (calibration.drafter, calibration.machine.num_threads) == ("ngram", 1)
    assert set(calibration.crossover) == {"copy", "chat"}
    for point in calibration.points:
        k = point.num_speculative_tokens
        # No row of a prompt, and no round in which a sequence had ended.
        assert point.concurrency <= point.round.num_rows <= point.concurrency * (1 + (7 if k is None else k))
        assert point.round.num_context_tokens > 0
        assert point.round.forward_s < point.round.total_s
    assert {entry.source for entry in calibration.acceptance} <= {"ngram"}


@pytest.mark.engine
def test_step_times_reach_up_to_the_largest_round(measured: Path) -> None:
    times = load_calibration(measured).step_times
    assert [rows for rows, _ in times.knots] == [1, 2, 4, 6]
    assert times.sequence_s > 0


@pytest.mark.engine
def test_the_report_stands_beside_the_file(measured: Path) -> None:
    page = measured.with_suffix(".html").read_text()
    assert "Calibration of tiny" in page
    assert page.count("<svg") >= 10


@pytest.mark.engine
def test_an_engine_starts_from_the_file(measured: Path, tiny_model_dir: Path) -> None:
    config = EngineConfig(model=str(tiny_model_dir), kv_cache_tokens=2048, num_threads=1, calibration=str(measured))
    Engine.from_config(config).close()


@pytest.mark.engine
def test_resuming_a_complete_run_measures_no_cell_again(
    measured: Path, tiny_model_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = load_calibration(measured)
    assert cli.main([*options(tiny_model_dir, measured), "--resume", "--json"]) == 0
    after = load_calibration(measured)
    assert after.points == before.points
    assert after.acceptance == before.acceptance
    captured = capsys.readouterr()
    assert json.loads(captured.out)["model_id"] == "tiny"
    assert "written: " in captured.err


@pytest.mark.engine
def test_resuming_takes_up_missing_cells_alone(measured: Path, tiny_model_dir: Path, tmp_path: Path) -> None:
    tree = json.loads(measured.read_text())
    kept = [point for point in tree["points"] if point["workload"] == "copy"]
    out = tmp_path / "c.json"
    out.write_text(json.dumps(tree | {"points": kept, "is_complete": False, "crossover": {}}))
    partial = load_calibration(out)
    assert cli.main([*options(tiny_model_dir, out), "--resume"]) == 0
    whole = load_calibration(out)
    assert cells(whole) == CELLS
    assert whole.is_complete
    assert [point for point in whole.points if point.workload == "copy"] == list(partial.points)


@pytest.mark.engine
def test_a_run_of_another_pair_is_not_gone_on_with(
    measured: Path, tiny_model_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "c.json"
    out.write_text(measured.read_text().replace('"tiny"', '"other"'))
    assert cli.main([*options(tiny_model_dir, out), "--resume"]) == 2
    assert "--resume = 'other' is not allowed: expected a calibration with model_id = 'tiny'" in capsys.readouterr().err


@pytest.mark.engine
@pytest.mark.parametrize("drafter", ["local", pytest.param("actor", marks=pytest.mark.slow)])
def test_a_draft_model_is_calibrated_where_it_drafts(
    tiny_model_dir: Path, tiny_draft_dir: Path, tmp_path: Path, drafter: str
) -> None:
    out = tmp_path / "c.json"
    who = ("--drafter", drafter, "--draft-model", str(tiny_draft_dir), "--set", "engine.drafter=off")
    # The draft model is as large as this tiny target: without a wait, its tables would all be late.
    draft = (*who, "--set", "draft.draft_wait_s=0.2")
    grid = ("--workload", "chat", "--concurrency", "2", "--lookahead", "0,2,auto", "--turns", "2", "--turn-s", "0.2")
    assert cli.main(options(tiny_model_dir, out, *draft, *grid)) == 0
    calibration = load_calibration(out)
    assert calibration.drafter == drafter
    (entry,) = calibration.acceptance
    assert entry.num_drafts > 0
    assert len(entry.num_tried) <= 2
    assert entry.conditional_rate > 0.9  # the draft model says what the target says


@pytest.mark.parametrize(
    ("more", "named"),
    [
        (("--workload", "poetry"), "--workload = 'poetry'"),
        (("--concurrency", "1,x"), "--concurrency = '1,x'"),
        (("--concurrency", "0"), "--concurrency = 0"),
        (("--concurrency", "128"), "--concurrency"),
        (("--lookahead", "0,65"), "--lookahead = 65"),
        (("--lookahead", "2,4"), "--lookahead"),
        (("--lookahead", "auto"), "--lookahead"),
        (("--turns", "0"), "--turns = 0"),
        (("--turn-s", "nan"), "--turn-s = nan"),
        (("--report", "/nothing/here.html"), "/nothing/here.html"),
        (("--drafter", "off"), "drafter = 'off'"),
        (("--resume",), "calibration = "),
        (("--set", "engine.nonsense=1"), "engine.nonsense"),
    ],
)
def test_wrong_arguments_are_named_before_anything_is_loaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: tuple[str, ...], named: str
) -> None:
    assert cli.main(options(Path("/nothing/here"), tmp_path / "c.json", *more)) == 2
    assert named in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_model_that_is_not_there_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(options(Path("/nothing/here"), tmp_path / "c.json")) == 2
    assert "/nothing/here" in capsys.readouterr().err


@pytest.mark.engine
@pytest.mark.slow
def test_ctrl_c_keeps_what_was_measured_and_the_run_can_be_resumed(tiny_model_dir: Path, tmp_path: Path) -> None:
    out = tmp_path / "c.json"
    grid = ("--workload", "copy,chat", "--concurrency", "1,2", "--lookahead", "0,2,auto", "--turns", "2")
    command = [sys.executable, "-m", "deployments.cli", *options(tiny_model_dir, out, *grid, "--turn-s", "2")]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            end_s = time.monotonic() + 300
            while not out.exists():  # written when the first group of cells is done
                assert process.poll() is None and time.monotonic() < end_s
                time.sleep(0.1)
            time.sleep(3)  # into the second group
            process.send_signal(signal.SIGINT)
            _, told = process.communicate(timeout=120)
        finally:
            process.kill()
    assert process.returncode == 130
    assert "interrupted: what was measured is kept" in told
    partial = load_calibration(out, model_id="tiny")
    assert not partial.is_complete
    assert {(p.workload, p.concurrency) for p in partial.points} <= {("copy", 1), ("copy", 2)}
    assert {p.num_speculative_tokens for p in partial.points if p.concurrency == 1} == {0, 2, None}
    assert "interrupted" in out.with_suffix(".html").read_text()
    first = [point for point in partial.points if point.concurrency == 1]

    assert cli.main([*options(tiny_model_dir, out, *grid, "--turn-s", "0"), "--resume"]) == 0
    whole = load_calibration(out)
    assert whole.is_complete
    assert cells(whole) == CELLS
    assert list(whole.points[:3]) == first


@pytest.mark.engine
@pytest.mark.slow
def test_ctrl_c_before_anything_was_measured_leaves_no_file(tiny_model_dir: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "deployments.cli", *options(tiny_model_dir, tmp_path / "c.json")]
    script = (
        "import sys, signal, threading\n"
        "from cluster.engine import startup\n"
        "from deployments import calibrate_engine, cli\n"
        "def load(*args, **kwargs):\n"
        "    signal.raise_signal(signal.SIGINT)\n"
        "calibrate_engine.load_parts = load\n"
        "sys.exit(cli.main(sys.argv[1:]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *command[3:]], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 130
    assert "interrupted before anything was measured" in done.stderr
    assert list(tmp_path.iterdir()) == []
