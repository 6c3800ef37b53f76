"""Verifiers come and go with the load, by Serve's autoscaling and our plan; one that goes finishes its streams."""

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.e2e.conftest import KEY, Outrider, start_outrider, stop_for_sure
from tests.e2e.test_pools import PROMPTS, Load, pool_settings, pool_size, samples, wait_until
from tests.tiny import save_tiny_model

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

NUM_LONG_TOKENS = 12_000
"""As many as take longer than Serve needs to remove a replica."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outrider]:
    folder = save_tiny_model(tmp_path_factory.mktemp("models") / "long")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 16_384}))
    server = start_outrider(
        folder, "--drafter", "off", "--num-threads", "1", "--set", "verifier_cpus=0.2", "--set", "drain_timeout_s=600",
        # Only the seats limit what a replica carries, so that a busy machine changes nothing.
        *pool_settings(
            mode="speculative", min_replicas=1, max_replicas=2, speculative_max_num_seqs=4, batch_max_num_seqs=4,
            ttft_slo_s=600.0, tpot_slo_s=60.0, scale_up_hold_s=0.5, scale_down_hold_s=0.5,
        ),
    )  # fmt: skip
    yield server
    stop_for_sure(server)


def num_verifiers(server: Outrider) -> float:
    """Those that take work."""
    return pool_size(server, "speculative") + pool_size(server, "batch")


def long_stream(
    server: Outrider, prompt: str, begun: threading.Event, num_tokens: int = NUM_LONG_TOKENS
) -> tuple[str, list[object]]:
    """The text, and the finish reasons; `begun` is set with the first token."""
    body = {"prompt": prompt, "max_tokens": num_tokens, "temperature": 0.7, "seed": 5, "ignore_eos": True}
    texts, reasons, last = list[str](), list[object](), ""
    headers = {"authorization": f"Bearer {KEY}"}
    with (
        httpx.Client(base_url=server.url, headers=headers, timeout=300) as http,
        http.stream("POST", "/v1/completions", json=body | {"stream": True}) as answer,
    ):
        assert answer.status_code == 200
        for line in answer.iter_lines():
            if not line.startswith("data: {"):
                last = line or last
                continue
            chunk = json.loads(line.removeprefix("data: "))
            assert "error" not in chunk, chunk
            texts += [choice["text"] for choice in chunk["choices"]]
            reasons += [choice["finish_reason"] for choice in chunk["choices"] if choice["finish_reason"]]
            begun.set()
    assert last == "data: [DONE]"
    return "".join(texts), reasons


@pytest.mark.chaos
def test_verifiers_are_added_with_the_load_and_a_removed_one_cuts_no_stream(server: Outrider) -> None:
    assert num_verifiers(server) == 1
    heavy, begun = Load(server), [threading.Event(), threading.Event()]
    with ThreadPoolExecutor(12) as threads:
        try:
            for prompt in PROMPTS[:8]:
                threads.submit(heavy.client, prompt)
            wait_until("no verifier was added", lambda: num_verifiers(server) == 2, 180)
            # One for each verifier: the second goes where the first does not.
            streams = [threads.submit(long_stream, server, PROMPTS[8 + index], begun[index]) for index in range(2)]
            time.sleep(1)
            heavy.stop.set()
            assert all(event.wait(60) for event in begun)
            wait_until("no verifier was removed", lambda: num_verifiers(server) == 1, 180)
            is_open = [not stream.done() for stream in streams]
            num_leaving = sum(samples(server, "outrider_pool_leaving_replicas").values())
            answers = [stream.result(timeout=300) for stream in streams]
        finally:
            heavy.stop.set()
    assert heavy.errors == []
    assert all(is_open), "the streams ended before a verifier was removed, so this shows nothing"
    assert num_leaving == 1
    for index, (text, reasons) in enumerate(answers):
        assert reasons == ["length"]
        beginning, _ = long_stream(server, PROMPTS[8 + index], threading.Event(), 500)
        # The last letters may be a part of one, held back until it is whole.
        assert text.startswith(beginning.rstrip("\ufffd"))
