"""Dashboards as Grafana reads them: JSON of schema version 36, which newer Grafanas migrate by themselves.

Required fields after grafana/grafana, kinds/dashboard/dashboard_kind.cue.
"""

from typing import Any

from cluster.telemetry.dashboards.model import Dashboard, Panel, PanelKind, Query
from cluster.telemetry.dashboards.promql import pick

SCHEMA_VERSION = 36
TAG = "outrider"
COLUMNS = 24
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
_RANGE = {"from": "now-1h", "to": "now"}
_LEGEND = {"showLegend": True, "displayMode": "list", "placement": "bottom", "calcs": []}
_REDUCE_TO_LAST = {"values": False, "calcs": ["lastNotNull"], "fields": ""}


def dashboard_json(dashboard: Dashboard) -> dict[str, Any]:
    """The JSON model of a dashboard."""
    return {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "description": dashboard.description,
        "tags": [TAG],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "style": "dark",
        "editable": True,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": _RANGE,
        "timezone": "browser",
        "templating": {"list": _variables()},
        "annotations": {"list": _annotations()},
        "links": [_link_to_the_others()],
        "panels": _panels(dashboard),
    }


def _variables() -> list[dict[str, Any]]:
    jobs = f"label_values(outrider_http_active_requests, {'job'})"
    return [
        {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus", "hide": 0,
         "skipUrlSync": False, "refresh": 1, "includeAll": False, "multi": False, "options": [], "current": {}},
        {"name": "job", "label": "Application", "type": "query", "datasource": DATASOURCE, "definition": jobs,
         "query": {"query": jobs, "refId": "jobs"}, "hide": 0, "skipUrlSync": False, "refresh": 2, "sort": 1,
         "includeAll": True, "allValue": ".*", "multi": True, "options": [],
         "current": {"selected": True, "text": ["All"], "value": ["$__all"]}},
    ]  # fmt: skip


def _annotations() -> list[dict[str, Any]]:
    moves = f"sum by (role, reason) (increase({pick('outrider_pool_moves_total')}[$__rate_interval])) > 0"
    return [
        {"name": "Moves between pools", "datasource": DATASOURCE, "enable": True, "hide": False,
         "iconColor": "purple", "expr": moves, "titleFormat": "a verifier becomes {{role}}: {{reason}}", "step": "15s"},
    ]  # fmt: skip


def _link_to_the_others() -> dict[str, Any]:
    return {
        "type": "dashboards", "tags": [TAG], "title": "Outrider", "icon": "external link", "tooltip": "", "url": "",
        "asDropdown": False, "includeVars": True, "keepTime": True, "targetBlank": False,
    }  # fmt: skip


def _panels(dashboard: Dashboard) -> list[dict[str, Any]]:
    """Rows and panels with ids and places, from left to right and line by line."""
    placed: list[dict[str, Any]] = []
    y = 0
    for row in dashboard.rows:
        placed.append(
            {"id": len(placed) + 1, "type": "row", "title": row.title, "collapsed": False, "panels": [],
             "gridPos": {"x": 0, "y": y, "w": COLUMNS, "h": 1}}
        )  # fmt: skip
        x, y, line_height = 0, y + 1, 0
        for panel in row.panels:
            if x + panel.width > COLUMNS:
                x, y, line_height = 0, y + line_height, 0
            place = {"x": x, "y": y, "w": panel.width, "h": panel.height}
            placed.append(_panel(panel, len(placed) + 1) | {"gridPos": place})
            x, line_height = x + panel.width, max(line_height, panel.height)
        y += line_height
    return placed


def _panel(panel: Panel, number: int) -> dict[str, Any]:
    return {
        "id": number,
        "type": panel.kind.value,
        "title": panel.title,
        "description": panel.description,
        "datasource": DATASOURCE,
        "transparent": False,
        "repeatDirection": "h",
        "targets": [_target(panel, query, chr(ord("A") + index)) for index, query in enumerate(panel.queries)],
        "transformations": _transformations(panel),
        "options": _options(panel),
        "fieldConfig": {"defaults": _defaults(panel), "overrides": _overrides(panel)},
    }


