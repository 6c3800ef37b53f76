"""The whole stack over HTTP, with the real `openai` client."""

import os
import random
import re
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import httpx
import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam
from prometheus_client.parser import text_string_to_metric_families
from pydantic import BaseModel, Field

from tests.e2e.conftest import KEY, Outrider, marked_processes, start_outrider, stop_for_sure, wait_for_zero

pytestmark = pytest.mark.e2e

COPY_PROMPT = "one two three four five six seven eight " * 6
ASK: list[ChatCompletionMessageParam] = [{"role": "user", "content": "What is new?"}]
GAUGES = (
    "vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc", "outrider_queued_requests",
    "outrider_queued_tokens", "outrider_http_active_requests",
)  # fmt: skip


@pytest.fixture(scope="module")
def client(outrider: Outrider) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{outrider.url}/v1", api_key=KEY, max_retries=0) as client:
        yield client


def test_the_command_prints_one_clear_line(outrider: Outrider) -> None:
    assert outrider.ready_line == f"Outrider is ready: {outrider.url}/v1 (model tiny)\n"


def test_the_model_is_listed_with_its_numerics(client: openai.OpenAI) -> None:
    (card,) = client.models.list().data
    assert card.id == "tiny"
    assert card.to_dict()["numerics"] in ("invariant", "fast")


def test_a_text_completion_streams_the_same_text_as_it_answers_whole(client: openai.OpenAI) -> None:
    fields = {"model": "tiny", "prompt": COPY_PROMPT, "max_tokens": 40, "temperature": 0.7, "seed": 11}
    whole = client.completions.create(**fields)  # type: ignore[call-overload]
    stream = client.completions.create(**fields, stream=True, stream_options={"include_usage": True})  # type: ignore[call-overload]
    chunks = list(stream)
    assert "".join(chunk.choices[0].text for chunk in chunks if chunk.choices) == whole.choices[0].text
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert whole.usage.prompt_tokens > 10


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_d10_speculation_on_and_off_give_the_same_tokens_over_http(client: openai.OpenAI, temperature: float) -> None:
    def tokens(mode: str) -> object:
        answer = client.completions.create(
            model="tiny", prompt=COPY_PROMPT, max_tokens=60, temperature=temperature, seed=3,
            extra_body={"return_token_ids": True, "ignore_eos": True, "speculation": {"mode": mode}},
        )  # fmt: skip
        return answer.choices[0].to_dict()["token_ids"]

    assert tokens("on") == tokens("off")


def test_logprobs_have_one_entry_per_token_with_and_without_speculation(client: openai.OpenAI) -> None:
    def logprobs(mode: str) -> list[float]:
        answer = client.completions.create(
            model="tiny", prompt=COPY_PROMPT, max_tokens=30, temperature=0, logprobs=5,
            extra_body={"speculation": {"mode": mode}, "ignore_eos": True},
        )  # fmt: skip
        entries = answer.choices[0].logprobs
        assert entries is not None
        assert entries.token_logprobs is not None
        return [value for value in entries.token_logprobs if value is not None]

    on, off = logprobs("on"), logprobs("off")
    assert len(on) == len(off) == 30
    assert on == pytest.approx(off, abs=1e-3)


class Part(BaseModel):
    is_new: bool


class Report(BaseModel):
    """What the tiny model is asked for: short, since it chooses at random."""

    colour: Literal["red", "green", "blue"]
    parts: list[Part] = Field(min_length=1, max_length=2)


def test_the_clients_helper_parses_an_answer_that_must_fit_a_schema_whatever_speculation_does(
    client: openai.OpenAI,
) -> None:
    def parsed(mode: str) -> list[Report | None]:
        answer = client.chat.completions.parse(
            model="tiny", messages=ASK, response_format=Report, n=3, seed=5, max_tokens=120,
            extra_body={"speculation": {"mode": mode}},
        )  # fmt: skip
        assert {choice.finish_reason for choice in answer.choices} == {"stop"}
        return [choice.message.parsed for choice in answer.choices]

    reports = parsed("on")
    assert all(isinstance(report, Report) for report in reports)
    assert parsed("off") == reports


