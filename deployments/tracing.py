"""A replica's traces, where they are configured; nothing of OpenTelemetry is imported where they are not."""

from importlib import metadata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cluster.telemetry.tracing import Tracing
    from cluster.telemetry.tracing_config import TracingConfig
    from deployments.choice_spans import ChoiceSpans
    from deployments.request_span import RequestTracer


def tracing_for(config: "TracingConfig | None", *, component: str, replica: str) -> "Tracing | None":
    """The tracer of the replica that this runs in.

    Args:
        config: settings; None for no traces.
        component: what the replica is.
        replica: its id.

    Raises:
        ConfigError: the file with headers cannot be read on this node.
    """
    if config is None:
        return None
    from cluster.telemetry.tracing import Tracing

    return Tracing(config, component=component, replica=replica, version=_version())


def tracer_for(tracing: "Tracing | None", model: str) -> "RequestTracer | None":
    """What begins the spans of a gateway's requests; None without traces.

    Args:
        tracing: the gateway's.
        model: name that clients use.
    """
    if tracing is None:
        return None
    from deployments.request_span import RequestTracer

    return RequestTracer(tracing, model)


def choice_spans_for(tracing: "Tracing | None", model: str) -> "ChoiceSpans | None":
    """The spans of a verifier's choices; None without traces.

    Args:
        tracing: the verifier's.
        model: name of the target.
    """
    if tracing is None:
        return None
    from deployments.choice_spans import ChoiceSpans

    return ChoiceSpans(tracing, model=model)


def _version() -> str:
    try:
        return metadata.version("outrider")
    except metadata.PackageNotFoundError:
        return ""
