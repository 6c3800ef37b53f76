"""A verifier in this process: a real engine over a tiny target, which serves on while its drafter is maltreated."""

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Sequence as Seq
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
import torch

from cluster.clock import MonotonicClock
from cluster.config import DraftConfig, EngineConfig
from cluster.engine.engine import Engine
from cluster.engine.model_input import ModelInput
from cluster.engine.model_runner import ModelRunner
from cluster.engine.startup import EngineParts, load_parts
from cluster.types import Request, SamplingParams
from deployments.discovery import DrafterRecord
from deployments.draft_client import DraftClient, DraftClientConfig
from deployments.drafter_process import NODE_ID
from deployments.engine_build import build_client
from deployments.pairing import candidates_of
from tests.tiny import build_config, build_tokenizer, random_llama

LONG_S = 60.0
"""Longer than anything takes on a busy machine; reached only when a test fails."""

RETURN_S = 5.0
"""A drafter that has come back is hit again within this time: a promise, not a patience."""

BATCH = 4
DRAFT_WAIT_S = 0.1  # The draft model is as large as the tiny target: without a wait all of its tables would be late.

Texts = Mapping[str, Seq[int]]


def requests() -> tuple[Request, ...]:
    """Greedy and sampled ones of several lengths, each with a seed of its own."""
    return tuple(
        Request(
            request_id=f"r{i}",
            prompt_token_ids=tuple((7 + 31 * i + 13 * j * (j + i)) % 500 + 3 for j in range(9 + 11 * i)),
            sampling=SamplingParams(
                max_tokens=30 + 17 * i, seed=i, temperature=float(i % 2), ignore_eos=True, logprobs=None
            ),
        )
        for i in range(6)
    )


def save_model(folder: Path) -> Path:
    """Write a tiny model that the CPU kernels can run: its texts do not depend on how many rows a pass has."""
    config = build_config()
    config.head_dim = 32
    random_llama(config, seed=0).save_pretrained(folder)
    build_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def engine_config(tmp_path_factory: pytest.TempPathFactory) -> EngineConfig:
    """A tiny target; drafts come from a client alone."""
    return EngineConfig(
        model=str(save_model(tmp_path_factory.mktemp("models") / "tiny")),
        num_threads=1,
        kv_cache_tokens=16_384,
        drafter="off",
        num_speculative_tokens=4,
    )


@pytest.fixture(scope="session")
def draft_config(engine_config: EngineConfig) -> DraftConfig:
    """A draft model that drafts what the tiny target says: itself."""
    return DraftConfig(model=engine_config.model, kv_cache_tokens=16_384)


@pytest.fixture(scope="session")
def parts(engine_config: EngineConfig) -> EngineParts:
    """The tiny target, loaded; for one engine after another."""
    parts = load_parts(engine_config)
    assert parts.runner.numerics == "invariant"
    return parts


@pytest.fixture(scope="session")
def reference(engine_config: EngineConfig, parts: EngineParts) -> Texts:
    """What each of `requests` gets with speculation off, alone."""
    texts: dict[str, Seq[int]] = {}
    for request in requests():
        engine = build_engine(replace(engine_config, num_speculative_tokens=0, enable_prefix_cache=False), parts)
        engine.add(request)
        texts[request.request_id] = token_ids = []
        while engine.has_work:
            token_ids += [token_id for output in engine.step() for token_id in output.token_ids]
    return texts


def build_engine(
    config: EngineConfig, parts: EngineParts, client: DraftClient | None = None, runner: ModelRunner | None = None
) -> Engine:
    """An engine of loaded parts; closing it leaves a native runner of one thread as it was."""
    return Engine(
        config,
        runner=runner or parts.runner,
        tokenizer=parts.tokenizer,
        eos_token_ids=parts.eos_token_ids,
        model_id=parts.model_id,
        clock=MonotonicClock(),
        drafter=client,
    )


class During:
    """A runner whose next pass lets something else happen in its middle, once.

    Attributes:
        meanwhile: what; None for nothing.
    """

    def __init__(self, runner: ModelRunner) -> None:
        self.vocab_size, self.num_kv_blocks, self.block_size = (
            runner.vocab_size,
            runner.num_kv_blocks,
            runner.block_size,
        )
        self.max_model_len, self.dtype, self.numerics = runner.max_model_len, runner.dtype, runner.numerics
        self.meanwhile: Callable[[], None] | None = None
        self._runner = runner

    def forward(self, batch: ModelInput) -> torch.Tensor:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return self._runner.forward(batch)

    def close(self) -> None:
        """The runner serves other engines."""