def test_tools_that_must_be_called_are_called_and_streamed_as_they_are_whole(client: openai.OpenAI) -> None:
    fields: dict[str, Any] = {
        "model": "tiny", "messages": ASK, "tools": [openai.pydantic_function_tool(Report, name="report")],
        "tool_choice": "required", "parallel_tool_calls": False, "max_tokens": 200, "seed": 7,
    }  # fmt: skip
    (whole,) = client.chat.completions.parse(**fields).choices
    with client.chat.completions.stream(**fields) as stream:
        (streamed,) = stream.get_final_completion().choices
    assert whole.finish_reason == streamed.finish_reason == "tool_calls"
    assert whole.message.content is None
    assert whole.message.tool_calls
    assert streamed.message.tool_calls
    (call,), (again,) = whole.message.tool_calls, streamed.message.tool_calls
    assert isinstance(call.function.parsed_arguments, Report)
    assert (again.function.name, again.function.arguments) == ("report", call.function.arguments)


@pytest.mark.parametrize(
    ("wish", "pattern"),
    [
        ({"regex": "[ab]{3,9}!"}, "[ab]{3,9}!"),
        ({"choice": ["yes", "no"]}, "yes|no"),
        ({"grammar": 'root ::= "x" [0-9] "."'}, r"x[0-9]\."),
    ],
)
def test_vllms_structured_outputs_hold(client: openai.OpenAI, wish: dict[str, object], pattern: str) -> None:
    answer = client.completions.create(
        model="tiny", prompt="a", max_tokens=40, extra_body={"structured_outputs": wish}, n=4, seed=1
    )
    for choice in answer.choices:
        assert choice.finish_reason == "stop"
        assert re.fullmatch(pattern, choice.text)


def test_without_a_key_everything_but_health_is_401(outrider: Outrider) -> None:
    assert httpx.get(f"{outrider.url}/health").status_code == 200
    for path in ("/metrics", "/ready", "/v1/models"):
        assert httpx.get(f"{outrider.url}{path}").status_code == 401
    wrong = openai.OpenAI(base_url=f"{outrider.url}/v1", api_key="wrong-key-1", max_retries=0)
    with wrong, pytest.raises(openai.AuthenticationError):
        wrong.models.list()


def test_d11_ready_generates_a_token_and_errors_are_openais(outrider: Outrider, client: openai.OpenAI) -> None:
    assert outrider.get("/ready").status_code == 200
    with pytest.raises(openai.BadRequestError) as bad:
        client.completions.create(model="tiny", prompt="a", n=17)
    assert bad.value.code == "max_n"
    with pytest.raises(openai.NotFoundError):
        client.completions.create(model="other", prompt="a")


def test_only_this_machine_can_reach_the_port(outrider: Outrider) -> None:
    port = int(outrider.url.rsplit(":", 1)[1])
    listeners = [
        line.split()[1] for line in Path("/proc/net/tcp").read_text().splitlines()[1:] if line.split()[3] == "0A"
    ]
    hosts = {address.split(":")[0] for address in listeners if int(address.split(":")[1], 16) == port}
    assert hosts == {"0100007F"}


def test_request_ids_come_back_once(outrider: Outrider) -> None:
    body = {"prompt": "a", "max_tokens": 2}
    answer = outrider.post("/v1/completions", body, x_request_id="mine-1")
    assert answer.headers.get_list("x-request-id") == ["mine-1"]
    assert answer.json()["id"] == "cmpl-mine-1"


def test_a_deadline_is_our_408_not_the_proxys(outrider: Outrider) -> None:
    body = {"prompt": "a", "max_tokens": 2000, "ignore_eos": True, "n": 4}
    answer = outrider.post("/v1/completions", body, x_request_timeout_seconds="1.2")
    assert answer.status_code == 408
    assert answer.json()["error"]["code"] == "deadline_exceeded"
    wait_for_zero(outrider, "vllm:num_requests_running")


