"""Whole engines on a random Llama of two layers, scripted targets, and drafters of every quality."""

import random
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from cluster.clock import Clock, ManualClock
from cluster.config import EngineConfig
from cluster.engine.drafters.base import Draft, Drafter, Wanted
from cluster.engine.engine import Engine
from cluster.engine.model_input import ModelInput
from cluster.engine.model_runner import ModelRunner
from cluster.engine.native.runner import NativeRunner
from cluster.engine.plan import ScheduledSequence
from cluster.engine.sequence import Sequence
from cluster.types import (
    FinishReason,
    Request,
    RequestOutput,
    SamplingParams,
    SpeculationMode,
    SpeculationParams,
    SpeculationStats,
    StepStats,
    TokenLogprobs,
)
from tests.tiny import EOS_TOKEN_ID, VOCAB_SIZE, bf16_weights, build_tokenizer, native_runner, random_llama

BLOCK_SIZE, MAX_MODEL_LEN = 32, 512
OFF = SpeculationParams(mode=SpeculationMode.OFF)


@cache
def tokenizer() -> PreTrainedTokenizerFast:
    return build_tokenizer()


@cache
def tiny_llama() -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=MAX_MODEL_LEN,
        initializer_range=0.15,
        architectures=["LlamaForCausalLM"],
    )
    return random_llama(config, seed=0)


@cache
def tiny_runner(num_blocks: int) -> NativeRunner:
    """One runner for each pool size; engines that use it one after another do not see each other's KV."""
    model = tiny_llama()
    return native_runner(
        model.config,
        bf16_weights(model),
        num_blocks=num_blocks,
        block_size=BLOCK_SIZE,
        max_model_len=MAX_MODEL_LEN,
    )


def make_engine(
    *,
    num_blocks: int = 256,
    runner: ModelRunner | None = None,
    drafter: Drafter | None = None,
    eos_token_ids: Iterable[int] = (EOS_TOKEN_ID,),
    clock: Clock | None = None,
    kv_tax_tokens: int = 0,
    **settings: Any,
) -> Engine:
    return Engine(
        EngineConfig(**settings),
        runner=runner or tiny_runner(num_blocks),
        tokenizer=tokenizer(),
        eos_token_ids=frozenset(eos_token_ids),
        model_id="tiny",
        clock=clock or ManualClock(),
        drafter=drafter,
        kv_tax_tokens=kv_tax_tokens,
    )


def request(
    request_id: str,
    prompt: Seq[int],
    *,
    speculation: SpeculationParams | None = None,
    arrival_s: float = 0.0,
    deadline_s: float | None = None,
    cache_salt: str = "",
    grammar: str = "",
    **sampling: Any,
) -> Request:
    return Request(
        request_id=request_id,
        prompt_token_ids=tuple(prompt),
        sampling=SamplingParams(**{"max_tokens": 16, "seed": 1, "temperature": 0.0, **sampling}),
        speculation=speculation or SpeculationParams(),
        arrival_s=arrival_s,
        deadline_s=deadline_s,
        cache_salt=cache_salt,
        grammar=grammar,
    )


def random_prompt(seed: int, length: int) -> tuple[int, ...]:
    """Ids without the special tokens."""
    generator = random.Random(seed)
    return tuple(generator.randrange(3, VOCAB_SIZE) for _ in range(length))


@dataclass
class Result:
    """Everything that one choice emitted."""

    token_ids: list[int] = field(default_factory=list)
    text: str = ""
    deltas: list[str] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    prompt_logprobs: list[tuple[TokenLogprobs | None, ...]] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None
    num_output_tokens: int = 0
    num_cached_tokens: int = 0
    speculation: SpeculationStats | None = None

    def take(self, output: RequestOutput) -> None:
        assert self.finish_reason is None, "output after the end"
        self.token_ids += output.token_ids
        self.text += output.text
        self.deltas.append(output.text)
        self.logprobs += output.logprobs
        if output.prompt_logprobs is not None:
            self.prompt_logprobs.append(output.prompt_logprobs)
        self.finish_reason, self.stop_reason = output.finish_reason, output.stop_reason
        self.num_output_tokens, self.num_cached_tokens = output.num_output_tokens, output.num_cached_tokens
        self.speculation = output.speculation

    def same_as(self, other: "Result") -> bool:
        """True when a client could not tell the two apart, but for how the text was cut."""
        return self.seen() == other.seen()

    def seen(self) -> tuple[object, ...]:
        return (self.token_ids, self.text, self.logprobs, self.prompt_logprobs, self.finish_reason, self.stop_reason)


def drain(
    engine: Engine,
    results: dict[str, Result] | None = None,
    steps: list[StepStats] | None = None,
    *,
    drafter_works: bool = True,
) -> dict[str, Result]:
    """Step until nothing is left to do; every block is free and every choice is gone then."""
    results = {} if results is None else results
    num_failures = 0
    for _ in range(20_000):
        if not engine.has_work:
            break
        for output in engine.step():
            results.setdefault(output.request_id, Result()).take(output)
        num_failures += engine.last_step.num_drafter_failures
        if steps is not None:
            steps.append(engine.last_step)
    assert not engine.has_work, "the engine does not come to an end"
    engine.check_integrity()
    assert engine._pool.num_used_blocks == 0
    assert not (drafter_works and num_failures), "the drafter raised"
    return results