class Verifier:
    """Serves `requests` over and over, several at once, and compares every text with the one without speculation.

    Args:
        config: of the engine.
        parts: loaded ones.
        texts: what is expected.
        draft_wait_s: how long a round may wait for tables.
        name: of the verifier.

    Attributes:
        client: the end towards drafters.
        during: the target.
        num_texts: texts that were complete, and right.
    """

    def __init__(
        self, config: EngineConfig, parts: EngineParts, texts: Texts, *, draft_wait_s: float, name: str = "v"
    ) -> None:
        self.client = build_client(parts, DraftClientConfig(draft_wait_s=draft_wait_s), node_id=NODE_ID, name=name)
        self.during, self.num_texts = During(parts.runner), 0
        self._engine = build_engine(config, parts, self.client, self.during)
        self._texts, self._numbers = texts, count()
        self._running: dict[str, list[int]] = {}

    def use(self, *records: DrafterRecord) -> None:
        """These are the drafters that run now."""
        self.client.set_peers(candidates_of(records))

    def lookups(self, result: str) -> int:
        return self.client.stats().lookups[result]

    def fallbacks(self, reason: str) -> int:
        return self.client.stats().fallbacks[reason]

    def transitions(self, reason: str) -> int:
        return self.client.stats().transitions[reason]

    def serve_until(self, is_true: Callable[[], bool], what: str, *, timeout_s: float = LONG_S) -> float:
        """Serve until it is so; the seconds that took."""
        started_s = time.monotonic()
        while not is_true():
            taken_s = time.monotonic() - started_s
            assert taken_s < timeout_s, f"not within {timeout_s:g} s: {what}; {self.client.stats()}"
            self.serve_round()
        return time.monotonic() - started_s

    def serve_round(self) -> None:
        """One round of several requests."""
        while len(self._running) < BATCH:
            self._add()
        self._round()

    def serve(self, num_texts: int) -> None:
        """Serve until so many more texts are complete."""
        last = self.num_texts + num_texts
        self.serve_until(lambda: self.num_texts >= last, f"{num_texts} texts")

    def serve_until_hit(self, num_hits: int = 10, *, timeout_s: float = LONG_S) -> float:
        """Serve until so many more tables held the outcome; the seconds that took."""
        last = self.lookups("hit") + num_hits
        return self.serve_until(lambda: self.lookups("hit") >= last, f"{num_hits} hits", timeout_s=timeout_s)

    def recovers(self) -> None:
        """The drafter is back since now: it is hit again within the promised time, and goes on."""
        taken_s = self.serve_until_hit(1)
        sys.stdout.write(f"hit again {taken_s:.2f} s after its return\n")
        assert taken_s < RETURN_S
        self.serve_until_hit(50)

    def finish(self) -> None:
        """Serve what was begun; nothing is left then, on either side of the engine."""
        started_s = time.monotonic()
        while self._engine.has_work:
            assert time.monotonic() - started_s < LONG_S, "the engine does not come to an end"
            self._round()
        self._engine.check_integrity()
        assert not self._running and self.client.num_sequences == 0
        assert self.num_texts > 0

    def close(self) -> None:
        self._engine.close()

    def _round(self) -> None:
        for output in self._engine.step():
            self._running[output.request_id] += output.token_ids
            if output.finish_reason is not None:
                name = output.request_id.partition(".")[0]
                assert self._running.pop(output.request_id) == self._texts[name], output.request_id
                assert output.finish_reason.value == "length"
                self.num_texts += 1
        assert self._engine.last_step.num_drafter_failures == 0

    def _add(self) -> None:
        number, known = next(self._numbers), requests()
        request = known[number % len(known)]
        request = replace(request, request_id=f"{request.request_id}.{number}")
        self._running[request.request_id] = []
        self._engine.add(request)


@pytest.fixture
def verifier(engine_config: EngineConfig, parts: EngineParts, reference: Texts) -> Iterator[Verifier]:
    """A verifier that knows no drafter yet."""
    with verifying(engine_config, parts, reference) as verifier:
        yield verifier


@contextmanager
def verifying(
    config: EngineConfig, parts: EngineParts, texts: Texts, *, draft_wait_s: float = DRAFT_WAIT_S, name: str = "v"
) -> Iterator[Verifier]:
    """A verifier whose texts are all right, and complete, at the end of the block."""
    with closing(Verifier(config, parts, texts, draft_wait_s=draft_wait_s, name=name)) as verifier:
        yield verifier
        verifier.finish()
