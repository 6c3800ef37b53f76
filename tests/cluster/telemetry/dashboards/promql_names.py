"""What a query names: metrics with the labels that it asks for, read out of its text."""

import re

from cluster.telemetry import names
from cluster.telemetry.names import Metric, MetricKind

OTHERS = {"ALERTS": {"alertname", "alertstate", "severity", "job"}}
"""Series that Prometheus makes itself, with the labels that they have for us."""

_STRINGS = re.compile(r'"[^"]*"')
_SELECTOR = re.compile(r"(?<![\w:$])((?:vllm:|outrider_)\w+|ALERTS)(\{[^}]*\})?")
_MATCHER = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
_LABEL_LIST = re.compile(r"\b(by|on|group_left|ignoring|without)\s*\(([^()]*)\)")


def known_labels() -> dict[str, set[str]]:
    """Every series of the table as it is scraped, with its labels."""
    known = {name: set(labels) for name, labels in OTHERS.items()}
    for metrics, own in (
        (names.ENGINE_METRICS, names.ENGINE_LABELS),
        (names.MEMBER_METRICS, names.MEMBER_LABELS),
        (names.GATEWAY_METRICS, names.GATEWAY_LABELS),
        (names.ROUTER_METRICS, names.GATEWAY_LABELS),
        (names.DRAFTER_METRICS, names.DRAFTER_LABELS),
        (names.CONTROLLER_METRICS, names.CONTROLLER_LABELS),
        (names.CONFIG_METRICS, names.CONFIG_LABELS),
    ):
        for metric in metrics:
            for series in _series(metric):
                extra = {"le"} if series.endswith("_bucket") else set()
                known[series] = {"job", "instance", *own, *metric.labels, *extra}
    return known


def _series(metric: Metric) -> list[str]:
    if metric.kind is MetricKind.HISTOGRAM:
        return [f"{metric.name}_{part}" for part in ("bucket", "sum", "count")]
    return [metric.name]


def selectors(query: str) -> list[tuple[str, set[str]]]:
    """Each metric that a query names, and the labels that it is matched by."""
    bare = _STRINGS.sub('""', query)
    return [(name, set(_MATCHER.findall(matchers))) for name, matchers in _SELECTOR.findall(bare)]


def grouping_labels(query: str) -> set[str]:
    """The labels by which a query adds up and joins."""
    lists = (labels for _, labels in _LABEL_LIST.findall(query))
    return {label for labels in lists for label in re.findall(r"\w+", labels)}


def result_labels(query: str) -> set[str]:
    """The labels that a query's series may have: those that it groups by, or its metric's own without a group."""
    grouped = {
        label for word, labels in _LABEL_LIST.findall(query) if word == "by" for label in re.findall(r"\w+", labels)
    }
    if grouped or re.search(r"\b(sum|max|min|count)\b", query):
        return grouped
    return set.union(*(known_labels()[name] for name, _ in selectors(query)))
