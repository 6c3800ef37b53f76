"""A verifier dies or hangs while it serves: clients get the same answers, unbroken, from the other one."""

import json
import os
import re
import signal
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.conftest import Outrider, start_outrider, stop_for_sure, wait_for_zero
from tests.e2e.reference import undisturbed
from tests.tiny import build_config, build_tokenizer, random_llama

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
NUM_TOKENS = 400
MESSAGES = [{"role": "user", "content": "Who rides ahead of the carriage?"}]
COMMON = {"max_tokens": NUM_TOKENS, "ignore_eos": True, "temperature": 0.7}
PENALTIES = {"presence_penalty": 0.4, "frequency_penalty": 0.2, "repetition_penalty": 1.1}

REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "two choices": (CHAT, {"messages": MESSAGES, "n": 2, "seed": 1, "logprobs": True, "top_logprobs": 2, **PENALTIES}),
    "echo": (COMPLETIONS, {"prompt": "An outrider rides", "seed": 2, "echo": True}),
    "greedy": (COMPLETIONS, {"prompt": "def ride(n):", "temperature": 0, "stop": ["never seen"], "logprobs": 1}),
    "grammar": (COMPLETIONS, {"prompt": "ride", "seed": 4, "structured_outputs": {"regex": "([a-z]+ )+"}}),
}
"""Streamed while a verifier is lost; the first also as a whole answer."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "native"
    config = build_config()
    config.head_dim = 32  # as the CPU kernels need it, whose rows have the same bits in every batch
    random_llama(config, seed=0).save_pretrained(folder)
    build_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def server(model: Path) -> Iterator[Outrider]:
    server = start_outrider(
        model, "--dtype", "bfloat16", "--numerics", "invariant", "--drafter", "ngram", "--num-threads", "1",
        "--set", "num_verifiers=2", "--set", "verifier_cpus=0.2", "--set", "keep_alive_s=2",
    )  # fmt: skip
    yield server
    stop_for_sure(server)


@pytest.fixture(scope="module")
def expected(model: Path) -> dict[str, Any]:
    """What an undisturbed engine says, without drafts."""
    answers = undisturbed(model, {name: body_of(name) for name in REQUESTS}, dtype="bfloat16")
    return {name: answer_of(answer) for name, answer in answers.items()}


def body_of(name: str) -> tuple[str, dict[str, Any]]:
    """Path and body of a request that goes to the pool speculative."""
    path, body = REQUESTS[name]
    return path, COMMON | body | {"service_tier": "priority"}


def whole(server: Outrider, name: str) -> dict[Any, Any]:
    return answer_of(server.post(*body_of(name)))


def answer_of(answer: httpx.Response) -> dict[Any, Any]:
    """A whole answer, in the form that `Stream` has."""
    assert answer.status_code == 200, answer.text
    found = answer.json()
    return {"usage": counts(found["usage"])} | {
        choice["index"]: {
            "text": choice["message"]["content"] if "message" in choice else choice["text"],
            "logprobs": entries_of(choice),
            "finish_reason": choice["finish_reason"],
        }
        for choice in found["choices"]
    }


def entries_of(choice: dict[str, Any]) -> list[Any]:
    """Its log-probabilities, token by token."""
    logprobs = choice.get("logprobs")
    if logprobs is None:
        return []
    if "content" in logprobs:
        return list(logprobs["content"])
    entries = zip(logprobs["tokens"], logprobs["token_logprobs"], logprobs["top_logprobs"], strict=True)
    return [list(entry) for entry in entries]


def counts(usage: dict[str, Any]) -> tuple[int, int]:
    return usage["prompt_tokens"], usage["completion_tokens"]


class Stream:
    """A streamed answer as it comes in."""

    def __init__(self, server: Outrider, name: str) -> None:
        self._server, self.name = server, name
        self.num_events = 0
        self.found: dict[Any, Any] = {}

    def read(self) -> dict[Any, Any]:
        """To its end, which must be as it should."""
        path, body = body_of(self.name)
        body |= {"stream": True, "stream_options": {"include_usage": True}}
        with self._server.http() as http, http.stream("POST", path, json=body) as answer:
            assert answer.status_code == 200, answer.read()
            lines = []
            for line in answer.iter_lines():
                if line.startswith("data: "):
                    lines.append(line.removeprefix("data: "))
                    self._take(lines[-1])
        assert lines.count("[DONE]") == 1 and lines[-1] == "[DONE]"
        return self.found

    def _take(self, line: str) -> None:
        if line == "[DONE]":
            return
        chunk = json.loads(line)
        assert "error" not in chunk, chunk
        self.num_events += 1
        if chunk.get("usage"):
            self.found["usage"] = counts(chunk["usage"])
        for choice in chunk["choices"]:
            known = self.found.setdefault(choice["index"], {"text": "", "logprobs": [], "finish_reason": None})
            assert known["finish_reason"] is None
            known["text"] += choice["delta"].get("content", "") if "delta" in choice else choice["text"]
            known["logprobs"] += entries_of(choice)
            known["finish_reason"] = choice["finish_reason"]


def samples(server: Outrider, name: str) -> dict[str, float]:
    text = server.get("/metrics").text
    return {labels: float(value) for labels, value in re.findall(rf"^{name}{{(.*)}} (\S+)$", text, re.MULTILINE)}


def num_resumes(server: Outrider, reason: str, result: str = "resumed") -> float:
    found = samples(server, "outrider_resumes_total")
    return sum(n for labels, n in found.items() if f'reason="{reason}"' in labels and f'result="{result}"' in labels)


def pid_of(server: Outrider, engine: str) -> int:
    """The replica's process, known by the log that it writes."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if b":Verifier" not in (folder / "cmdline").read_bytes():
                continue
            if server.marker.encode() not in (folder / "environ").read_bytes():
                continue
            if any(engine in str(each.readlink()) for each in (folder / "fd").iterdir()):
                return int(folder.name)
        except OSError:
            continue
    raise AssertionError(f"no process of {engine}")