def test_the_scrape_is_valid_and_counts_drafts(outrider: Outrider, client: openai.OpenAI) -> None:
    client.completions.create(
        model="tiny", prompt=COPY_PROMPT, max_tokens=60, temperature=0, extra_body={"ignore_eos": True}
    )
    text = outrider.get("/metrics").text
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert "_created" not in text
    assert families["vllm:generation_tokens"].samples[0].value > 0
    drafts = int(sum(sample.value for sample in families["vllm:spec_decode_num_drafts"].samples))
    accepted = sum(sample.value for sample in families["vllm:spec_decode_num_accepted_tokens"].samples)
    per_position = sum(sample.value for sample in families["vllm:spec_decode_num_accepted_tokens_per_pos"].samples)
    assert drafts > 0
    assert accepted == per_position


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_goes_away_frees_its_blocks_within_a_second(outrider: Outrider, stream: bool) -> None:
    body = {"prompt": "a", "max_tokens": 3000, "ignore_eos": True, "n": 2, "stream": stream}
    with suppress(httpx.ReadTimeout), outrider.http() as http:
        timeout = httpx.Timeout(30, read=30 if stream else 0.5)
        with http.stream("POST", "/v1/completions", json=body, timeout=timeout) as answer:
            next(answer.iter_lines())
    for name in GAUGES:
        wait_for_zero(outrider, name, timeout_s=1.0)


def test_random_aborts_leave_every_gauge_at_zero(outrider: Outrider) -> None:
    rng = random.Random(5)
    statuses = []

    def one(num_tokens: int, stop_after: int) -> None:
        body = {"prompt": COPY_PROMPT[: num_tokens + 1], "max_tokens": num_tokens, "stream": True, "ignore_eos": True}
        with outrider.http() as http, http.stream("POST", "/v1/completions", json=body) as answer:
            statuses.append(answer.status_code)
            for count, _ in enumerate(answer.iter_lines()):
                if count > stop_after:
                    break

    for _ in range(8):
        threads = [
            threading.Thread(target=one, args=(rng.randint(1, 80), rng.choice([0, 3, 9, 999]))) for _ in range(12)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert statuses == [200] * 96
    for name in GAUGES:
        wait_for_zero(outrider, name)


def test_the_seed_service_runs_over_the_real_engine(outrider: Outrider) -> None:
    body = {"prompt": "a", "max_tokens": 8, "domain": "structured_json"}
    answer = outrider.post("/v1/chat/speculative-completions", body)
    assert answer.json()["routing_reason"] == "low_entropy_domain"
    assert answer.json()["total_tokens"] <= 8


def test_a_second_ctrl_c_waits_for_no_stream_and_leaves_no_process(tiny_model_dir: Path) -> None:
    server = start_outrider(tiny_model_dir, "--ingress", "proxy", "--grace-s", "600")
    body = {"prompt": "a", "max_tokens": 3000, "ignore_eos": True, "n": 8, "stream": True}
    try:
        assert len(marked_processes(server.marker)) > 3
        with server.http() as http, http.stream("POST", "/v1/completions", json=body) as answer:
            lines = answer.iter_lines()
            next(lines)
            for _ in range(2):  # As a terminal does: to Ray's processes as well.
                os.killpg(server.process.pid, signal.SIGINT)
                time.sleep(0.5)
            with pytest.raises(httpx.RemoteProtocolError):
                list(lines)
        assert server.process.wait(30) == 130
        end_s = time.monotonic() + 10
        while (left := marked_processes(server.marker)) and time.monotonic() < end_s:
            time.sleep(0.1)
        assert left == []
        assert server.process.stdout is not None
        assert re.sub(r"\s", "", server.process.stdout.read()) == ""
    finally:
        stop_for_sure(server)
