"""Rendered files are what the overlays say, and built-in kinds are what Kubernetes accepts."""

import kubernetes_validate  # type: ignore[import-untyped]
import pytest

from tests.k8s.manifests import K8S, OVERLAYS, manifests, render

KUBERNETES = "1.37"
CUSTOM = {"RayService", "PodMonitor", "PrometheusRule", "ScrapeConfig"}


def test_every_overlay_is_tested() -> None:
    assert sorted(OVERLAYS) == sorted(folder.name for folder in (K8S / "overlays").iterdir())


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_committed_rendering_is_current(overlay: str) -> None:
    rendered = (K8S / "rendered" / f"{overlay}.yaml").read_text()
    assert rendered == render(overlay), "run `make k8s`"


def test_there_is_no_rendering_without_an_overlay() -> None:
    assert {file.name for file in (K8S / "rendered").iterdir()} == {f"{overlay}.yaml" for overlay in OVERLAYS}


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_built_in_kinds_fit_the_schema_of_kubernetes(overlay: str) -> None:
    for each in manifests(overlay):
        if each["kind"] not in CUSTOM:
            kubernetes_validate.validate(each, KUBERNETES, strict=True)


def test_a_mistyped_field_does_not_fit() -> None:
    service = {"apiVersion": "v1", "kind": "Service", "spec": {"ports": [{"port": 1, "targetport": 2}]}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(service, KUBERNETES, strict=True)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_pod_templates_of_ray_fit_the_schema_of_kubernetes(overlay: str) -> None:
    # KubeRay's schema knows pods as well; this one is stricter about what is in them.
    for each in manifests(overlay):
        if each["kind"] != "RayService":
            continue
        cluster = each["spec"]["rayClusterConfig"]
        for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
            template = {"apiVersion": "v1", "kind": "PodTemplate", "template": group["template"]}
            kubernetes_validate.validate(template, KUBERNETES, strict=True)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_everything_lies_in_one_namespace(overlay: str) -> None:
    namespaces = {each["metadata"].get("namespace") for each in manifests(overlay) if each["kind"] != "Namespace"}
    assert namespaces == {"outrider"}


def test_kustomize_files_hold_no_python() -> None:
    assert not list(K8S.rglob("*.py"))
