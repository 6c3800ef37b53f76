"""Prometheus finds what it looks for: ports, the service, the key."""

import pytest

from tests.k8s.manifests import K8S, OVERLAYS, cluster, find, groups, manifests, serve_config


def ports_of(container: dict[str, object]) -> set[str]:
    ports = container["ports"]
    assert isinstance(ports, list)
    return {port["name"] for port in ports}


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_pod_monitors_name_ports_that_pods_have(overlay: str) -> None:
    head = cluster(overlay)["headGroupSpec"]["template"]["spec"]["containers"][0]
    workers = [group["template"]["spec"]["containers"][0] for group in groups(overlay).values()]
    for name, pods in (("outrider-ray-head", [head]), ("outrider-ray-workers", workers)):
        wanted = {endpoint["port"] for endpoint in find(overlay, "PodMonitor", name)["spec"]["podMetricsEndpoints"]}
        assert all(wanted <= ports_of(pod) for pod in pods), name


@pytest.mark.parametrize("overlay", ["cpu-demo", "h100", "secure"])
def test_our_figures_are_scraped_once_through_the_service_and_with_a_key(overlay: str) -> None:
    spec = find(overlay, "ScrapeConfig", "outrider")["spec"]
    service, namespace = "outrider", "outrider"
    port = serve_config(overlay)["http_options"]["port"]
    assert spec["staticConfigs"] == [{"targets": [f"{service}-serve-svc.{namespace}.svc:{port}"]}]
    assert spec["metricsPath"] == "/metrics"
    assert spec["authorization"]["credentials"] == {"name": "outrider-metrics-key", "key": "api_key"}


def test_two_clusters_during_an_upgrade_are_two_targets() -> None:
    spec = find("incremental-upgrade", "ScrapeConfig", "outrider")["spec"]
    assert "staticConfigs" not in spec
    assert spec["kubernetesSDConfigs"] == [{"role": "Service", "namespaces": {"names": ["outrider"]}}]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_what_the_prometheus_operator_reads_carries_its_release(overlay: str) -> None:
    kinds = {"PodMonitor", "ScrapeConfig", "PrometheusRule"}
    found = [each for each in manifests(overlay) if each["kind"] in kinds]
    assert {each["kind"] for each in found} == kinds
    assert all(each["metadata"]["labels"]["release"] == "prometheus" for each in found)


def test_alert_rules_come_from_the_table_of_dashboards() -> None:
    rules = K8S / "observability" / "prometheus" / "prometheusrule.yaml"
    assert rules.exists()
