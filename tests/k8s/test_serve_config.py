"""What an overlay tells Ray Serve: Ray's own schema, our arguments, and whether the pods can carry it."""

import re
from typing import Any

import pytest
from ray.serve.schema import ServeDeploySchema

from deployments.app import AppArgs, build_app
from deployments.controller import CONTROLLER_KNOBS
from deployments.gateway import GATEWAY_KNOBS
from deployments.live_settings import changed
from deployments.service import GatewaySettings
from tests.k8s.manifests import K8S, OVERLAYS, Manifest, application, find, groups, ray_service, serve_config

GPU = "nvidia.com/gpu"


def app_args(overlay: str) -> AppArgs:
    return AppArgs.model_validate(application(overlay)["args"])


def deployments_of(overlay: str) -> dict[str, Manifest]:
    """Options of all deployments as Serve merges them: those of the application, overridden by the configuration."""
    found: dict[str, Manifest] = {}
    waiting = [build_app(app_args(overlay))]
    while waiting:
        bound = waiting.pop()._bound_deployment
        found[bound.name] = {"ray_actor_options": bound.ray_actor_options or {}}
        keywords: dict[str, Any] = dict(bound.init_kwargs)
        values = (*bound.init_args, *keywords.values())
        waiting += [value for value in values if type(value).__name__ == "Application"]
    for override in application(overlay).get("deployments", ()):
        found[override["name"]] |= override
    return found


def limits(overlay: str, group: str) -> dict[str, str]:
    container = groups(overlay)[group]["template"]["spec"]["containers"][0]
    found: dict[str, str] = container["resources"]["limits"]
    return found


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_configuration_is_what_rays_schema_takes(overlay: str) -> None:
    ServeDeploySchema.model_validate(serve_config(overlay))


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_arguments_are_ours_and_build_an_application(overlay: str) -> None:
    assert application(overlay)["import_path"] == "deployments.app:build_app"
    assert {"Gateway", "Verifier", "Drafter", "Controller"} == set(deployments_of(overlay))


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_overrides_name_deployments_that_exist(overlay: str) -> None:
    names = {override["name"] for override in application(overlay)["deployments"]}
    assert names <= {"Gateway", "Verifier", "Drafter", "Controller"}


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_a_user_config_holds_what_may_change_while_a_replica_runs(overlay: str) -> None:
    args = app_args(overlay)
    assert args.effective_pools is not None
    settings = {"Gateway": (GatewaySettings(), GATEWAY_KNOBS), "Controller": (args.effective_pools, CONTROLLER_KNOBS)}
    for override in application(overlay)["deployments"]:
        if "user_config" in override:
            first, knobs = settings[override["name"]]
            assert changed(first, override["user_config"], knobs) != first


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_overridden_actor_options_keep_what_the_arguments_reserve(overlay: str) -> None:
    # Serve takes the override whole: whatever it leaves out is gone.
    args, found = app_args(overlay), deployments_of(overlay)
    assert found["Verifier"]["ray_actor_options"]["num_cpus"] == args.verifier_cpus
    assert found["Gateway"]["ray_actor_options"]["num_cpus"] == args.gateway_cpus


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_each_node_with_replicas_takes_requests_on_the_port_of_the_service(overlay: str) -> None:
    config = serve_config(overlay)
    assert config["proxy_location"] == "EveryNode"
    assert config["http_options"] == {"host": "0.0.0.0", "port": 8000}


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_nobody_gets_in_without_a_key(overlay: str) -> None:
    path = app_args(overlay).api_keys_file
    assert path == "/etc/outrider/keys/api_keys"
    for group in groups(overlay).values():
        spec = group["template"]["spec"]
        mounts = {mount["mountPath"]: mount["name"] for mount in spec["containers"][0]["volumeMounts"]}
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        assert volumes[mounts["/etc/outrider/keys"]]["secret"]["secretName"] == "outrider-api-keys"


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_there_is_more_than_one_gateway(overlay: str) -> None:
    assert app_args(overlay).num_gateways > 1


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_largest_group_of_pods_carries_the_most_verifiers(overlay: str) -> None:
    verifier = deployments_of(overlay)["Verifier"]
    options = verifier["ray_actor_options"]
    alone = {"CPU": options["num_cpus"], "GPU": options.get("num_gpus", 0)}
    bundles = verifier.get("placement_group_bundles", [alone])
    group, room = groups(overlay)["verifier"], limits(overlay, "verifier")
    num_cpus, num_gpus = (sum(bundle.get(name, 0) for bundle in bundles) for name in ("CPU", "GPU"))
    per_pod = int(float(room["cpu"]) // num_cpus)
    if num_gpus:
        per_pod = min(per_pod, int(float(room[GPU]) // num_gpus))
    assert per_pod >= 1
    assert group["maxReplicas"] * per_pod >= app_args(overlay).most_verifiers


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_a_drafter_fits_into_a_pod_of_its_group(overlay: str) -> None:
    options = deployments_of(overlay)["Drafter"]["ray_actor_options"]
    room = limits(overlay, "drafter")
    assert float(room["cpu"]) >= options["num_cpus"]
    assert float(room.get(GPU, 0)) >= options.get("num_gpus", 0)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_selectors_ask_for_labels_that_nodes_have(overlay: str) -> None:
    labels = [group["labels"] for group in groups(overlay).values()]
    for name, options in deployments_of(overlay).items():
        selectors = [options["ray_actor_options"].get("label_selector", {})]
        selectors += options.get("placement_group_bundle_label_selector", ())
        for selector in selectors:
            assert any(selector.items() <= each.items() for each in labels), name


def test_threads_of_a_forward_pass_do_not_exceed_the_pods_cores() -> None:
    args = app_args("cpu-demo")
    # A pod sees all cores of its node: 0, which takes what it sees, would be wrong.
    assert 0 < args.engine.num_threads <= float(limits("cpu-demo", "verifier")["cpu"])
    assert 0 < args.draft.num_threads <= float(limits("cpu-demo", "drafter")["cpu"])


def test_models_are_read_from_where_the_job_puts_them() -> None:
    listed = re.findall(
        r"^([\w.-]+/[\w.-]+) ([0-9a-f]{40})$", (K8S / "overlays/h100/models.txt").read_text(), re.MULTILINE
    )
    folders = [f"/models/{repository.split('/')[1]}/{commit}" for repository, commit in listed]
    args = app_args("h100")
    assert folders == [args.engine.model, args.draft.model]
    assert find("h100", "ConfigMap", "outrider-models")["data"]["models.txt"].count("meta-llama") == 2


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_nothing_in_the_configuration_is_a_secret(overlay: str) -> None:
    text = ray_service(overlay)["spec"]["serveConfigV2"]
    assert not re.search(r"(?i)token:|password|hf_[a-z0-9]{8}|OUTRIDER_API_KEYS", text)
