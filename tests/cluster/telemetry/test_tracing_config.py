from pathlib import Path

import pytest

from cluster.errors import ConfigError
from cluster.telemetry.tracing_config import TracingConfig


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        ("http://collector:4318", "http://collector:4318/v1/traces"),
        ("http://collector:4318/", "http://collector:4318/v1/traces"),
        ("https://otlp.example.com/tenant/v1/traces", "https://otlp.example.com/tenant/v1/traces"),
    ],
)
def test_an_endpoint_without_a_path_gets_the_standard_one(endpoint: str, url: str) -> None:
    assert TracingConfig(endpoint=endpoint).traces_url == url


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"endpoint": "collector:4318"}, "tracing.endpoint"),
        ({"endpoint": "http://"}, "tracing.endpoint"),
        ({"sample_ratio": 1.5}, "tracing.sample_ratio"),
        ({"sample_ratio": float("nan")}, "tracing.sample_ratio"),
        ({"service_name": " "}, "tracing.service_name"),
        ({"max_queue_spans": 0}, "tracing.max_queue_spans"),
        ({"max_queue_spans": 10, "max_batch_spans": 11}, "tracing.max_batch_spans"),
        ({"export_interval_s": 0.0}, "tracing.export_interval_s"),
        ({"export_timeout_s": float("nan")}, "tracing.export_timeout_s"),
    ],
)
def test_values_out_of_range_are_refused_by_name(values: dict[str, object], field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        TracingConfig(**({"endpoint": "http://c:4318"} | values))  # type: ignore[arg-type]
    assert caught.value.field == field


def test_headers_come_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "headers"
    path.write_text("Authorization: Bearer a:b\n\n x-scope : t1 \n")
    config = TracingConfig(endpoint="http://c:4318", headers_file=str(path))
    assert config.read_headers() == {"Authorization": "Bearer a:b", "x-scope": "t1"}


@pytest.mark.parametrize("text", [None, "secret-without-a-name", ": value", "name:"])
def test_a_wrong_file_of_headers_is_refused_without_showing_what_it_holds(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "headers"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=r"tracing\.headers_file") as caught:
        TracingConfig(endpoint="http://c:4318", headers_file=str(path)).read_headers()
    assert "secret" not in str(caught.value)
