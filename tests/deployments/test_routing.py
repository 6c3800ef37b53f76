from typing import Any

import pytest

from cluster.routing.policies import PolicyName
from cluster.routing.types import Domain, PoolLoad, RouteSnapshot
from cluster.types import Role
from deployments.routing import AcceptanceWindow, Routed, Router
from deployments.schema import parse_body
from deployments.schema_openai import ChatCompletionRequest, CompletionRequest
from deployments.schema_seed import SeedRequest

POOLS = RouteSnapshot(
    pools={
        Role.SPECULATIVE: PoolLoad(num_replicas=1, num_running=16, num_waiting=2, tpot_s=0.03),
        Role.BATCH: PoolLoad(num_replicas=1, num_running=40, tpot_s=0.03),
    },
    age_s=0.0,
)


def _router(policy: PolicyName = "learned", pools: RouteSnapshot | None = None) -> Router:
    return Router(policy, 1000, None if pools is None else lambda: pools)


def _seed(active: int = 0, acceptance: float = 1.0, **fields: Any) -> tuple[str, str]:
    router = _router()
    router.acceptance.add(round(acceptance * 10_000), 10_000)
    route = router.seed(parse_body(SeedRequest, {"prompt": "a"} | fields, strict=True), active).route
    return route.pool.value, route.reason.value


def _completion(router: Router, prompt: object = "a", **fields: object) -> Routed:
    body = parse_body(CompletionRequest, {"prompt": prompt} | fields, strict=True)
    return router.completion(body, [[1, 2, 3]], lambda ids: bytes(ids).decode(), 0)


def _chat(messages: list[dict[str, str]], **fields: object) -> Routed:
    body = parse_body(ChatCompletionRequest, {"messages": messages} | fields, strict=True)
    return _router().chat(body, 3, 0)


def test_the_seed_service_follows_the_five_rules_in_their_order() -> None:
    creative: dict[str, Any] = {"domain": "creative_writing", "temperature": 0.9}
    assert _seed(32, force_speculative=True) == ("batch", "concurrency_guard")
    assert _seed(31, force_speculative=True, **creative) == ("speculative", "caller_override")
    assert _seed(force_speculative=False, domain="code_synthesis") == ("batch", "caller_override")
    assert _seed(**creative) == ("batch", "high_entropy_domain")
    assert _seed(acceptance=0.1, domain="rag_summary") == ("speculative", "low_entropy_domain")
    assert _seed(acceptance=0.64) == ("batch", "low_acceptance")
    assert _seed(acceptance=0.65) == ("speculative", "standard")


def test_creative_writing_at_low_temperature_is_not_high_entropy() -> None:
    assert _seed(domain="creative_writing", temperature=0.8) == ("speculative", "standard")


@pytest.mark.parametrize("domain", ["code_synthesis", "structured_json", "rag_summary"])
def test_low_entropy_domains_speculate(domain: str) -> None:
    assert _seed(domain=domain)[1] == "low_entropy_domain"


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
        ({}, ("speculative", "no_choice", True)),
        ({"service_tier": "auto"}, ("speculative", "no_choice", True)),
        ({"service_tier": "priority"}, ("speculative", "service_tier", True)),
        ({"service_tier": "flex"}, ("batch", "service_tier", False)),
        ({"service_tier": "flex", "speculation": {"mode": "on"}}, ("speculative", "caller_override", True)),
        ({"speculation": {"mode": "off"}}, ("batch", "caller_override", False)),
        ({"speculation": {"num_speculative_tokens": 0}}, ("batch", "caller_override", False)),
        ({"speculation": {"num_speculative_tokens": 3}}, ("speculative", "feature", True)),
        ({"speculation": {"drafter": "ngram"}}, ("speculative", "feature", True)),
        ({"speculation": {"mode": "off", "drafter": "ngram"}}, ("batch", "caller_override", False)),
    ],
)
def test_without_pools_openai_requests_go_by_wish_then_tier(
    fields: dict[str, object], route: tuple[str, str, bool]
) -> None:
    found = _completion(_router(), **fields).route
    assert (found.pool, found.reason, found.drafts) == route


