from pathlib import Path

import pytest

from cluster.telemetry.dashboards.files import render
from deployments.cli import main

COMMITTED = Path(__file__).parents[2] / "k8s" / "observability"


def files_below(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text(encoding="utf-8") for path in folder.rglob("*") if path.is_file()
    }


def test_the_committed_files_are_those_that_the_code_makes() -> None:
    assert files_below(COMMITTED) == render(), "run: outrider dashboards --out k8s/observability"


def test_the_command_writes_every_file_and_names_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "new" / "folder"
    assert main(["dashboards", "--out", str(out)]) == 0
    assert files_below(out) == render()
    assert set(capsys.readouterr().out.split()) == {str(out / path) for path in render()}


def test_the_command_takes_target_path_and_limits(tmp_path: Path) -> None:
    options = ["--target", "serve:80", "--grafana-path", "/data/boards", "--ttft-slo-s", "0.25"]
    assert main(["dashboards", "--out", str(tmp_path), *options]) == 0
    written = files_below(tmp_path)
    assert "serve:80" in written["prometheus/prometheus.yml"]
    assert "/data/boards" in written["grafana/provisioning/dashboards/outrider.yaml"]
    assert "or 0.25 +" in written["prometheus/rules.yml"]


def test_a_limit_out_of_range_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dashboards", "--out", str(tmp_path), "--tpot-slo-s", "-1"]) == 2
    assert "tpot_slo_s = -1" in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["dashboards", "--out", str(tmp_path / "file")]) == 2
    assert "--out" in capsys.readouterr().err
