"""Rules of KubeRay's operator (1.7) that its schema does not hold: `ray-operator/controllers/ray/utils/validation.go`.

Only those about fields that our manifests use. Each rule is a function from a RayService to what is wrong with it.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

Manifest = dict[str, Any]
Rule = Callable[[Manifest], Iterator[str]]

MAX_NAME_CHARS = 47
_DNS_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_DNS_1123 = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
_MANAGED_BY_TLS = {"RAY_USE_TLS", "RAY_TLS_SERVER_CERT", "RAY_TLS_SERVER_KEY", "RAY_TLS_CA_CERT"}
_MANAGED_BY_REDIS = {"RAY_REDIS_ADDRESS", "REDIS_PASSWORD", "REDIS_USERNAME"}


def violations(service: Manifest) -> list[str]:
    """Everything that the operator would refuse."""
    return [text for rule in RULES for text in rule(service)]


def _name(service: Manifest) -> Iterator[str]:
    name = service["metadata"]["name"]
    if len(name) > MAX_NAME_CHARS or not _DNS_1035.fullmatch(name):
        yield f"name {name!r} is no DNS-1035 label of at most {MAX_NAME_CHARS} characters"


def _serve_port(service: Manifest) -> Iterator[str]:
    # Without it there is no Serve service (common/service.go).
    ports = {port.get("name") for port in _ray_container(_cluster(service)["headGroupSpec"]).get("ports", ())}
    if "serve" not in ports:
        yield "the head's container has no port named 'serve'"


def _group_sizes(service: Manifest) -> Iterator[str]:
    for group in _cluster(service)["workerGroupSpecs"]:
        least, most = group.get("minReplicas", 0), group.get("maxReplicas", 2**31 - 1)
        if not 0 <= least <= group.get("replicas", least) <= most:
            yield f"group {group['groupName']!r}: replicas are not within minReplicas and maxReplicas"


def _group_parameters(service: Manifest) -> Iterator[str]:
    for group in _all_groups(service):
        parameters, name = group["rayStartParams"], group.get("groupName", "head")
        if "labels" in parameters:
            yield f"group {name!r}: labels belong into the field of this name, not into rayStartParams"
        if group.get("resources") and {"num-cpus", "num-gpus", "memory", "resources"} & parameters.keys():
            yield f"group {name!r}: resources stand in rayStartParams and in the field"
        for key, value in group.get("labels", {}).items():
            prefix, _, tail = key.rpartition("/")
            parts = [*prefix.split("."), tail] if prefix else [tail]
            if not all(_DNS_1123.fullmatch(part) for part in parts) or not _LABEL_VALUE.fullmatch(value):
                yield f"group {name!r}: {key}={value} is no label"


def _autoscaler(service: Manifest) -> Iterator[str]:
    cluster = _cluster(service)
    options = cluster.get("autoscalerOptions", {})
    if options.get("idleTimeoutSeconds", 0) < 0:
        yield "autoscalerOptions.idleTimeoutSeconds is negative"
    if not cluster.get("enableInTreeAutoscaling") or options.get("version") != "v2":
        return
    for group in _all_groups(service):
        if group["template"]["spec"].get("restartPolicy", "Never") != "Never":
            yield "restartPolicy is not Never, as autoscaler v2 needs it"
        if group.get("suspend"):
            yield "a group cannot be suspended beside the autoscaler"
        if "RAY_enable_autoscaler_v2" in _environment(group):
            yield "autoscalerOptions.version and RAY_enable_autoscaler_v2 are both set"


def _token(service: Manifest) -> Iterator[str]:
    cluster = _cluster(service)
    options = cluster.get("authOptions", {})
    if options.get("enableK8sTokenAuth"):
        yield "a RayService cannot use tokens of Kubernetes"
    if options.get("mode") == "token" and _version(cluster.get("rayVersion", "")) < (2, 52):
        yield "authOptions.mode token needs rayVersion 2.52 or newer"


def _fault_tolerance(service: Manifest) -> Iterator[str]:
    options = _cluster(service).get("gcsFaultToleranceOptions")
    head = _cluster(service)["headGroupSpec"]
    if taken := _MANAGED_BY_REDIS & _environment(head):
        yield f"{sorted(taken)} are set by hand; they belong into gcsFaultToleranceOptions"
    if {"redis-password", "redis-username"} & head["rayStartParams"].keys():
        yield "Redis credentials stand in rayStartParams"
    if options and options.get("backend", "redis") == "redis" and "storage" in options:
        yield "gcsFaultToleranceOptions.storage is for the backend rocksdb"


def _network_policy(service: Manifest) -> Iterator[str]:
    policy = _cluster(service).get("networkPolicy")
    if policy is None:
        return
    names = [group["groupName"] for group in _cluster(service)["workerGroupSpecs"]]
    yield from (f"group name {name!r} is no DNS-1123 label" for name in names if not _DNS_1123.fullmatch(name))
    for part in (policy.get("head", {}), policy.get("worker", {}), *policy.get("workerGroups", ())):
        if policy.get("mode", "DenyAll") == "DenyAllEgress" and part.get("ingressRules"):
            yield "ingressRules beside mode DenyAllEgress"
        if policy.get("mode", "DenyAll") == "DenyAllIngress" and part.get("egressRules"):
            yield "egressRules beside mode DenyAllIngress"
        if part.get("groupName", names[0]) not in names:
            yield f"networkPolicy.workerGroups names no group: {part['groupName']!r}"


def _tls(service: Manifest) -> Iterator[str]:
    if not _cluster(service).get("tlsOptions", {}).get("enabled"):
        return
    for group in _all_groups(service):
        if taken := _MANAGED_BY_TLS & _environment(group):
            yield f"{sorted(taken)} are set by hand beside tlsOptions"
        for mount in _ray_container(group).get("volumeMounts", ()):
            if mount["name"] == "ray-tls" or mount["mountPath"] == "/etc/ray/tls":
                yield "a volume stands where tlsOptions puts its own"


def _upgrade(service: Manifest) -> Iterator[str]:
    strategy = service["spec"].get("upgradeStrategy", {})
    if strategy.get("type", "NewCluster") not in ("None", "NewCluster", "NewClusterWithIncrementalUpgrade"):
        yield f"upgradeStrategy.type {strategy['type']!r}"
    if service["spec"].get("rayClusterDeletionDelaySeconds", 60) < 0:
        yield "rayClusterDeletionDelaySeconds is negative"
    if strategy.get("type") != "NewClusterWithIncrementalUpgrade":
        return
    options = strategy.get("clusterUpgradeOptions", {})
    surge, step = options.get("maxSurgePercent", 100), options.get("stepSizePercent", -1)
    if not _cluster(service).get("enableInTreeAutoscaling"):
        yield "incremental upgrades need the autoscaler"
    if not 0 <= step <= surge <= 100:
        yield "stepSizePercent and maxSurgePercent are not 0 <= step <= surge <= 100"
    if options.get("intervalSeconds", 0) <= 0 or not options.get("gatewayClassName"):
        yield "incremental upgrades need intervalSeconds and gatewayClassName"


def _head_service(service: Manifest) -> Iterator[str]:
    if _cluster(service)["headGroupSpec"].get("headService", {}).get("metadata", {}).get("name"):
        yield "headService must not have a name"


RULES: tuple[Rule, ...] = (
    _name,
    _serve_port,
    _group_sizes,
    _group_parameters,
    _autoscaler,
    _token,
    _fault_tolerance,
    _network_policy,
    _tls,
    _upgrade,
    _head_service,
)


def _cluster(service: Manifest) -> Manifest:
    config: Manifest = service["spec"]["rayClusterConfig"]
    return config


def _all_groups(service: Manifest) -> list[Manifest]:
    return [_cluster(service)["headGroupSpec"], *_cluster(service)["workerGroupSpecs"]]


def _ray_container(group: Manifest) -> Manifest:
    container: Manifest = group["template"]["spec"]["containers"][0]
    return container


def _environment(group: Manifest) -> set[str]:
    return {each["name"] for each in _ray_container(group).get("env", ())}


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:2])
