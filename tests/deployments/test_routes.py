import asyncio
from typing import Any

import pytest

from deployments.limits import Limits
from deployments.service import GatewaySettings
from tests.deployments.conftest import Serve
from tests.deployments.fake_engine import SCRIPT, FakeEngine
from tests.deployments.http_helpers import MESSAGES, error_of, events_of

pytestmark = pytest.mark.anyio

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


async def test_a_chat_completion_has_openais_form(serve: Serve) -> None:
    async with serve() as server:
        answer = await server.http.post(CHAT, json={"messages": MESSAGES, "max_tokens": 7, "model": "fake/bytes"})
    body = answer.json()
    assert body["object"] == "chat.completion"
    assert body["id"].startswith("chatcmpl-")
    (choice,) = body["choices"]
    assert choice["message"] == {"role": "assistant", "content": SCRIPT[:7], "refusal": None}
    assert (choice["index"], choice["finish_reason"], choice["logprobs"]) == (0, "length", None)
    assert body["usage"] == {
        "prompt_tokens": 19,
        "completion_tokens": 7,
        "total_tokens": 26,
        "prompt_tokens_details": {"cached_tokens": 1},
    }


async def test_a_chat_stream_is_role_then_text_then_reason_then_usage_then_done(serve: Serve) -> None:
    async with serve() as server:
        options = {"stream": True, "stream_options": {"include_usage": True}, "max_tokens": 20}
        events = events_of(await server.http.post(CHAT, json={"messages": MESSAGES} | options))
    assert len({event["id"] for event in events}) == 1
    assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert "".join(e["choices"][0]["delta"].get("content", "") for e in events[:-1]) == SCRIPT[:20]
    assert [e["choices"][0]["finish_reason"] for e in events[:-1]] == [None] * (len(events) - 2) + ["length"]
    assert all(event["usage"] is None for event in events[:-1])
    assert events[-1]["choices"] == []
    assert events[-1]["usage"]["completion_tokens"] == 20


async def test_a_stream_without_usage_ends_with_the_reason(serve: Serve) -> None:
    async with serve() as server:
        events = events_of(await server.http.post(CHAT, json={"messages": MESSAGES, "stream": True, "max_tokens": 3}))
    assert events[-1]["choices"][0]["finish_reason"] == "length"
    assert "usage" not in events[-1]
    assert "speculative_decoding" in events[-1]["metrics"]


async def test_continuous_usage_is_on_every_chunk(serve: Serve) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    async with serve(engine=FakeEngine(step_s=0.02)) as server:
        body = {"prompt": "abc", "stream": True, "max_tokens": 7, "stream_options": options}
        events = events_of(await server.http.post(COMPLETIONS, json=body))
    assert [event["usage"]["completion_tokens"] for event in events] == [3, 6, 7, 7]


async def test_n_choices_travel_through_one_call_with_seeds_of_their_own(serve: Serve) -> None:
    async with serve() as server:
        body = {"messages": MESSAGES, "n": 3, "seed": 5, "max_tokens": 4}
        answer = (await server.http.post(CHAT, json=body)).json()
        seeds = [request.sampling.seed for request in server.engine.seen]
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]
    assert answer["usage"]["prompt_tokens"] == 19
    assert answer["usage"]["completion_tokens"] == 12
    assert seeds[0] == 5
    assert len(set(seeds)) == 3
    assert "metrics" not in answer


async def test_a_streamed_n_choices_answer_ends_every_choice(serve: Serve) -> None:
    async with serve() as server:
        body = {"messages": MESSAGES, "n": 2, "max_tokens": 5, "stream": True}
        events = events_of(await server.http.post(CHAT, json=body))
    for index in range(2):
        mine = [event["choices"][0] for event in events if event["choices"][0]["index"] == index]
        assert "".join(choice["delta"].get("content", "") for choice in mine) == SCRIPT[:5]
        assert mine[0]["delta"]["role"] == "assistant"
        assert mine[-1]["finish_reason"] == "length"