def run(
    engine: Engine, requests: Iterable[Request], steps: list[StepStats] | None = None, *, drafter_works: bool = True
) -> dict[str, Result]:
    """All requests at once."""
    for item in requests:
        engine.add(item)
    return drain(engine, steps=steps, drafter_works=drafter_works)


def run_alone(item: Request, **settings: Any) -> Result:
    """One request on a fresh engine of its own, speculation off: what every other way must equal."""
    engine = make_engine(num_speculative_tokens=0, enable_prefix_cache=False, **settings)
    return run(engine, [without_drafts(item)])[item.request_id]


def without_drafts(item: Request) -> Request:
    return replace(item, speculation=OFF)


Edit = Callable[[random.Random, list[int]], list[int]]


class KnowingDrafter:
    """Drafts from texts that it was told, after an edit: the right tokens, wrong ones, or nonsense.

    Args:
        texts: output token ids by request id.
        edit: changes the right draft; None leaves it.
    """

    name = "knowing"

    def __init__(self, texts: Mapping[str, Seq[int]], edit: Edit | None = None) -> None:
        self._texts, self._edit, self._random = texts, edit, random.Random(0)
        self.known: set[str] = set()
        self.observed: list[tuple[int, int]] = []

    def propose(self, wanted: Seq[Wanted]) -> Mapping[str, Draft]:
        drafts = {}
        for want in wanted:
            token_ids = self._guess(want.sequence, want.max_tokens)
            drafts[want.sequence.request_id] = Draft(token_ids=token_ids, source=self.name)
        return drafts

    def begin_round(self, items: Seq[ScheduledSequence]) -> None:
        assert items

    def observe(self, sequence: Sequence, draft: Draft, num_accepted: int) -> None:
        if draft.source == "grammar":  # The engine has that beside every drafter.
            return
        assert draft.source == self.name
        assert 0 <= num_accepted <= len(draft.token_ids)
        self.observed.append((len(draft.token_ids), num_accepted))

    def forget(self, request_id: str) -> None:
        self.known.discard(request_id)

    def close(self) -> None:
        assert not self.known

    def _guess(self, sequence: Sequence, max_tokens: int) -> tuple[int, ...]:
        self.known.add(sequence.request_id)
        done = sequence.num_output_tokens
        right = list(self._texts.get(sequence.request_id, ())[done : done + max_tokens])
        return tuple(self._edit(self._random, right) if self._edit else right)


def sometimes_wrong(generator: random.Random, right: list[int]) -> list[int]:
    return [token if generator.random() < 0.7 else generator.randrange(VOCAB_SIZE) for token in right]


def always_wrong(generator: random.Random, right: list[int]) -> list[int]:
    return [(token + 1) % VOCAB_SIZE for token in right]


def nonsense(generator: random.Random, right: list[int]) -> list[int]:
    """Random ids, ids that are no tokens, and more of them than asked for."""
    strange = [-1, -(1 << 31), VOCAB_SIZE, 1 << 40, 0, 5]
    return [token if generator.random() < 0.5 else generator.choice(strange) for token in [*right, *range(40)]]


EDITS: dict[str, Edit | None] = {
    "right": None,
    "sometimes wrong": sometimes_wrong,
    "always wrong": always_wrong,
    "nonsense": nonsense,
}


class ScriptedRunner:
    """A target that says what it is told: after position p it is nearly sure of `script[p]`, whatever it has read.

    Args:
        script: token id that follows each position.
        broken: positions whose logits are not finite.
    """

    vocab_size, num_kv_blocks, block_size, max_model_len = VOCAB_SIZE, 64, BLOCK_SIZE, MAX_MODEL_LEN
    dtype, numerics = "float32", "invariant"

    def __init__(self, script: Seq[int], broken: Iterable[int] = ()) -> None:
        self._script, self._broken = list(script), set(broken)

    def forward(self, batch: ModelInput) -> torch.Tensor:
        assert batch.token_ids.min() >= 0 and batch.token_ids.max() < VOCAB_SIZE
        positions = batch.positions[batch.logit_rows].tolist()
        logits_NV = torch.linspace(0.0, 1.0, VOCAB_SIZE).repeat(len(positions), 1)
        for row, position in enumerate(positions):
            logits_NV[row, self._script[min(position, len(self._script) - 1)]] = 20.0
            if position in self._broken:
                logits_NV[row, 7] = torch.nan
        return logits_NV

    def close(self) -> None:
        """Nothing to release."""


def scripted_engine(
    prompt: Seq[int], output: Seq[int], *, drafts: Seq[int] | None = None, broken: Iterable[int] = (), **settings: Any
) -> Engine:
    """An engine whose target writes `output` after `prompt`; request "a" gets `drafts`, by default exactly that text.

    Args:
        prompt: its length matters only.
        output: what the target writes, then over and over its last token.
        drafts: what the drafter proposes at each output index.
        broken: output indices whose logits are not finite.
        settings: for `make_engine`.
    """
    script = [0] * (len(prompt) - 1) + list(output)
    return make_engine(
        runner=ScriptedRunner(script, [len(prompt) - 1 + index for index in broken]),
        drafter=KnowingDrafter({"a": output if drafts is None else drafts}),
        **settings,
    )
