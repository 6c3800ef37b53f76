from pathlib import Path

import pytest

from cluster.errors import ConfigError
from cluster.telemetry.tracing_config import TracingConfig
from deployments.app import AppArgs
from deployments.tracing import tracer_for, tracing_for


def test_without_configuration_nothing_is_made() -> None:
    assert tracing_for(None, component="gateway", replica="r") is None
    assert tracer_for(None, "m") is None


def test_arguments_of_the_application_become_the_settings() -> None:
    args = AppArgs.model_validate({"tracing": {"endpoint": "http://c:4318", "sample_ratio": 0.5}, "ray_metrics": False})
    assert args.tracing == TracingConfig(endpoint="http://c:4318", sample_ratio=0.5)
    assert not args.ray_metrics
    assert (AppArgs().tracing, AppArgs().ray_metrics) == (None, True)


def test_a_replica_without_the_file_of_headers_does_not_start(tmp_path: Path) -> None:
    config = TracingConfig(endpoint="http://c:4318", headers_file=str(tmp_path / "missing"))
    with pytest.raises(ConfigError, match="headers_file"):
        tracing_for(config, component="verifier", replica="r")


def test_a_tracer_is_named_after_the_model() -> None:
    tracing = tracing_for(TracingConfig(endpoint="http://127.0.0.1:9"), component="gateway", replica="r")
    assert tracing is not None
    try:
        tracer = tracer_for(tracing, "m")
        assert tracer is not None and tracer.metrics is tracing.metrics
    finally:
        tracing.stop()
