"""The files: dashboards and provisioning for Grafana, scrape and rules for Prometheus, and both for Kubernetes."""

import json
from typing import Any

import yaml  # type: ignore[import-untyped]

from cluster.telemetry.dashboards.cost import COST
from cluster.telemetry.dashboards.grafana import dashboard_json
from cluster.telemetry.dashboards.overview import OVERVIEW
from cluster.telemetry.dashboards.pools import POOLS
from cluster.telemetry.dashboards.rule import Rule, Thresholds
from cluster.telemetry.dashboards.rules import rules
from cluster.telemetry.dashboards.speculation import SPECULATION

DASHBOARDS = (OVERVIEW, SPECULATION, POOLS, COST)
GROUP = "outrider"
SCRAPE_INTERVAL = "15s"
TARGET = "localhost:8000"
KEY_FILE = "/etc/prometheus/outrider-api-key"
GRAFANA_PATH = "/etc/grafana/outrider"
RAY_TARGETS = "/tmp/ray/prom_metrics_service_discovery.json"

_MADE_BY = "# Made by `outrider dashboards`; change cluster/telemetry/dashboards instead.\n"
_PROVIDER = """\
#
# For a Grafana of your own: copy this file to its provisioning/dashboards folder, and the JSON files to the path below.
#
# The Grafana that Ray's dashboard embeds needs no such file. Copy the JSON files to a folder, and start Ray with
#   RAY_METRICS_GRAFANA_DASHBOARD_OUTPUT_DIR=FOLDER
# Ray then writes its own dashboards beside them, and its provider shows all. Ray's datasource serves them too.
"""
_SOURCE = """\
#
# For a Grafana that knows no Prometheus yet: copy it to its provisioning/datasources folder and set the address.
"""
_SCRAPE = f"""\
#
# One target is right, however many replicas there are: each gateway answers with the figures of all verifiers,
# drafters, gateways and of the controller. Do not list gateways one by one; the same figures would count twice.
# Where API keys are set, put one of them into {KEY_FILE}; without keys remove `authorization`.
"""
_RULES = """\
#
# Each alert says in `runbook` what it means and what to do.
"""
_OPERATOR_RULES = """\
#
# The same rules as rules.yml, for the Prometheus operator. `release: prometheus` is what kube-prometheus-stack looks
# for when its release has this name.
"""
_DASHBOARD_MAPS = """\
#
# Each dashboard as a ConfigMap, which the sidecar of Grafana's Helm chart finds by the label.
"""


def render(
    thresholds: Thresholds | None = None, *, target: str = TARGET, grafana_path: str = GRAFANA_PATH
) -> dict[str, str]:
    """Path below the output folder and text of every file.

    Args:
        thresholds: limits of the alerts.
        target: host and port that Prometheus scrapes.
        grafana_path: where Grafana finds the dashboards' JSON files.
    """
    wanted = rules(thresholds)
    files = {f"grafana/{each.uid}.json": json.dumps(dashboard_json(each), indent=1) + "\n" for each in DASHBOARDS}
    return files | {
        "grafana/provisioning/dashboards/outrider.yaml": _yaml(_provider(grafana_path), _PROVIDER),
        "grafana/provisioning/datasources/outrider.yaml": _yaml(_datasource(), _SOURCE),
        "prometheus/prometheus.yml": _yaml(_scrape(target), _SCRAPE),
        "prometheus/rules.yml": _yaml(_rule_groups(wanted), _RULES),
        "prometheus/prometheusrule.yaml": _yaml(_prometheus_rule(wanted), _OPERATOR_RULES),
        "prometheus/kustomization.yaml": _yaml(_kustomization() | {"resources": ["prometheusrule.yaml"]}, ""),
        "grafana/kustomization.yaml": _yaml(_kustomization() | _dashboard_maps(), _DASHBOARD_MAPS),
    }


def _yaml(values: dict[str, Any], comment: str) -> str:
    text: str = yaml.safe_dump(values, sort_keys=False, width=120, allow_unicode=True)
    return _MADE_BY + comment + "\n" + text


def _provider(grafana_path: str) -> dict[str, Any]:
    provider = {
        "name": "Outrider", "folder": "Outrider", "type": "file", "allowUiUpdates": False,
        "options": {"path": grafana_path},
    }  # fmt: skip
    return {"apiVersion": 1, "providers": [provider]}


def _datasource() -> dict[str, Any]:
    source = {
        "name": "Prometheus", "type": "prometheus", "access": "proxy", "url": "http://localhost:9090",
        "isDefault": True, "jsonData": {"timeInterval": SCRAPE_INTERVAL},
    }  # fmt: skip
    return {"apiVersion": 1, "datasources": [source]}


def _scrape(target: str) -> dict[str, Any]:
    ours = {
        "job_name": "outrider", "metrics_path": "/metrics",
        "authorization": {"type": "Bearer", "credentials_file": KEY_FILE},
        "static_configs": [{"targets": [target]}],
    }  # fmt: skip
    rays = {"job_name": "ray", "file_sd_configs": [{"files": [RAY_TARGETS]}]}
    return {
        "global": {"scrape_interval": SCRAPE_INTERVAL, "evaluation_interval": SCRAPE_INTERVAL},
        "rule_files": ["rules.yml"],
        "scrape_configs": [ours, rays],
    }


def _rule_groups(wanted: tuple[Rule, ...]) -> dict[str, Any]:
    return {"groups": [{"name": GROUP, "rules": [_rule(each) for each in wanted]}]}


def _rule(rule: Rule) -> dict[str, Any]:
    return {
        "alert": rule.name,
        "expr": rule.expr,
        "for": rule.lasting,
        "labels": {"severity": rule.severity.value},
        "annotations": {"summary": rule.summary, "runbook": rule.runbook},
    }


def _prometheus_rule(wanted: tuple[Rule, ...]) -> dict[str, Any]:
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "outrider", "labels": {"release": "prometheus"}},
        "spec": _rule_groups(wanted),
    }


def _kustomization() -> dict[str, Any]:
    return {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}


def _dashboard_maps() -> dict[str, Any]:
    return {
        "configMapGenerator": [{"name": each.uid, "files": [f"{each.uid}.json"]} for each in DASHBOARDS],
        "generatorOptions": {
            "disableNameSuffixHash": True,
            "labels": {"grafana_dashboard": "1"},
            "annotations": {"grafana_folder": "Outrider"},
        },
    }
