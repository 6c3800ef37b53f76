"""Where `outrider cost` gets its counters: a running server's `/metrics`, or a Prometheus that has watched it."""

import http.client
import json
import math
import os
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from cluster.errors import ConfigError
from cluster.telemetry import names
from cluster.telemetry.cost_report import LABELS, METRICS, Totals
from deployments.auth import KEYS_VARIABLE

_TIMEOUT_S = 30.0
_MAX_BYTES = 64 << 20
_UNITS_S = {"m": 60, "h": 3600, "d": 86_400, "w": 604_800}


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """Counters, and the time that they are about.

    Attributes:
        totals: added up over replicas.
        begin_s: seconds since 1970.
        end_s: seconds since 1970.
    """

    totals: Totals
    begin_s: float
    end_s: float


def from_server(url: str) -> Counted:
    """The counters of the replicas that run now, since each of them started.

    Args:
        url: of the server.

    Raises:
        ConfigError: it does not answer with metrics.
    """
    key = os.environ.get(KEYS_VARIABLE, "").split(",")[0].strip()
    base = url.rstrip("/").removesuffix("/v1").removesuffix("/metrics")
    text = _get("--url", base, "/metrics", {"Authorization": f"Bearer {key}"} if key else {})
    wanted = {metric.name for metric in METRICS}
    totals, age_s = Totals(), dict[str, float]()
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name in wanted:
                    totals.add(sample.name, sample.labels, sample.value)
                if sample.name == names.ROLE_SECONDS.name:
                    engine = sample.labels.get("engine", "")
                    age_s[engine] = age_s.get(engine, 0.0) + sample.value
    except ValueError as error:
        raise ConfigError(field="--url", value=url, allowed=f"an Outrider server ({error})") from None
    if not age_s:
        raise ConfigError(field="--url", value=url, allowed="a server with a verifier: its metrics name none")
    now_s = time.time()
    return Counted(totals=totals, begin_s=now_s - max(age_s.values()), end_s=now_s)


def from_prometheus(url: str, since: str, match: str = "") -> Counted:
    """What the counters rose by, replicas that are gone included.

    Args:
        url: of Prometheus.
        since: how long ago to begin, such as 24h.
        match: labels that count, as in a query: `namespace="prod"`; empty for all.

    Raises:
        ConfigError: it does not answer, or an argument is not understood.
    """
    since_s, totals = seconds_of(since), Totals()
    for metric in METRICS:
        selector = f"{metric.name}{{{match}}}" if match else metric.name
        query = f"sum by ({', '.join(LABELS)}) (increase({selector}[{since}]))"
        for labels, value in _query(url, query):
            totals.add(metric.name, labels, value)
    if not totals.has(names.ROLE_SECONDS):
        allowed = "a Prometheus that scrapes an Outrider server: it knows no verifier"
        raise ConfigError(field="--prometheus", value=url, allowed=f"{allowed} in this time")
    now_s = time.time()
    return Counted(totals=totals, begin_s=now_s - since_s, end_s=now_s)


def seconds_of(since: str) -> float:
    """Seconds of a duration: a whole number and one of the units m, h, d, w.

    Raises:
        ConfigError: it is not one.
    """
    found = re.fullmatch(r"([1-9]\d{0,5})([mhdw])", since)
    if found is None:
        raise ConfigError(field="--since", value=since, allowed="a duration such as 30m, 24h, 7d or 4w")
    return int(found[1]) * float(_UNITS_S[found[2]])


def _query(url: str, query: str) -> list[tuple[dict[str, str], float]]:
    """Labels and values of an instant query."""
    path = "/api/v1/query?" + urllib.parse.urlencode({"query": query})
    text = _get("--prometheus", url.rstrip("/"), path, {})
    try:
        rows = [(row["metric"], float(row["value"][1])) for row in json.loads(text)["data"]["result"]]
    except (KeyError, IndexError, TypeError, ValueError) as error:
        allowed = f"a Prometheus server ({type(error).__name__}: {error})"
        raise ConfigError(field="--prometheus", value=url, allowed=allowed) from None
    return [(labels, value) for labels, value in rows if math.isfinite(value)]


def _get(field: str, base: str, path: str, headers: dict[str, str]) -> str:
    if not base.startswith(("http://", "https://")):
        raise ConfigError(field=field, value=base, allowed="an address that begins with http:// or https://")
    request = urllib.request.Request(base + path, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
            data: bytes = answer.read(_MAX_BYTES)
    except urllib.error.HTTPError as error:
        hint = f"; set {KEYS_VARIABLE}" if error.code == 401 else f": {_reason(error)}"
        raise ConfigError(field=field, value=base, allowed=f"a server that answers ({error}{hint})") from None
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise ConfigError(field=field, value=base, allowed=f"a server that answers ({error})") from None
    return data.decode(errors="replace")


def _reason(error: urllib.error.HTTPError) -> str:
    return error.read(300).decode(errors="replace").strip()