async def test_requests_without_a_seed_get_different_ones(serve: Serve) -> None:
    async with serve() as server:
        for _ in range(3):
            await server.http.post(COMPLETIONS, json={"prompt": "a", "max_tokens": 1})
        assert len({request.sampling.seed for request in server.engine.seen}) == 3


@pytest.mark.parametrize("prompt", ["abc", [97, 98, 99], ["abc"], [[97, 98, 99]]])
async def test_every_form_of_prompt_reaches_the_engine_as_ids(serve: Serve, prompt: object) -> None:
    async with serve() as server:
        await server.http.post(COMPLETIONS, json={"prompt": prompt, "max_tokens": 1})
        assert [request.prompt_token_ids for request in server.engine.seen] == [(97, 98, 99)]


async def test_several_prompts_times_n_are_numbered_prompt_by_prompt(serve: Serve) -> None:
    async with serve() as server:
        body = {"prompt": ["a", "bc"], "n": 2, "max_tokens": 2, "echo": True}
        answer = (await server.http.post(COMPLETIONS, json=body)).json()
    assert [choice["text"] for choice in answer["choices"]] == ["aTh", "aTh", "bcTh", "bcTh"]
    assert answer["usage"]["prompt_tokens"] == 3


async def test_echo_with_logprobs_covers_prompt_and_output_one_entry_per_token(serve: Serve) -> None:
    async with serve() as server:
        body = {"prompt": "ab", "max_tokens": 2, "echo": True, "logprobs": 2}
        (choice,) = (await server.http.post(COMPLETIONS, json=body)).json()["choices"]
    assert choice["text"] == "abTh"
    assert choice["logprobs"]["tokens"] == ["a", "b", "T", "h"]
    assert choice["logprobs"]["token_logprobs"] == [None, -0.5, -0.5, -0.5]
    assert choice["logprobs"]["top_logprobs"][0] is None
    assert choice["logprobs"]["top_logprobs"][1] == {"b": -0.5, "c": -1.5}
    assert choice["logprobs"]["text_offset"] == [0, 1, 2, 3]


async def test_echo_with_max_tokens_zero_scores_the_prompt_alone(serve: Serve) -> None:
    async with serve() as server:
        body = {"prompt": "ab", "max_tokens": 0, "echo": True, "logprobs": 1}
        answer = (await server.http.post(COMPLETIONS, json=body)).json()
    assert answer["choices"][0]["text"] == "ab"
    assert answer["choices"][0]["logprobs"]["tokens"] == ["a", "b"]
    assert answer["usage"]["completion_tokens"] == 0


async def test_c11_chat_logprobs_have_one_entry_per_token_streamed_or_not(serve: Serve) -> None:
    body = {"messages": MESSAGES, "max_tokens": 8, "logprobs": True, "top_logprobs": 5}
    async with serve() as server:
        whole = (await server.http.post(CHAT, json=body)).json()["choices"][0]["logprobs"]["content"]
        events = events_of(await server.http.post(CHAT, json=body | {"stream": True}))
    streamed = [entry for e in events for entry in (e["choices"][0]["logprobs"] or {"content": []})["content"]]
    assert whole == streamed
    assert [entry["token"] for entry in whole] == list(SCRIPT[:8])
    assert all(entry["bytes"] == list(entry["token"].encode()) and len(entry["top_logprobs"]) == 5 for entry in whole)


async def test_streamed_completion_logprobs_have_running_offsets(serve: Serve) -> None:
    body = {"prompt": "ab", "max_tokens": 7, "logprobs": 0, "stream": True}
    async with serve() as server:
        events = events_of(await server.http.post(COMPLETIONS, json=body))
    assert [o for e in events for o in e["choices"][0]["logprobs"]["text_offset"]] == list(range(7))


async def test_prompt_logprobs_have_vllms_form(serve: Serve) -> None:
    body = {"prompt": "ab", "max_tokens": 1, "prompt_logprobs": 1}
    async with serve() as server:
        (choice,) = (await server.http.post(COMPLETIONS, json=body)).json()["choices"]
        refused = await server.http.post(COMPLETIONS, json=body | {"stream": True})
    assert choice["prompt_logprobs"] == [None, {"98": {"logprob": -0.5, "rank": 1, "decoded_token": "b"}}]
    assert error_of(refused)["param"] == "prompt_logprobs"


