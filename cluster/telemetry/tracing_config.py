"""Settings of traces. Free of OpenTelemetry, which only processes with tracing on import."""

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from cluster.errors import ConfigError, check_range

TRACES_PATH = "/v1/traces"
"""Where an OTLP/HTTP receiver takes spans."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TracingConfig:
    """Where spans go, and how many.

    Attributes:
        endpoint: URL of an OTLP/HTTP receiver, as `http://collector:4318`; `/v1/traces` is added where it has no path.
        headers_file: file with one `Name: value` per line, sent with every export; read on each replica's node.
        sample_ratio: share of requests that get a trace, 0..1, where the client brings no decision of its own.
        service_name: `service.name` of the spans.
        capture_content: put prompts, stop strings and answers into the gateway's span. They may hold secrets.
        max_queue_spans: ended spans that wait for the export; further ones are counted and dropped.
        max_batch_spans: most spans of one export.
        export_interval_s: longest time that an ended span waits before an export.
        export_timeout_s: time for one export, its retries included.
    """

    endpoint: str
    headers_file: str | None = None
    sample_ratio: float = 1.0
    service_name: str = "outrider"
    capture_content: bool = False
    max_queue_spans: int = 4096
    max_batch_spans: int = 512
    export_interval_s: float = 5.0
    export_timeout_s: float = 10.0

    def __post_init__(self) -> None:
        """Refuse values out of range."""
        parts = urlsplit(self.endpoint)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(field="tracing.endpoint", value=self.endpoint, allowed="an http:// or https:// URL")
        check_range("tracing.sample_ratio", self.sample_ratio, 0, 1, kind="a number")
        if not self.service_name.strip():
            raise ConfigError(field="tracing.service_name", value=self.service_name, allowed="a name")
        check_range("tracing.max_queue_spans", self.max_queue_spans, 1, 1_000_000)
        check_range("tracing.max_batch_spans", self.max_batch_spans, 1, self.max_queue_spans)
        for name in ("export_interval_s", "export_timeout_s"):
            value = getattr(self, name)
            if not 0 < value <= 3600:
                raise ConfigError(field=f"tracing.{name}", value=value, allowed="seconds above 0, at most 3600")

    @property
    def traces_url(self) -> str:
        """Where spans are posted."""
        parts = urlsplit(self.endpoint)
        return self.endpoint if parts.path.strip("/") else f"{parts.scheme}://{parts.netloc}{TRACES_PATH}"

    def read_headers(self) -> dict[str, str]:
        """The headers in `headers_file`.

        Raises:
            ConfigError: the file cannot be read, or a line of it is no header. Its content is not shown.
        """
        if self.headers_file is None:
            return {}
        try:
            lines = Path(self.headers_file).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            allowed = f"a readable file ({type(error).__name__})"
            raise ConfigError(field="tracing.headers_file", value=self.headers_file, allowed=allowed) from None
        headers = {}
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            name, separator, value = line.partition(":")
            if not separator or not name.strip() or not value.strip():
                raise ConfigError(
                    field="tracing.headers_file", value=f"line {number}", allowed="lines of the form `Name: value`"
                )
            headers[name.strip()] = value.strip()
        return headers
