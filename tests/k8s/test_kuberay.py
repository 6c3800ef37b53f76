"""RayServices against KubeRay's schema, with its defaults, and against the rules of its operator."""

from copy import deepcopy
from functools import cache

import pytest

from tests.k8s.crd_schema import Schema, errors_of, load_schema, with_defaults
from tests.k8s.kuberay_rules import violations
from tests.k8s.manifests import OVERLAYS, ROOT, Manifest, cluster, groups, ray_service

DEFINITION = ROOT.parent / "shared" / "data" / "kuberay" / "ray.io_rayservices.yaml"
needs_definition = pytest.mark.skipif(not DEFINITION.exists(), reason=f"KubeRay's schema is not at {DEFINITION}")


@cache
def schema() -> Schema:
    return load_schema(DEFINITION, "v1")


def changed(overlay: str, path: str, value: object) -> Manifest:
    """A RayService with a field of its `rayClusterConfig` (or, after a slash, of its spec) set, or gone with None."""
    service = deepcopy(ray_service(overlay))
    place = service["spec"] if path.startswith("/") else service["spec"]["rayClusterConfig"]
    *parents, last = [int(word) if word.isdigit() else word for word in path.removeprefix("/").split(".")]
    for word in parents:
        place = place[word]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return service


@needs_definition
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_a_ray_service_fits_the_schema(overlay: str) -> None:
    assert errors_of(schema(), ray_service(overlay)) == []


@needs_definition
@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("workerGroupSpecs.0.numOfHost", 2, "numOfHost"),
        ("workerGroupSpecs.0.replicas", "4", "is not of type"),
        ("headGroupSpec.template", None, "template"),
        ("autoscalerOptions.version", "v3", "v3"),
        ("/serveConfig", "x", "serveConfig"),
    ],
)
def test_the_schema_catches(path: str, value: object, message: str) -> None:
    errors = errors_of(schema(), changed("h100", path, value))
    assert errors
    assert all(message in error for error in errors)


@needs_definition
def test_defaults_are_applied_before_the_check() -> None:
    service = changed("h100", "workerGroupSpecs.0.minReplicas", None)
    filled = with_defaults(schema(), service)
    assert filled["spec"]["rayClusterConfig"]["workerGroupSpecs"][0]["minReplicas"] == 0
    assert errors_of(schema(), service) == []


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_operator_refuses_nothing(overlay: str) -> None:
    assert violations(ray_service(overlay)) == []


HEAD = "headGroupSpec.template.spec"


@pytest.mark.parametrize(
    ("overlay", "path", "value", "message"),
    [
        ("h100", "workerGroupSpecs.0.minReplicas", 9, "minReplicas"),
        ("h100", "headGroupSpec.rayStartParams.labels", "a=b", "labels"),
        ("h100", "rayVersion", None, "2.52"),
        ("h100", f"{HEAD}.restartPolicy", "Always", "restartPolicy"),
        ("h100", f"{HEAD}.containers.0.env", [{"name": "REDIS_PASSWORD", "value": "x"}], "REDIS_PASSWORD"),
        ("h100", f"{HEAD}.containers.0.ports", None, "serve"),
        ("incremental-upgrade", "/upgradeStrategy.clusterUpgradeOptions.stepSizePercent", 50, "stepSizePercent"),
        ("incremental-upgrade", "enableInTreeAutoscaling", None, "autoscaler"),
        ("secure", "networkPolicy.mode", "DenyAllIngress", "egressRules"),
        ("secure", f"{HEAD}.containers.0.env", [{"name": "RAY_USE_TLS", "value": "1"}], "RAY_USE_TLS"),
    ],
)
def test_the_rules_catch(overlay: str, path: str, value: object, message: str) -> None:
    found = violations(changed(overlay, path, value))
    assert found
    assert all(message in text for text in found)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_cluster_names_the_ray_version_of_the_image(overlay: str) -> None:
    pinned = (ROOT / "constraints.txt").read_text().splitlines()
    assert f"ray=={cluster(overlay)['rayVersion']}" in pinned


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_head_does_no_work_and_takes_no_requests(overlay: str) -> None:
    assert cluster(overlay)["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    assert ray_service(overlay)["spec"]["excludeHeadPodFromServeSvc"]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_autoscaler_is_the_second_version_written_out(overlay: str) -> None:
    assert cluster(overlay)["enableInTreeAutoscaling"]
    assert cluster(overlay)["autoscalerOptions"]["version"] == "v2"


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_ray_asks_for_a_token(overlay: str) -> None:
    assert cluster(overlay)["authOptions"]["mode"] == "token"


def test_roles_have_no_worker_group_so_a_new_role_moves_no_pod() -> None:
    assert all(set(groups(overlay)) == {"verifier", "drafter"} for overlay in OVERLAYS)


@pytest.mark.parametrize("overlay", ["h100", "secure", "incremental-upgrade"])
def test_a_head_that_dies_finds_its_state_again(overlay: str) -> None:
    assert cluster(overlay)["gcsFaultToleranceOptions"]["redisAddress"] == "outrider-redis:6379"


def test_the_secure_overlay_denies_and_encrypts() -> None:
    config = cluster("secure")
    assert config["networkPolicy"]["mode"] == "DenyAll"
    assert config["tlsOptions"] == {"enabled": True}
    assert config["authOptions"] == {"mode": "token", "secretName": "outrider-ray-token"}