def _target(panel: Panel, query: Query, ref_id: str) -> dict[str, Any]:
    is_instant = panel.kind in (PanelKind.STAT, PanelKind.TABLE, PanelKind.BARS)
    return {
        "refId": ref_id,
        "datasource": DATASOURCE,
        "editorMode": "code",
        "expr": query.expr,
        "legendFormat": query.legend,
        "instant": is_instant,
        "range": not is_instant,
        "format": "table" if panel.kind is PanelKind.TABLE else "time_series",
    }


def _transformations(panel: Panel) -> list[dict[str, Any]]:
    if panel.kind is not PanelKind.TABLE:
        return []
    headings = dict(panel.labels) | dict(zip(_value_fields(panel), (q.legend for q in panel.queries), strict=True))
    return [
        {"id": "merge", "options": {}},
        {"id": "filterFieldsByName", "options": {"include": {"names": list(headings)}}},
        {"id": "organize", "options": {"excludeByName": {}, "renameByName": headings,
                                       "indexByName": {name: index for index, name in enumerate(headings)}}},
    ]  # fmt: skip


def _value_fields(panel: Panel) -> list[str]:
    """What Grafana calls the value columns of a table."""
    if len(panel.queries) == 1:
        return ["Value"]
    return [f"Value #{chr(ord('A') + index)}" for index in range(len(panel.queries))]


def _options(panel: Panel) -> dict[str, Any]:
    match panel.kind:
        case PanelKind.STAT:
            return {"reduceOptions": _REDUCE_TO_LAST, "colorMode": "value", "graphMode": "none", "textMode": "value",
                    "justifyMode": "auto", "orientation": "auto"}  # fmt: skip
        case PanelKind.BARS:
            return {"reduceOptions": _REDUCE_TO_LAST, "displayMode": "basic", "orientation": "horizontal",
                    "showUnfilled": True, "minVizWidth": 0, "minVizHeight": 10}  # fmt: skip
        case PanelKind.TABLE:
            order = {"displayName": panel.queries[0].legend, "desc": not panel.latest_first}
            return {"showHeader": True, "sortBy": [order]}
        case PanelKind.STATES:
            return {"mergeValues": True, "showValue": "auto", "alignValue": "left", "rowHeight": 0.9,
                    "legend": _LEGEND, "tooltip": {"mode": "single", "sort": "none"}}  # fmt: skip
        case PanelKind.TIME_SERIES:
            return {"legend": _LEGEND, "tooltip": {"mode": "multi", "sort": "desc"}}


def _defaults(panel: Panel) -> dict[str, Any]:
    steps = [{"value": step.value, "color": step.color} for step in panel.steps] or [{"value": None, "color": "text"}]
    values: dict[str, Any] = {
        "unit": panel.unit.value,
        "color": {"mode": "thresholds" if panel.kind is PanelKind.STAT else "palette-classic"},
        "thresholds": {"mode": "absolute", "steps": steps},
        "mappings": _mappings(panel),
        "custom": _custom(panel),
    }
    if panel.lowest is not None:
        values["min"] = panel.lowest
    if panel.highest is not None:
        values["max"] = panel.highest
    return values


def _mappings(panel: Panel) -> list[dict[str, Any]]:
    if not panel.names:
        return []
    shown = {value: {"text": text, "color": color, "index": i} for i, (value, text, color) in enumerate(panel.names)}
    return [{"type": "value", "options": shown}]


def _custom(panel: Panel) -> dict[str, Any]:
    match panel.kind:
        case PanelKind.TIME_SERIES:
            return {
                "drawStyle": "line", "lineWidth": 1, "fillOpacity": 25 if panel.stacked else 0, "showPoints": "never",
                "spanNulls": False, "stacking": {"mode": "normal" if panel.stacked else "none", "group": "A"},
            }  # fmt: skip
        case PanelKind.STATES:
            return {"lineWidth": 0, "fillOpacity": 70}
        case _:
            return {}


def _overrides(panel: Panel) -> list[dict[str, Any]]:
    """Units of single columns."""
    return [
        {
            "matcher": {"id": "byName", "options": query.legend},
            "properties": [{"id": "unit", "value": query.unit.value}],
        }
        for query in panel.queries
        if query.unit is not None
    ]
