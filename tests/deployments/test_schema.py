from typing import Any

import pytest

from cluster.errors import InvalidRequestError
from deployments.schema import parse_body
from deployments.schema_openai import ChatCompletionRequest, CompletionRequest, TokenizeRequest
from deployments.schema_seed import SeedRequest

MESSAGES = [{"role": "user", "content": "hi"}]
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def _chat(*, strict: bool = False, **fields: Any) -> ChatCompletionRequest:
    return parse_body(ChatCompletionRequest, {"messages": MESSAGES} | fields, strict=strict)


def _completion(**fields: Any) -> CompletionRequest:
    return parse_body(CompletionRequest, {"prompt": "a"} | fields, strict=False)


def test_unknown_fields_are_ignored_but_refused_in_strict_mode() -> None:
    _chat(store=True, metadata={"a": 1}, anything=[1])
    with pytest.raises(InvalidRequestError) as caught:
        _chat(strict=True, anything=[1])
    assert caught.value.code == "unknown_field"
    assert caught.value.param == "anything"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("guided_json", {"type": "object"}),
        ("regex", "a"),
        ("chat_template", "{{ 1 }}"),
        ("prompt_embeds", "AAAA"),
        ("logits_processors", ["x"]),
        ("functions", [{}]),
        ("function_call", "auto"),
    ],
)
def test_features_we_lack_are_refused_with_a_reason(field: str, value: Any) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        _chat(**{field: value})
    assert caught.value.param == field
    assert caught.value.code == "unsupported_field"


@pytest.mark.parametrize(
    "fields",
    [
        {"response_format": {"type": "text"}},
        {"tools": None},
        {"tools": []},
        {"tool_choice": "none"},
        {"modalities": ["text"]},
    ],
)
def test_defaults_that_clients_send_for_features_we_lack_are_fine(fields: dict[str, Any]) -> None:
    _chat(**fields)
    _chat(strict=True, **fields)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -0.1),
        ("temperature", 2.1),
        ("temperature", float("nan")),
        ("temperature", "hot"),
        ("top_p", 0),
        ("top_p", 1.5),
        ("top_k", -2),
        ("min_p", 1.1),
        ("repetition_penalty", 0),
        ("repetition_penalty", 5e-324),
        ("repetition_penalty", float("inf")),
        ("presence_penalty", 2.5),
        ("frequency_penalty", -3),
        ("n", 0),
        ("seed", 2**64),
        ("seed", -(2**63) - 1),
        ("max_tokens", 0),
        ("max_tokens", 2**40),
        ("top_logprobs", 21),
        ("logit_bias", {"5": 101}),
        ("logit_bias", [1]),
        ("stop", [1]),
        ("stop_token_ids", [-1]),
        ("service_tier", "gold"),
        ("domain", "poetry"),
        ("speculation", {"mode": "maybe"}),
        ("speculation", {"depth": 3}),
        ("speculation", {"num_speculative_tokens": -1}),
        ("chat_template_kwargs", {"a": {"b": 1}}),
        ("messages", []),
        ("messages", [{"role": "tool", "content": "x"}]),
        ("messages", [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}]),
        ("messages", [{"role": "user"}]),
        ("messages", [{"role": "assistant", "content": None, "tool_calls": []}]),
        ("messages", [{"role": "user", "content": "x", "tool_calls": [CALL]}]),
        ("messages", [{"role": "user", "content": "x", "tool_call_id": "c"}]),
        ("messages", [{"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f"}}]}]),
        ("response_format", "json_object"),
        ("response_format", {"type": "json_schema"}),
        ("response_format", {"type": "json_object", "json_schema": {"name": "x"}}),
        ("response_format", {"type": "json_schema", "json_schema": {"schema": {}}}),
        ("response_format", {"type": "json_schema", "json_schema": {"name": "a b", "schema": {}}}),
        ("response_format", {"type": "json_schema", "json_schema": {"name": "x", "schema": [1]}}),
        ("response_format", {"type": "grammar"}),
        ("structured_outputs", {}),
        ("structured_outputs", {"json_object": False}),
        ("structured_outputs", {"regex": "a", "choice": ["a"]}),
        ("structured_outputs", {"choice": []}),
        ("structured_outputs", {"regex": ""}),
        ("structured_outputs", {"structural_tag": "x"}),
        ("tools", [{"type": "function"}]),
        ("tools", [{"type": "custom", "function": {"name": "f"}}]),
        ("tools", [{"type": "function", "function": {"name": "a b"}}]),
        ("tools", [{"type": "function", "function": {"name": "f", "parameters": []}}]),
        ("tool_choice", "any"),
        ("tool_choice", {"type": "function"}),
    ],
)
def test_values_out_of_range_are_refused_and_name_the_field(field: str, value: Any) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        _chat(**{field: value})
    assert (caught.value.param or "").startswith(field) or field in caught.value.message