async def test_return_token_ids_adds_them(serve: Serve) -> None:
    body = {"prompt": "ab", "max_tokens": 4, "return_token_ids": True}
    async with serve() as server:
        (choice,) = (await server.http.post(COMPLETIONS, json=body)).json()["choices"]
        events = events_of(await server.http.post(COMPLETIONS, json=body | {"stream": True}))
    assert choice["token_ids"] == list(SCRIPT[:4].encode())
    assert [t for event in events for t in event["choices"][0]["token_ids"]] == choice["token_ids"]


async def test_the_model_card_tells_numerics_dtype_and_length(serve: Serve) -> None:
    async with serve(settings=GatewaySettings(served_model_name="mine")) as server:
        (card,) = (await server.http.get("/v1/models")).json()["data"]
        assert (await server.http.get("/v1/models/mine")).json() == card
        assert (await server.http.get("/v1/models/fake/bytes")).status_code == 200
        assert (await server.http.get("/v1/models/other")).status_code == 404
    assert (card["id"], card["root"]) == ("mine", "fake/bytes")
    assert (card["max_model_len"], card["numerics"], card["dtype"]) == (512, "invariant", "float32")
    assert card["acceptance"] == "coupled"


async def test_another_model_is_404_with_its_code(serve: Serve) -> None:
    async with serve() as server:
        answer = await server.http.post(CHAT, json={"messages": MESSAGES, "model": "gpt-x"})
    assert answer.status_code == 404
    assert error_of(answer)["code"] == "model_not_found"


async def test_tokenize_and_detokenize_are_inverse(serve: Serve) -> None:
    async with serve() as server:
        tokens = (await server.http.post("/tokenize", json={"prompt": "héy", "return_token_strs": True})).json()
        text = (await server.http.post("/detokenize", json={"tokens": tokens["tokens"]})).json()
        chat = (await server.http.post("/tokenize", json={"messages": MESSAGES})).json()
        bad = await server.http.post("/detokenize", json={"tokens": [257]})
    assert text == {"prompt": "héy"}
    assert (tokens["count"], tokens["max_model_len"]) == (4, 512)
    assert len(tokens["token_strs"]) == 4
    assert bytes(chat["tokens"]) == b"<user>hi<assistant>"
    assert bad.status_code == 400