def speculative_verifier(server: Outrider, timeout_s: float = 40.0) -> int:
    """The process of the verifier of role speculative, once there are two verifiers and one of them is."""
    end_s = time.monotonic() + timeout_s
    while time.monotonic() < end_s:
        roles = samples(server, "outrider_role")
        found = [labels for labels, value in roles.items() if value == 1 and 'role="speculative"' in labels]
        if len(roles) == 4 and found:
            return pid_of(server, re.findall(r'engine="([^"]+)"', found[0])[0])
        time.sleep(0.2)
    raise AssertionError(f"no second verifier: {samples(server, 'outrider_role')}")


def wait_for_events(streams: list[Stream], least: int) -> None:
    end_s = time.monotonic() + 30
    while any(stream.num_events < least for stream in streams):
        assert time.monotonic() < end_s, [(stream.name, stream.num_events) for stream in streams]
        time.sleep(0.01)


def begin(server: Outrider, pool: ThreadPoolExecutor) -> tuple[list[Stream], dict[str, Future[dict[Any, Any]]]]:
    streams = {name: Stream(server, name) for name in REQUESTS}
    answers: dict[str, Future[dict[Any, Any]]] = {name: pool.submit(each.read) for name, each in streams.items()}
    answers["whole"] = pool.submit(whole, server, "two choices")
    return list(streams.values()), answers


def check(answers: dict[str, Future[dict[Any, Any]]], expected: dict[str, Any]) -> None:
    for name, answer in answers.items():
        assert answer.result(60) == expected["two choices" if name == "whole" else name], name


def test_answers_go_on_elsewhere_when_their_verifier_hangs(server: Outrider, expected: dict[str, Any]) -> None:
    for _ in range(3):  # On a busy machine the answers may be over before the process stops.
        pid = speculative_verifier(server)
        with ThreadPoolExecutor(4) as pool:
            streams, answers = begin(server, pool)
            wait_for_events(streams, 20)
            os.kill(pid, signal.SIGSTOP)
            try:
                check(answers, expected)
            finally:
                os.kill(pid, signal.SIGCONT)
        if num_resumes(server, "replica_silent"):
            break
    else:
        pytest.fail("no answer was with the verifier that hung")
    # It is told to drop what it had, too.
    wait_for_zero(server, "vllm:num_requests_running", timeout_s=20)
    wait_for_zero(server, "outrider_queued_requests")


def test_a_verifier_killed_in_the_middle_of_streams_is_not_noticed(server: Outrider, expected: dict[str, Any]) -> None:
    pid = speculative_verifier(server)
    with ThreadPoolExecutor(4) as pool:
        streams, answers = begin(server, pool)
        wait_for_events(streams, 20)
        assert not all(answer.done() for answer in answers.values())
        os.kill(pid, signal.SIGKILL)
        check(answers, expected)
    assert num_resumes(server, "replica_lost") >= 1


def test_a_verifier_killed_before_the_first_token_is_not_noticed(server: Outrider, expected: dict[str, Any]) -> None:
    pid = speculative_verifier(server)  # The one that was killed is back.
    os.kill(pid, signal.SIGSTOP)
    with ThreadPoolExecutor(4) as pool:
        _, answers = begin(server, pool)
        time.sleep(1.0)
        assert not all(answer.done() for answer in answers.values())
        os.kill(pid, signal.SIGKILL)
        check(answers, expected)
    # Calls that it had not taken yet Serve itself sends elsewhere, so that the count need not rise.
    assert not [each for each in samples(server, "outrider_resumes_total") if "gave_up" in each]
