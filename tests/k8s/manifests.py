"""The overlays as they stand in the repository: rendered by kubectl, and what tests ask of them."""

import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

ROOT = Path(__file__).parents[2]
K8S = ROOT / "k8s"
KUBECTL = Path(sys.executable).parent / "kubectl"
OVERLAYS = ("cpu-demo", "h100", "secure", "incremental-upgrade")

Manifest = dict[str, Any]


@cache
def render(overlay: str) -> str:
    """What `kubectl kustomize` makes of an overlay."""
    command = [str(KUBECTL), "kustomize", str(K8S / "overlays" / overlay)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


@cache
def manifests(overlay: str) -> tuple[Manifest, ...]:
    """The objects of an overlay."""
    return tuple(yaml.safe_load_all(render(overlay)))


def find(overlay: str, kind: str, name: str) -> Manifest:
    """One object of an overlay."""
    (found,) = [each for each in manifests(overlay) if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return found


def ray_service(overlay: str) -> Manifest:
    """Its RayService."""
    return find(overlay, "RayService", "outrider")


def cluster(overlay: str) -> Manifest:
    """The `rayClusterConfig` of its RayService."""
    config: Manifest = ray_service(overlay)["spec"]["rayClusterConfig"]
    return config


def groups(overlay: str) -> dict[str, Manifest]:
    """Its worker groups by name."""
    return {group["groupName"]: group for group in cluster(overlay)["workerGroupSpecs"]}


def serve_config(overlay: str) -> Manifest:
    """What the RayService tells Ray Serve."""
    config: Manifest = yaml.safe_load(ray_service(overlay)["spec"]["serveConfigV2"])
    return config


def application(overlay: str) -> Manifest:
    """The one application in it."""
    (found,) = serve_config(overlay)["applications"]
    config: Manifest = found
    return config


def pod_templates(overlay: str) -> Iterator[tuple[str, Manifest]]:
    """Every pod that an overlay brings about, by a name for messages."""
    config = cluster(overlay)
    yield "head", config["headGroupSpec"]["template"]
    for name, group in groups(overlay).items():
        yield name, group["template"]
    for each in manifests(overlay):
        if each["kind"] in ("Job", "StatefulSet", "Deployment"):
            yield each["metadata"]["name"], each["spec"]["template"]


def containers(template: Manifest) -> Iterator[Manifest]:
    """All containers of a pod, those that run before the others included."""
    yield from template["spec"].get("initContainers", ())
    yield from template["spec"]["containers"]
