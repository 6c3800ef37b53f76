"""The short form of `python -m tests.chaos`: one replica of each kind is killed while clients ask for everything."""

from collections.abc import Callable

import pytest

from tests.chaos.conftest import save_model
from tests.chaos.production.application import KINDS
from tests.chaos.production.run import Plan, chaos

pytestmark = [pytest.mark.e2e, pytest.mark.chaos, pytest.mark.slow]


def test_kills_of_every_kind_change_no_answer_and_leave_nothing_behind(
    tmp_path_factory: pytest.TempPathFactory, record_property: Callable[[str, object], None]
) -> None:
    model = save_model(tmp_path_factory.mktemp("models") / "tiny")
    report = chaos(model, Plan(storm_s=20.0, mean_pause_s=2.0), command="pytest tests/e2e/test_chaos.py")
    seen = report.markdown()
    record_property("report", seen)
    assert report.problems() == [], seen
    assert {kill.kind for kill in report.kills} == set(KINDS), seen
    assert all(report.num_under_way(kill) for kill in report.kills), seen