async def test_a_prompt_that_leaves_no_room_is_refused_and_max_tokens_is_cut_to_the_room(serve: Serve) -> None:
    async with serve() as server:
        full = await server.http.post(COMPLETIONS, json={"prompt": "x" * 512})
        near = await server.http.post(COMPLETIONS, json={"prompt": "x" * 510, "max_tokens": 100})
        empty = await server.http.post(COMPLETIONS, json={"prompt": ""})
    assert error_of(full)["code"] == "context_length_exceeded"
    assert near.json()["usage"]["completion_tokens"] == 2
    assert error_of(empty)["code"] == "empty_prompt"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"n": 17}, "max_n"),
        ({"prompt": ["a"] * 8, "n": 16}, "max_choices"),
        ({"prompt": ["a"] * 65}, "max_prompts"),
        ({"stop": ["a"] * 5}, "max_stop"),
        ({"stop": "a" * 257}, "max_stop_chars"),
        ({"stop": ""}, "max_stop_chars"),
        ({"logit_bias": {"x": 1}}, "invalid_value"),
        ({"logit_bias": {"257": 1}}, "invalid_token_id"),
        ({"allowed_token_ids": [300]}, "invalid_token_id"),
        ({"prompt": [300]}, "invalid_token_id"),
        ({"min_tokens": 5, "max_tokens": 4}, "invalid_value"),
        ({"prompt": "x" * 2001}, "max_prompt_chars"),
        ({"max_tokens": 1_000_001}, "max_tokens"),
    ],
)
async def test_named_limits_are_refused_with_400(serve: Serve, body: dict[str, Any], code: str) -> None:
    limits = Limits(max_prompt_chars=2000, max_tokens=1_000_000)
    async with serve(settings=GatewaySettings(limits=limits)) as server:
        answer = await server.http.post(COMPLETIONS, json={"prompt": "a"} | body)
        assert answer.status_code == 400
        assert error_of(answer)["code"] == code
        assert server.engine.seen == []


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[1]",
        b"null",
        b'{"prompt": NaN}',
        b'{"prompt": "a", "temperature": Infinity}',
        b'{"prompt": "a", "temperature": 1e999}',
        b'{"prompt": "\xff"}',
        b'{"prompt": "\\ud800"}',
        b"[" * 100_000,
        b'{"prompt": "a", "x": ' + b"[" * 40 + b"]" * 40 + b"}",
        b'{"prompt": "a", "seed": 123456789012345678901234567890}',
    ],
)
async def test_malformed_bodies_are_400(serve: Serve, data: bytes) -> None:
    async with serve() as server:
        answer = await server.http.post(COMPLETIONS, content=data, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    error_of(answer)


async def test_a_body_over_the_limit_is_413(serve: Serve) -> None:
    async with serve() as server:
        answer = await server.http.post(COMPLETIONS, content=b" " * ((4 << 20) + 1))
    assert answer.status_code == 413
    assert error_of(answer)["code"] == "max_body_bytes"


async def test_strict_mode_is_a_header(serve: Serve) -> None:
    async with serve() as server:
        body = {"prompt": "a", "max_tokens": 1, "colour": "red"}
        assert (await server.http.post(COMPLETIONS, json=body)).status_code == 200
        assert (await server.http.post(COMPLETIONS, json=body, headers={"x-strict": "1"})).status_code == 400


async def test_an_engine_that_refuses_a_request_answers_400_streamed_or_not(serve: Serve) -> None:
    async with serve() as server:
        for stream in (False, True):
            answer = await server.http.post(COMPLETIONS, json={"prompt": "a", "bad_words": ["x"], "stream": stream})
            assert answer.status_code == 400
            assert error_of(answer)["param"] == "bad_words"


async def test_route_headers_and_service_tier_come_back(serve: Serve) -> None:
    async with serve() as server:
        body = {"prompt": "a", "max_tokens": 1, "service_tier": "flex"}
        for stream in (False, True):
            answer = await server.http.post(COMPLETIONS, json=body | {"stream": stream})
            assert answer.headers["x-outrider-pool"] == "batch"
            assert answer.headers["x-outrider-routing-reason"] == "service_tier"
        assert server.engine.seen[0].speculation.mode == "off"


async def test_the_seed_service_answers_in_its_documents_form(serve: Serve) -> None:
    async with serve() as server:
        body = {"request_id": "q1", "prompt": "hi", "domain": "code_synthesis", "max_tokens": 9}
        answer = (await server.http.post("/v1/chat/speculative-completions", json=body)).json()
        plain = await server.http.post(
            "/v1/chat/speculative-completions", json={"prompt": "hi", "force_speculative": False}
        )
    assert answer["request_id"] == "q1"
    assert answer["execution_mode"] == "speculative_accelerated"
    assert answer["routing_reason"] == "low_entropy_domain"
    assert (answer["total_tokens"], answer["tokens_proposed"], answer["tokens_accepted"]) == (9, 12, 6)
    assert answer["step_acceptance_rate"] == 0.5
    assert answer["active_concurrency"] == 1
    assert answer["text"] == SCRIPT[:9]
    assert answer["total_latency_ms"] == pytest.approx(9 * answer["time_per_token_ms"], abs=0.1)
    assert plain.json()["execution_mode"] == "standard_autoregressive"
    assert plain.json()["step_acceptance_rate"] is None


async def test_health_ready_version_and_unknown_routes(serve: Serve) -> None:
    async with serve() as server:
        assert (await server.http.get("/health")).json() == {"status": "ok"}
        before = server.engine.num_steps
        assert (await server.http.get("/ready")).json() == {"status": "ready"}
        assert server.engine.num_steps > before
        assert "version" in (await server.http.get("/version")).json()
        missing = await server.http.get("/nothing")
        wrong = await server.http.get(CHAT)
    assert (missing.status_code, wrong.status_code) == (404, 405)
    error_of(missing)
    error_of(wrong)


async def test_a_dead_engine_is_503_everywhere_and_says_nothing_of_its_insides(serve: Serve) -> None:
    async with serve(engine=FakeEngine(crash_at_step=2)) as server:
        answers = [
            await server.http.post(CHAT, json={"messages": MESSAGES, "max_tokens": 100}),
            await server.http.post(CHAT, json={"messages": MESSAGES, "stream": True}),
            await server.http.get("/health"),
            await server.http.get("/ready"),
        ]
    for answer in answers:
        assert answer.status_code == 503
        assert "secret" not in answer.text
        error_of(answer)


async def test_an_engine_that_dies_mid_stream_gives_one_error_event_and_done(serve: Serve) -> None:
    async with serve(engine=FakeEngine(crash_at_step=3, step_s=0.01)) as server:
        answer = await server.http.post(CHAT, json={"messages": MESSAGES, "stream": True, "max_tokens": 100})
    assert answer.status_code == 200
    events = events_of(answer)
    assert [event for event in events if "error" in event] == events[-1:]
    assert events[-1]["error"]["code"] == "engine_dead"


async def test_a_long_wait_is_bridged_by_keep_alive_comments(serve: Serve) -> None:
    settings = GatewaySettings(keep_alive_s=0.05)
    async with serve(engine=FakeEngine(step_s=0.2), settings=settings) as server:
        answer = await server.http.post(CHAT, json={"messages": MESSAGES, "stream": True, "max_tokens": 5})
    assert answer.text.count(": keep-alive\n\n") >= 3
    events = events_of(answer)
    assert "".join(e["choices"][0]["delta"].get("content", "") for e in events) == SCRIPT[:5]


async def test_a_deadline_is_408_when_nothing_was_sent_and_an_event_otherwise(serve: Serve) -> None:
    headers = {"x-request-timeout-seconds": "0.2"}
    async with serve(engine=FakeEngine(step_s=0.03)) as server:
        body = {"messages": MESSAGES, "max_tokens": 400}
        whole = await server.http.post(CHAT, json=body, headers=headers)
        stream = await server.http.post(CHAT, json=body | {"stream": True}, headers=headers)
        wrong = await server.http.post(CHAT, json=body, headers={"x-request-timeout-seconds": "soon"})
        assert server.engine.requests == {}
    assert whole.status_code == 408
    assert error_of(whole)["type"] == "timeout_error"
    assert events_of(stream)[-1]["error"]["type"] == "timeout_error"
    assert wrong.status_code == 400


async def test_the_configured_deadline_holds_for_requests_that_bring_none(serve: Serve) -> None:
    async with serve(engine=FakeEngine(step_s=0.03), settings=GatewaySettings(default_timeout_s=0.1)) as server:
        answer = await server.http.post(CHAT, json={"messages": MESSAGES, "max_tokens": 400})
    assert answer.status_code == 408


async def test_a_hundred_requests_at_once_all_get_their_own_answer(serve: Serve) -> None:
    async with serve(engine=FakeEngine(step_s=0.001)) as server:
        bodies: list[dict[str, Any]] = [{"prompt": "a", "max_tokens": n, "stream": n % 2 == 0} for n in range(1, 101)]
        answers = await asyncio.gather(*(server.http.post(COMPLETIONS, json=body) for body in bodies))
    for body, answer in zip(bodies, answers, strict=True):
        if body["stream"]:
            text = "".join(event["choices"][0]["text"] for event in events_of(answer))
        else:
            text = answer.json()["choices"][0]["text"]
        assert text == (SCRIPT * 3)[: body["max_tokens"]]
