"""`outrider explain`: which pool a prompt would go to, and every input of that decision."""

import argparse
import json
import os
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import msgspec

from cluster.errors import ConfigError, check_range
from cluster.routing.domains import Detection, detect
from cluster.routing.policies import (
    CREATIVE_TEMPERATURE,
    HIGH_ENTROPY_BITS,
    LOW_ENTROPY_BITS,
    MAX_ACTIVE,
    MIN_ACCEPTANCE,
    TIE_RATIO,
    PolicyName,
    choose,
    domain_acceptance,
    expected_goodput,
)
from cluster.routing.ranking import STALE_AFTER_S
from cluster.routing.types import Domain, DomainStats, Route, RouteRequest, RouteSnapshot
from cluster.types import Role, SpeculationMode
from deployments.auth import KEYS_VARIABLE
from deployments.schema import ServiceTier

if TYPE_CHECKING:
    from rich.console import Console

PATH = "/v1/routing/snapshot"
_TIMEOUT_S = 10.0
_MAX_BYTES = 1 << 20
_POLICIES: tuple[PolicyName, ...] = get_args(PolicyName)
_DESCRIPTION = """\
Show which pool a request would go to and why: the domain that is detected in the prompt, what is known of the cluster,
the decision of the learned policy and of the five rules, and how far each input is from its threshold.

What is known of the cluster comes from a running server (--url), or from a JSON file (--snapshot) of the form that
GET /v1/routing/snapshot answers. Without either it is what a gateway knows before it has heard of anybody: no pools, no
active requests, nothing drafted yet.

Nothing is generated, and nothing of the prompt is sent anywhere.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """A snapshot, where it is from, and the policy in force there; None where there is no server."""

    snapshot: RouteSnapshot
    source: str
    policy: str | None = None


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the subcommand."""
    parser = subparsers.add_parser(
        "explain",
        help="show which pool a prompt would go to, and why",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    prompt = parser.add_mutually_exclusive_group(required=True)
    prompt.add_argument("--prompt", metavar="TEXT")
    prompt.add_argument("--prompt-file", type=Path, metavar="FILE", help="UTF-8 text")
    parser.add_argument("--domain", choices=[domain.value for domain in Domain], help="default: detected")
    parser.add_argument("--temperature", type=float, default=1.0, metavar="T", help="default: %(default)s")
    parser.add_argument("--max-tokens", type=int, default=256, metavar="N", help="default: %(default)s")
    parser.add_argument(
        "--response-format", choices=("text", "json_object", "json_schema"), help="form that is demanded of the answer"
    )
    parser.add_argument(
        "--tool-choice", choices=("none", "auto", "required"), help="whether the answer may or must be calls of tools"
    )
    parser.add_argument("--service-tier", choices=get_args(ServiceTier))
    modes = [mode.value for mode in SpeculationMode]
    parser.add_argument("--speculation", choices=modes, default="auto", help="default: %(default)s")
    known = parser.add_mutually_exclusive_group()
    known.add_argument("--url", help=f"a running server, e.g. http://127.0.0.1:8000; its key from {KEYS_VARIABLE}")
    known.add_argument("--snapshot", type=Path, metavar="FILE", help="JSON, see above")
    parser.add_argument("--policy", choices=(*_POLICIES, "both"), default="both", help="default: %(default)s")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Explain one request.

    Raises:
        ConfigError: an argument is wrong, a file cannot be read, or the server does not answer.
    """
    text = args.prompt if args.prompt_file is None else _read(args.prompt_file, "--prompt-file")
    detection = detect(text, "tool_calls" if args.tool_choice == "required" else args.response_format)
    request = _request(args, detection)
    known = _known(args)
    names = _POLICIES if args.policy == "both" else (args.policy,)
    routes = {name: choose(name, request, known.snapshot) for name in names}
    if args.json:
        print(json.dumps(_as_json(request, detection, known, routes)))
        return 0
    from rich.console import Console

    _print(request, detection, known, routes, Console())
    return 0


def thresholds(request: RouteRequest, snapshot: RouteSnapshot) -> list[tuple[str, str, str, str]]:
    """Name, value, threshold and what lies between them, for each figure that a decision can turn on."""
    stats = snapshot.domains.get(request.domain.value, DomainStats())
    speculative, batch = (expected_goodput(request, snapshot, role) for role in (Role.SPECULATIVE, Role.BATCH))
    ratio = batch / speculative if speculative and batch is not None else None
    bits = stats.entropy_bits
    rows: list[tuple[str, float | None, str, float]] = [
        ("rules: active requests", snapshot.num_active, "batch from", MAX_ACTIVE),
        ("rules: temperature of creative writing", request.temperature, "batch above", CREATIVE_TEMPERATURE),
        ("rules: recent acceptance", snapshot.acceptance_rate, "batch below", MIN_ACCEPTANCE),
        ("learned: snapshot age, s", snapshot.age_s, "not trusted above", STALE_AFTER_S),
        ("learned: entropy of the domain, bits", bits, "low below", LOW_ENTROPY_BITS),
        ("learned: entropy of the domain, bits", bits, "high above", HIGH_ENTROPY_BITS),
        ("learned: goodput batch / speculative", ratio, "batch above", TIE_RATIO),
        ("learned: goodput batch / speculative", ratio, "tie from", 1 / TIE_RATIO),
    ]
    return [(name, _number(value), f"{word} {_number(at)}", _distance(value, at)) for name, value, word, at in rows]


def _request(args: argparse.Namespace, detection: Detection) -> RouteRequest:
    check_range("--temperature", args.temperature, 0, 2, kind="a number")
    check_range("--max-tokens", args.max_tokens, 1, 1 << 31)
    return RouteRequest(
        mode=SpeculationMode(args.speculation),
        service_tier=args.service_tier,
        domain=Domain(args.domain) if args.domain else detection.domain,
        is_domain_given=args.domain is not None,
        temperature=args.temperature,
        max_tokens=args.max_tokens,
    )


def _known(args: argparse.Namespace) -> _Known:
    if args.url is not None:
        return _parse(_fetch(args.url), "--url", args.url)
    if args.snapshot is not None:
        return _parse(_read(args.snapshot, "--snapshot"), "--snapshot", str(args.snapshot))
    return _Known(snapshot=RouteSnapshot(), source="no server asked: nothing is known yet")


def _read(path: Path, field: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ConfigError(field=field, value=str(path), allowed=f"a readable UTF-8 file ({error})") from None


def _fetch(url: str) -> str:
    if not url.startswith(("http://", "https://")):
        raise ConfigError(field="--url", value=url, allowed="an address that begins with http:// or https://")
    key = os.environ.get(KEYS_VARIABLE, "").split(",")[0].strip()
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    request = urllib.request.Request(url.rstrip("/").removesuffix("/v1") + PATH, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
            data: bytes = answer.read(_MAX_BYTES)
    except (OSError, ValueError) as error:
        hint = f"; set {KEYS_VARIABLE}" if isinstance(error, urllib.error.HTTPError) and error.code == 401 else ""
        raise ConfigError(field="--url", value=url, allowed=f"an Outrider server ({error}{hint})") from None
    return data.decode(errors="replace")


def _parse(text: str, field: str, source: str) -> _Known:
    """The snapshot in an answer of the server, or a snapshot alone; an age that is left out is 0, null is unknown."""
    try:
        values = json.loads(text)
        wrapped = isinstance(values, dict) and "snapshot" in values
        policy = values.get("policy") if wrapped else None
        snapshot = _snapshot(values["snapshot"] if wrapped else values)
    except (ValueError, RecursionError) as error:
        raise ConfigError(field=field, value=source, allowed=f"JSON of a routing snapshot ({error})") from None
    return _Known(snapshot=snapshot, source=source, policy=policy)


def _snapshot(values: object) -> RouteSnapshot:
    if not isinstance(values, dict):
        raise ValueError("not an object")
    names = [each.name for each in fields(RouteSnapshot)]
    if unknown := sorted(set(values) - set(names)):
        raise ValueError(f"unknown field {unknown[0]!r}; there are {', '.join(names)}")
    age_s = values.get("age_s", 0.0)
    snapshot = msgspec.convert({name: value for name, value in values.items() if name != "age_s"}, RouteSnapshot)
    return replace(snapshot, age_s=float("inf") if age_s is None else msgspec.convert(age_s, float))


def _number(value: float | None) -> str:
    return "unknown" if value is None or value == float("inf") else f"{value:.4g}"


def _distance(value: float | None, threshold: float) -> str:
    if value is None or value == float("inf"):
        return "-"
    return (
        "at it" if value == threshold else f"{abs(value - threshold):.4g} {'above' if value > threshold else 'below'}"
    )


def _as_json(
    request: RouteRequest, detection: Detection, known: _Known, routes: Mapping[PolicyName, Route]
) -> dict[str, Any]:
    columns = ("name", "value", "threshold", "distance")
    return {
        "request": msgspec.to_builtins(request),
        "detected": {
            "domain": detection.domain.value,
            "confidence": round(detection.confidence, 4),
            "scores": {domain.value: round(score, 4) for domain, score in detection.scores.items()},
            "evidence": [[feature, domain.value, weight] for feature, domain, weight in detection.evidence],
        },
        "snapshot": msgspec.json.decode(msgspec.json.encode(known.snapshot)),
        "snapshot_source": known.source,
        "policy_in_force": known.policy,
        "routes": {name: msgspec.to_builtins(route) for name, route in routes.items()},
        "thresholds": [dict(zip(columns, row, strict=True)) for row in thresholds(request, known.snapshot)],
    }


def _print(
    request: RouteRequest, detection: Detection, known: _Known, routes: Mapping[PolicyName, Route], console: "Console"
) -> None:
    how = "given" if request.is_domain_given else f"detected, confidence {detection.confidence:.2f}"
    console.print(f"domain: {request.domain.value} ({how})", markup=False, highlight=False)
    scores = sorted(detection.scores.items(), key=lambda item: -item[1])
    found = {domain: [e for e in detection.evidence if e[1] is domain] for domain, _ in scores}
    _print_table(
        console,
        "what speaks for which domain",
        ("domain", "score", "features"),
        [(d.value, f"{score:.2f}", ", ".join(f"{f} ({w:g})" for f, _, w in found[d]) or "-") for d, score in scores],
    )
    _print_snapshot(console, request, known)
    _print_table(console, "decisions", ("", *routes), _decision_rows(routes, known.policy))
    columns = ("figure", "now", "threshold", "distance")
    _print_table(console, "thresholds", columns, thresholds(request, known.snapshot))


def _print_snapshot(console: "Console", request: RouteRequest, known: _Known) -> None:
    snapshot = known.snapshot
    pools = [
        (role.value, *(_number(v) for v in (p.num_replicas, p.num_running, p.num_waiting, p.tokens_per_s, p.tpot_s)))
        for role, p in snapshot.pools.items()
    ]
    console.print(
        f"snapshot: {known.source}; age in s {_number(snapshot.age_s)}, {snapshot.num_active} active requests, recent "
        f"acceptance {snapshot.acceptance_rate:.3f}" + ("" if pools else "; no pools"),
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
    if pools:
        columns = ("pool", "replicas", "running", "waiting", "tokens/s", "time per token, s")
        _print_table(console, "pools", columns, pools)
    rows = []
    for domain in Domain:
        stats = snapshot.domains.get(domain.value, DomainStats())
        mark = " <-" if domain is request.domain else ""
        counts = f"{stats.num_accepted_tokens} / {stats.num_draft_tokens}"
        rows.append(
            (domain.value + mark, counts, f"{domain_acceptance(domain, stats):.3f}", _number(stats.entropy_bits))
        )
    _print_table(console, "domains", ("domain", "accepted / drafted", "acceptance expected", "entropy, bits"), rows)


def _decision_rows(routes: Mapping[PolicyName, Route], in_force: str | None) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [
        ("pool", *(route.pool.value for route in routes.values())),
        ("reason", *(route.reason.value for route in routes.values())),
        ("drafting", *("as the replica's role says" if route.drafts else "off" for route in routes.values())),
        ("inputs", *("\n".join(f"{name}: {value}" for name, value in route.inputs) for route in routes.values())),
    ]
    return rows if in_force is None else [("in force", *("yes" if n == in_force else "" for n in routes)), *rows]


def _print_table(console: "Console", title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns, title=title, title_justify="left")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)
