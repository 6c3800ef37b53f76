import json
import re
from typing import Any

import pytest

from autoscaling.types import DecisionReason
from cluster.telemetry.dashboards.files import DASHBOARDS, render
from cluster.telemetry.dashboards.grafana import COLUMNS, SCHEMA_VERSION, dashboard_json
from cluster.telemetry.dashboards.model import Dashboard, Panel, Query
from cluster.telemetry.dashboards.pools import REASONS
from deployments.draft_follow import Missing
from deployments.draft_health import Change
from tests.cluster.telemetry.dashboards.promql_names import (
    grouping_labels,
    known_labels,
    result_labels,
    selectors,
)

each_dashboard = pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda each: each.uid)


def queries_of(dashboard: Dashboard) -> list[tuple[Panel, Query]]:
    return [(panel, query) for panel in dashboard.panels for query in panel.queries]


def panel_named(title: str) -> Panel:
    (found,) = (panel for dashboard in DASHBOARDS for panel in dashboard.panels if panel.title == title)
    return found


def drawn(dashboard: Dashboard) -> list[dict[str, Any]]:
    panels: list[dict[str, Any]] = dashboard_json(dashboard)["panels"]
    return panels


@each_dashboard
def test_a_panels_query_names_metrics_and_labels_of_the_table(dashboard: Dashboard) -> None:
    known = known_labels()
    for panel, query in queries_of(dashboard):
        found = selectors(query.expr)
        assert found, panel.title
        for name, labels in found:
            assert name in known, f"{panel.title}: there is no metric {name}"
            assert labels <= known[name], f"{panel.title}: {name} has no labels {labels - known[name]}"
        of_all = set.union(*(known[name] for name, _ in found))
        assert grouping_labels(query.expr) <= of_all, f"{panel.title}: {query.expr}"


@each_dashboard
def test_legends_and_columns_use_labels_that_the_query_keeps(dashboard: Dashboard) -> None:
    for panel, query in queries_of(dashboard):
        used = {*re.findall(r"{{(\w+)}}", query.legend), *(label for label, _ in panel.labels)}
        assert used <= result_labels(query.expr), f"{panel.title}: {query.expr}"


@each_dashboard
def test_every_selector_follows_the_choice_of_the_application(dashboard: Dashboard) -> None:
    for panel, query in queries_of(dashboard):
        assert query.expr.count('job=~"$job"') == len(selectors(query.expr)), f"{panel.title}: {query.expr}"


def test_every_panel_says_how_to_read_it_and_titles_are_not_used_twice_on_a_dashboard() -> None:
    for dashboard in DASHBOARDS:
        titles = [panel.title for panel in dashboard.panels]
        assert len(titles) == len(set(titles)), dashboard.title
        for panel in dashboard.panels:
            assert panel.description.endswith("."), panel.title
            assert len(panel.description) > 40, panel.title


def test_every_reason_of_the_controller_is_explained_on_the_pools_dashboard() -> None:
    named = set(re.findall(r"[a-z_]+(?=[,:])", REASONS))
    assert named >= {reason.value for reason in DecisionReason}


@pytest.mark.parametrize(
    ("title", "words"),
    [
        ("Why sequences did without", {reason.value for reason in Missing}),
        ("Changes of a verifier's mind about its drafter", {change.value for change in Change} - {"probe_failed"}),
    ],
)
def test_the_words_of_a_label_are_explained_beside_its_panel(title: str, words: set[str]) -> None:
    description = panel_named(title).description
    assert {word for word in words if word not in description} == set()


@each_dashboard
def test_a_dashboard_has_the_fields_that_the_schema_requires(dashboard: Dashboard) -> None:
    """After grafana/grafana, kinds/dashboard/dashboard_kind.cue: fields without `?`."""
    drawing = json.loads(json.dumps(dashboard_json(dashboard)))
    assert drawing["schemaVersion"] == SCHEMA_VERSION
    assert {"style", "editable", "graphTooltip"} <= drawing.keys()
    assert re.fullmatch(r"[a-z-]{8,40}", drawing["uid"])
    for variable in drawing["templating"]["list"]:
        assert {"type", "name", "hide", "skipUrlSync"} <= variable.keys()
        assert variable["type"] in ("query", "datasource")
    for annotation in drawing["annotations"]["list"]:
        assert {"name", "datasource", "enable", "iconColor"} <= annotation.keys()
    for link in drawing["links"]:
        fields = {"title", "type", "icon", "tooltip", "url", "tags", "asDropdown", "targetBlank", "includeVars"}
        assert fields | {"keepTime"} <= link.keys()
    for panel in drawing["panels"]:
        assert panel["type"]
        assert panel["gridPos"]["h"] > 0
        assert 0 < panel["gridPos"]["w"] <= COLUMNS
        if panel["type"] == "row":
            assert {"collapsed", "id", "panels"} <= panel.keys()
            continue
        assert {"transparent", "repeatDirection", "transformations", "options", "fieldConfig"} <= panel.keys()
        assert {"defaults", "overrides"} <= panel["fieldConfig"].keys()
        assert panel["fieldConfig"]["defaults"]["thresholds"]["steps"][0]["value"] is None
        assert all({"refId", "expr", "datasource"} <= target.keys() for target in panel["targets"])


@each_dashboard
def test_panels_do_not_overlap_and_ids_are_unique(dashboard: Dashboard) -> None:
    panels = drawn(dashboard)
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= COLUMNS
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells


def test_a_tables_columns_are_named_and_ordered() -> None:
    (table,) = (panel for panel in drawn(DASHBOARDS[2]) if panel["title"] == "Last changes of role")
    (_, kept, organised) = table["transformations"]
    assert kept["options"]["include"]["names"] == ["engine", "role", "Value"]
    assert organised["options"]["renameByName"] == {"engine": "verifier", "role": "became", "Value": "ago"}
    assert table["options"]["sortBy"] == [{"displayName": "ago", "desc": False}]
    assert table["targets"][0]["format"] == "table"
    assert table["targets"][0]["instant"]


def test_a_table_of_several_queries_names_each_ones_values_and_unit() -> None:
    (table,) = (panel for panel in drawn(DASHBOARDS[3]) if panel["title"] == "By pool")
    renamed = table["transformations"][2]["options"]["renameByName"]
    assert renamed["Value #A"] == "tokens"
    assert renamed["Value #C"] == "$ per million"
    units = {each["matcher"]["options"]: each["properties"][0]["value"] for each in table["fieldConfig"]["overrides"]}
    assert units["$ per million"] == "currencyUSD"


def test_datasource_and_application_can_be_chosen_and_nothing_is_tied_to_one_prometheus() -> None:
    for path, text in render().items():
        if path.endswith(".json"):
            uids = set(re.findall(r'"uid": "([^"]*)"', text)) - {each.uid for each in DASHBOARDS}
            assert uids == {"${datasource}"}, path