def test_with_pools_the_learned_policy_weighs_them_and_flex_leaves_drafting_to_the_replica() -> None:
    json_route = _completion(_router(pools=POOLS), domain="structured_json", max_tokens=16).route
    assert (json_route.pool, json_route.reason) == ("speculative", "goodput")
    creative = _completion(_router(pools=POOLS), domain="creative_writing").route
    assert (creative.pool, creative.reason, creative.drafts) == ("batch", "goodput", True)
    flex = _completion(_router(pools=POOLS), service_tier="flex").route
    assert (flex.pool, flex.reason, flex.drafts) == ("batch", "service_tier", True)


def test_the_rules_can_be_chosen_for_the_openai_routes() -> None:
    router = _router("rules", POOLS)
    creative = _completion(router, domain="creative_writing", temperature=0.9, service_tier="priority").route
    assert (creative.pool, creative.reason, creative.drafts) == ("batch", "high_entropy_domain", False)
    router.acceptance.add(1, 10)
    assert _completion(router, "hello").route.reason == "low_acceptance"


def test_the_domain_is_the_clients_word_else_detected() -> None:
    code = "Write a Python function that reverses a list."
    router = _router()
    assert _completion(router, code).domain is Domain.CODE_SYNTHESIS
    assert _completion(router, code, domain="general_chat").domain is Domain.GENERAL_CHAT
    assert _completion(router, [code, "Hi"]).domain is Domain.CODE_SYNTHESIS
    assert _completion(router, list(code.encode())).domain is Domain.CODE_SYNTHESIS
    assert _completion(router, [list(code.encode()), [1]]).domain is Domain.CODE_SYNTHESIS
    seeded = parse_body(SeedRequest, {"prompt": code}, strict=True)
    assert router.seed(seeded, 0).domain is Domain.GENERAL_CHAT


def test_a_conversation_is_judged_by_its_last_user_message_and_the_system_prompt() -> None:
    story = {"role": "user", "content": "Write a short story about a clock."}
    answer = {"role": "assistant", "content": "```python\ndef f():\n    return 1\n```"}
    assert _chat([story, answer, {"role": "user", "content": "Make it shorter."}]).domain is Domain.CREATIVE_WRITING
    terse = {"role": "user", "content": "Ann Lee, 31, Oslo"}
    assert _chat([{"role": "system", "content": "Answer with JSON only."}, terse]).domain is Domain.STRUCTURED_JSON
    assert _chat([{"role": "assistant", "content": "Hello!"}]).domain is Domain.GENERAL_CHAT
    assert _chat([story], domain="rag_summary").domain is Domain.RAG_SUMMARY


@pytest.mark.parametrize(
    ("fields", "is_json"),
    [
        ({"response_format": {"type": "json_object"}}, True),
        ({"structured_outputs": {"json": {}}}, True),
        ({"structured_outputs": {"regex": "a"}}, False),
        ({"tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "required"}, True),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, False),
    ],
)
def test_an_answer_that_must_be_json_is_of_that_domain(fields: dict[str, object], is_json: bool) -> None:
    hello = [{"role": "user", "content": "Hello, how are you?"}]
    assert (_chat(hello, **fields).domain is Domain.STRUCTURED_JSON) is is_json
    if "tools" not in fields:
        assert (_completion(_router(), "Hello, how are you?", **fields).domain is Domain.STRUCTURED_JSON) is is_json


def test_the_snapshot_carries_what_this_gateway_knows_itself() -> None:
    router = _router(pools=POOLS)
    router.acceptance.add(1, 4)
    snapshot = router.snapshot(7)
    assert (snapshot.num_active, snapshot.acceptance_rate, snapshot.pools) == (7, 0.25, POOLS.pools)


def test_an_open_end_counts_as_long_as_the_model_allows() -> None:
    for fields, length in (({}, 997), ({"max_tokens": 5}, 5), ({"max_tokens": 5000}, 997), ({"max_tokens": 0}, 997)):
        routed = _completion(_router(pools=POOLS), echo=True, **fields)
        assert dict(routed.route.inputs)["max_tokens"] == str(length)