def test_one_demand_for_a_form_excludes_the_other_except_plain_text() -> None:
    regex = {"regex": "a"}
    with pytest.raises(InvalidRequestError, match="exclude each other"):
        _chat(response_format={"type": "json_object"}, structured_outputs=regex)
    assert _chat(response_format={"type": "text"}, structured_outputs=regex).answer_field == "structured_outputs"
    assert _chat(response_format={"type": "text"}).answer_field is None
    assert _completion(response_format={"type": "json_object"}).answer_field == "response_format"


@pytest.mark.parametrize(
    ("fields", "form"),
    [
        ({}, None),
        ({"response_format": {"type": "text"}}, None),
        ({"response_format": {"type": "json_object"}}, "json_object"),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}}, "json_schema"),
        ({"structured_outputs": {"json": {}}}, "json_schema"),
        ({"structured_outputs": {"json_object": True}}, "json_object"),
        ({"structured_outputs": {"regex": "a"}}, None),
    ],
)
def test_demands_for_json_are_told_apart_from_others(fields: dict[str, Any], form: str | None) -> None:
    assert _completion(**fields).json_form == form


def test_an_assistant_that_called_tools_may_say_nothing_and_a_tool_answers_by_id() -> None:
    messages = [
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "content": "5", "tool_call_id": "c"},
    ]
    first, second = _chat(messages=messages).messages
    assert (first.text, first.num_chars, second.text) == ("", 2, "5")


def test_content_may_be_text_parts() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert _chat(messages=[{"role": "user", "content": parts}]).messages[0].text == "ab"


def test_top_logprobs_without_logprobs_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="logprobs"):
        _chat(top_logprobs=2)
    assert _chat(logprobs=True).num_logprobs == 0
    assert _chat(logprobs=True, top_logprobs=3).num_logprobs == 3
    assert _chat(logprobs=False).num_logprobs is None


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [("a", ["a"]), (["a", "b"], ["a", "b"]), ([1, 2], [[1, 2]]), ([[1], [2, 3]], [[1], [2, 3]])],
)
def test_prompts_come_in_four_forms(prompt: object, prompts: object) -> None:
    assert _completion(prompt=prompt).prompts == prompts


@pytest.mark.parametrize("prompt", [[], [[]], [1, "a"], {"a": 1}, None, [True]])
def test_other_prompts_are_refused(prompt: object) -> None:
    with pytest.raises(InvalidRequestError):
        _completion(prompt=prompt)


def test_best_of_must_equal_n_and_max_tokens_zero_needs_echo() -> None:
    _completion(best_of=2, n=2)
    with pytest.raises(InvalidRequestError, match="best_of"):
        _completion(best_of=3, n=2)
    with pytest.raises(InvalidRequestError, match="echo"):
        _completion(max_tokens=0)
    _completion(max_tokens=0, echo=True)


def test_the_error_echo_stays_small_however_many_errors_there_are() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        _chat(messages=[{"role": "x" * 10_000, "content": 5}] * 1000)
    assert len(caught.value.message) < 10 * 210
    assert "more" in caught.value.message
    assert "xxxxx" not in caught.value.message


def test_a_body_that_is_no_object_is_refused() -> None:
    values: tuple[object, ...] = ([], "a", 1, None)
    for value in values:
        with pytest.raises(InvalidRequestError):
            parse_body(ChatCompletionRequest, value, strict=False)


def test_tokenize_takes_a_prompt_or_messages() -> None:
    for fields in ({}, {"prompt": "a", "messages": MESSAGES}):
        with pytest.raises(InvalidRequestError, match="exactly one"):
            parse_body(TokenizeRequest, fields, strict=False)


def test_the_seed_service_has_its_documents_ranges_and_defaults() -> None:
    body = parse_body(SeedRequest, {"prompt": "a"}, strict=True)
    assert (body.max_tokens, body.temperature, body.domain) == (256, 0.7, "general_chat")
    for wrong in ({"max_tokens": 0}, {"max_tokens": 4097}, {"temperature": 2.5}, {"prompt": ""}):
        with pytest.raises(InvalidRequestError):
            parse_body(SeedRequest, {"prompt": "a"} | wrong, strict=False)
