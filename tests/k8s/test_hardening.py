"""Pods as an operator wants them: no root, nothing writable, pinned images, honest probes, time to drain."""

import re
from typing import Any

import pytest

from tests.k8s.manifests import (
    K8S,
    OVERLAYS,
    Manifest,
    application,
    cluster,
    containers,
    find,
    groups,
    manifests,
    pod_templates,
    ray_service,
)

GUARD = "deployments.http_guard:install"
REPLACEMENT_S = 300
"""What a verifier may need to start on another node before the one here stops."""


def environment(container: Manifest) -> dict[str, Any]:
    return {each["name"]: each.get("value") for each in container.get("env", ())}


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_no_container_has_privileges_or_a_writable_root(overlay: str) -> None:
    every = [(name, each) for name, template in pod_templates(overlay) for each in containers(template)]
    every.append(("autoscaler", cluster(overlay)["autoscalerOptions"]))
    assert len(every) >= 4
    for name, container in every:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }, name


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_no_pod_runs_as_root_or_without_seccomp(overlay: str) -> None:
    for name, template in pod_templates(overlay):
        context = template["spec"]["securityContext"]
        assert context["runAsNonRoot"], name
        assert context["runAsUser"] == 1000, name
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert not template["spec"].keys() & {"hostNetwork", "hostPID", "hostIPC"}, name


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_no_pod_but_the_head_holds_a_token_of_the_kubernetes_api(overlay: str) -> None:
    for name, template in pod_templates(overlay):
        assert (template["spec"].get("automountServiceAccountToken") is False) == (name != "head"), name


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_images_are_pinned(overlay: str) -> None:
    images = [each["image"] for _, template in pod_templates(overlay) for each in containers(template)]
    assert all(re.fullmatch(r"[\w./-]+(:(?!latest$)[\w.-]+|@sha256:[0-9a-f]{64})", image) for image in images), images


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_container_has_requests_and_a_memory_limit(overlay: str) -> None:
    for name, template in pod_templates(overlay):
        for container in containers(template):
            resources = container["resources"]
            assert {"cpu", "memory"} <= resources["requests"].keys(), name
            assert resources["limits"]["memory"] == resources["requests"]["memory"], name


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_mount_has_its_volume_and_every_secret_is_a_reference(overlay: str) -> None:
    for name, template in pod_templates(overlay):
        volumes = {volume["name"] for volume in template["spec"].get("volumes", ())} | {"data"}
        for container in containers(template):
            assert {mount["name"] for mount in container.get("volumeMounts", ())} <= volumes, name
            for variable in container.get("env", ()):
                is_secret = re.search("TOKEN|PASSWORD|KEYS", variable["name"])
                assert not is_secret or "secretKeyRef" in variable["valueFrom"], variable


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_what_is_written_goes_to_volumes(overlay: str) -> None:
    for name, group in groups(overlay).items():
        container = group["template"]["spec"]["containers"][0]
        writable = [mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")]
        values = environment(container)
        assert {"/tmp", "/home/outrider", "/cache"} == set(writable), name
        for variable in ("XDG_CACHE_HOME", "NUMBA_CACHE_DIR", "MPLCONFIGDIR"):
            assert values[variable].startswith(("/cache", "/tmp")), name


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_a_worker_is_ready_when_the_service_is(overlay: str) -> None:
    for group in groups(overlay).values():
        probe = group["template"]["spec"]["containers"][0]["readinessProbe"]
        script = K8S / "base" / "scripts" / probe["exec"]["command"][-1].rpartition("/")[2]
        assert "$url/ready" in script.read_text()
        allowed = [int(number) for number in re.findall(r"--max-time (\d+)", script.read_text())]
        assert probe["timeoutSeconds"] > sum(allowed)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_longest_stream_and_a_replacement_fit_into_the_drain(overlay: str) -> None:
    app = application(overlay)
    (gateway,) = [each for each in app["deployments"] if each["name"] == "Gateway"]
    drain_s = app["args"]["drain_timeout_s"]
    assert gateway["user_config"]["default_timeout_s"] <= drain_s
    assert ray_service(overlay)["spec"]["rayClusterDeletionDelaySeconds"] > drain_s
    for name, group in groups(overlay).items():
        spec = group["template"]["spec"]
        container = spec["containers"][0]
        deadline_s = float(environment(container)["DRAIN_DEADLINE_S"])
        # Serve waits for a replacement until the drain time is all that is left.
        assert deadline_s >= drain_s + REPLACEMENT_S, name
        assert spec["terminationGracePeriodSeconds"] > deadline_s, name
        assert container["lifecycle"]["preStop"]["exec"]["command"] == ["bash", "/etc/outrider/scripts/drain.sh"]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_a_disruption_budget_is_one_that_kubernetes_takes_for_ray_pods(overlay: str) -> None:
    # Without a scale subresource: an integer minAvailable only.
    spec = find(overlay, "PodDisruptionBudget", "outrider-verifier")["spec"]
    verifiers = groups(overlay)["verifier"]
    assert spec.keys() == {"minAvailable", "selector"}
    assert spec["minAvailable"] == verifiers["minReplicas"] - 1 >= 1
    assert spec["selector"]["matchLabels"].items() <= verifiers["template"]["metadata"]["labels"].items()


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_namespace_refuses_pods_that_ask_for_more(overlay: str) -> None:
    labels = find(overlay, "Namespace", "outrider")["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_policies_select_pods_that_exist(overlay: str) -> None:
    added = {"ray.io/is-ray-node": "yes"}  # by KubeRay
    labels = [template["metadata"]["labels"] | added for _, template in pod_templates(overlay)]
    for each in manifests(overlay):
        if each["kind"] == "NetworkPolicy":
            wanted = each["spec"]["podSelector"]["matchLabels"]
            assert any(wanted.items() <= found.items() for found in labels), each["metadata"]["name"]


def test_no_policy_of_ours_opens_what_the_secure_overlay_closes() -> None:
    names = {each["metadata"]["name"] for each in manifests("secure") if each["kind"] == "NetworkPolicy"}
    assert names == {"outrider-redis", "outrider-prefetch"}
    rules = cluster("secure")["networkPolicy"]
    sources = [source for rule in rules["worker"]["ingressRules"] for source in rule["from"]]
    assert all(source["namespaceSelector"]["matchLabels"] for source in sources)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_proxy_of_every_node_bounds_what_connections_may_do(overlay: str) -> None:
    nodes = [
        (name, each)
        for name, template in pod_templates(overlay)
        for each in containers(template)
        if "ray-" in each["name"]
    ]
    assert {name for name, _ in nodes} >= {"head", "verifier"}
    for name, container in nodes:
        assert environment(container)["RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH"] == GUARD, name
