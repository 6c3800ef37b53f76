from typing import Any

import pytest

from deployments.routing import AcceptanceWindow, Route, route_openai, route_seed
from deployments.schema import parse_body
from deployments.schema_openai import CompletionRequest
from deployments.schema_seed import SeedRequest


def _seed(active: int = 0, acceptance: float = 1.0, **fields: Any) -> Route:
    body = parse_body(SeedRequest, {"prompt": "a"} | fields, strict=True)
    return route_seed(body, active_requests=active, acceptance_rate=acceptance)


def test_the_five_rules_decide_in_their_order() -> None:
    creative: dict[str, Any] = {"domain": "creative_writing", "temperature": 0.9}
    assert _seed(32, force_speculative=True) == Route("batch", "concurrency_guard")
    assert _seed(31, force_speculative=True, **creative) == Route("speculative", "caller_override")
    assert _seed(force_speculative=False, domain="code_synthesis") == Route("batch", "caller_override")
    assert _seed(**creative) == Route("batch", "high_entropy_domain")
    assert _seed(acceptance=0.1, domain="rag_summary") == Route("speculative", "low_entropy_domain")
    assert _seed(acceptance=0.64) == Route("batch", "low_acceptance")
    assert _seed(acceptance=0.65) == Route("speculative", "standard")


def test_creative_writing_at_low_temperature_is_not_high_entropy() -> None:
    assert _seed(domain="creative_writing", temperature=0.8) == Route("speculative", "standard")


@pytest.mark.parametrize("domain", ["code_synthesis", "structured_json", "rag_summary"])
def test_low_entropy_domains_speculate(domain: str) -> None:
    assert _seed(domain=domain).reason == "low_entropy_domain"


def test_acceptance_counts_as_one_while_nothing_was_proposed_and_forgets_old_requests() -> None:
    window = AcceptanceWindow(size=2)
    window.add(0, 0)
    assert window.rate == 1.0
    for accepted in (0, 5, 10):
        window.add(accepted, 10)
    assert window.rate == 0.75


@pytest.mark.parametrize(
    ("fields", "route"),
    [
        ({}, Route("speculative", "standard")),
        ({"service_tier": "auto"}, Route("speculative", "standard")),
        ({"service_tier": "priority"}, Route("speculative", "service_tier")),
        ({"service_tier": "flex"}, Route("batch", "service_tier")),
        ({"service_tier": "flex", "speculation": {"mode": "on"}}, Route("speculative", "caller_override")),
        ({"speculation": {"mode": "off"}}, Route("batch", "caller_override")),
    ],
)
def test_openai_requests_go_by_wish_then_tier(fields: dict[str, object], route: Route) -> None:
    assert route_openai(parse_body(CompletionRequest, {"prompt": "a"} | fields, strict=True)) == route
