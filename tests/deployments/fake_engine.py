"""A small engine with a byte tokenizer: scripted text, real bookkeeping, no model."""

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from tokenizers import Tokenizer as RawTokenizer
from tokenizers import decoders, models, pre_tokenizers

from cluster.clock import Clock, MonotonicClock
from cluster.engine.step_time import StepTimes
from cluster.errors import ConfigError, InvalidRequestError
from cluster.grammar.compiler import GrammarCompiler
from cluster.grammar.matcher import GrammarMatcher
from cluster.types import (
    DomainWork,
    FinishReason,
    Request,
    RequestOutput,
    Role,
    SpeculationMode,
    SpeculationStats,
    StepStats,
    TokenLogprobs,
)
from deployments import codec

SCRIPT = "The quick brown fox jumps over the lazy dog. "
EOS_ID = 256


class ByteTokenizer:
    """Ids 0..255 are bytes, 256 is the end of text."""

    chat_template: object = "bytes"
    all_special_ids = (EOS_ID,)
    eos_token_id = EOS_ID

    def apply_chat_template(self, conversation: list[dict[str, str]], **kwargs: object) -> object:
        text = "".join(f"<{turn['role']}>{turn['content']}" for turn in conversation)
        return text + ("<assistant>" if kwargs["add_generation_prompt"] else "")

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        return list(text.encode())

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        return bytes(token_id for token_id in token_ids if token_id < 256).decode(errors="replace")

    def convert_ids_to_tokens(self, ids: int) -> str | None:
        return f"<0x{ids:02X}>" if ids < 256 else "<eos>"

    @property
    def backend_tokenizer(self) -> RawTokenizer:
        """The same vocabulary, for grammars to be compiled for."""
        return _raw_tokenizer()


@cache
def _raw_tokenizer() -> RawTokenizer:
    raw = RawTokenizer(models.BPE(vocab=dict(codec._byte_level_table()), merges=[]))
    raw.pre_tokenizer, raw.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    raw.add_special_tokens(["<eos>"])
    return raw


class FakeEngine:
    """Emits a script over and over, or once, `tokens_per_step` tokens a round for each running choice."""

    model_id = "fake/bytes"
    fingerprint = "fake"
    max_model_len = 512
    vocab_size = 257
    numerics = "invariant"
    dtype = "float32"
    most_seqs = 1024

    def __init__(
        self,
        *,
        tokens_per_step: int = 3,
        max_num_seqs: int = 64,
        step_s: float = 0.0,
        clock: Clock | None = None,
        crash_at_step: int | None = None,
        script: str = SCRIPT,
        ends: bool = False,
    ) -> None:
        self.script, self.ends = script, ends
        self.tokens_per_step, self.max_num_seqs, self.step_s = tokens_per_step, max_num_seqs, step_s
        self.clock = clock or MonotonicClock()
        self.crash_at_step = crash_at_step
        self.num_steps = 0
        self.last_step = StepStats()
        self.requests: dict[str, Request] = {}
        self.lengths: dict[str, int] = {}
        self.aborted: list[str] = []
        self.seen: list[Request] = []
        self.roles: list[tuple[Role, int, int]] = []
        self.kv_tax_tokens = 64
        self.step_times: StepTimes | None = None
        self.grammars = GrammarCompiler(ByteTokenizer(), self.vocab_size, frozenset([EOS_ID]))

    @property
    def has_work(self) -> bool:
        return bool(self.requests or self.aborted)

    def add(self, request: Request, grammar: GrammarMatcher | None = None) -> None:
        assert (grammar is not None) == bool(request.grammar)
        if request.sampling.bad_words:
            raise InvalidRequestError("no bad words here", param="bad_words")
        self.seen.append(request)
        self.requests[request.request_id] = request
        self.lengths[request.request_id] = len(request.output_token_ids)

    def abort(self, request_id: str) -> None:
        if self.requests.pop(request_id, None) is not None:
            self.aborted.append(request_id)

    def set_role(self, role: Role, *, max_num_seqs: int) -> None:
        if max_num_seqs > self.most_seqs:
            raise ConfigError(field="max_num_seqs", value=max_num_seqs, allowed=f"1 to {self.most_seqs}")
        self.roles.append((role, max_num_seqs, len(self.requests)))
        self.max_num_seqs = max_num_seqs
        self.kv_tax_tokens = 64 if role is Role.SPECULATIVE else 0

    def step(self) -> list[RequestOutput]:
        self.num_steps += 1
        if self.step_s:
            time.sleep(self.step_s)
        if self.num_steps == self.crash_at_step:
            raise ZeroDivisionError("secret internals")
        outputs = [RequestOutput(request_id=name, finish_reason=FinishReason.ABORT) for name in self.aborted]
        self.aborted.clear()
        running = list(self.requests.values())[: self.max_num_seqs]
        emitted = [self._advance(request) for request in running]
        for output in emitted:
            if output.finish_reason is not None:
                del self.requests[output.request_id]
        num_drafts = sum(r.speculation.mode is not SpeculationMode.OFF for r in running)
        accepted = self.tokens_per_step - 1
        self.last_step = StepStats(
            duration_s=0.01,
            forward_s=0.008,
            num_rows=len(running) + 4 * num_drafts,
            num_sequences=len(running),
            domains=_domains(running, emitted, min(accepted, 4)),
            num_output_tokens=sum(len(output.token_ids) for output in emitted),
            num_prompt_tokens=sum(len(r.prompt_token_ids) for r in running if self.lengths[r.request_id] <= 3),
            num_drafts=num_drafts,
            num_draft_tokens=4 * num_drafts,
            num_tried_tokens=3 * num_drafts,
            accepted_per_position=tuple(num_drafts if p < accepted else 0 for p in range(4)),
            entropy_bits=tuple(1.0 for _ in emitted),
            num_running=min(len(self.requests), self.max_num_seqs),
            num_waiting=max(0, len(self.requests) - self.max_num_seqs),
            kv_cache_usage_ratio=min(1.0, len(self.requests) / 64),
        )
        return outputs + emitted

    def _advance(self, request: Request) -> RequestOutput:
        name, sampling = request.request_id, request.sampling
        base = RequestOutput(request_id=name, num_prompt_tokens=len(request.prompt_token_ids), num_cached_tokens=1)
        if request.deadline_s is not None and self.clock.now_s() >= request.deadline_s:
            return replace(base, finish_reason=FinishReason.DEADLINE, num_output_tokens=self.lengths[name])
        begin = self.lengths[name]
        most = min(sampling.max_tokens, len(self.script)) if self.ends else sampling.max_tokens
        end = min(begin + self.tokens_per_step, most)
        self.lengths[name] = end
        text = "".join(self.script[i % len(self.script)] for i in range(begin, end))
        reason = FinishReason.LENGTH if end == sampling.max_tokens else FinishReason.STOP
        token_ids = tuple(text.encode())
        return replace(
            base,
            text=text,
            token_ids=token_ids,
            logprobs=tuple(_logprobs(t, sampling.logprobs) for t in token_ids) if sampling.logprobs is not None else (),
            prompt_logprobs=_prompt_logprobs(request)
            if begin == len(request.output_token_ids) and sampling.prompt_logprobs is not None
            else None,
            finish_reason=reason if end == most else None,
            num_output_tokens=end,
            speculation=self._stats(request, end) if end == most else None,
        )

    def _stats(self, request: Request, length: int) -> SpeculationStats:
        num_rounds = -(-length // self.tokens_per_step)
        if request.speculation.mode is SpeculationMode.OFF:
            return SpeculationStats(num_rounds=num_rounds)
        accepted = self.tokens_per_step - 1
        histogram = tuple(num_rounds if count == accepted else 0 for count in range(5))
        return SpeculationStats(
            num_rounds=num_rounds,
            num_drafts=num_rounds,
            num_draft_tokens=4 * num_rounds,
            num_accepted_tokens=accepted * num_rounds,
            accepted_per_draft=histogram,
        )


def _domains(running: Sequence[Request], emitted: Sequence[RequestOutput], num_accepted: int) -> tuple[DomainWork, ...]:
    found: dict[str, DomainWork] = {}
    for request, output in zip(running, emitted, strict=True):
        drafts = request.speculation.mode is not SpeculationMode.OFF
        work = found.get(request.domain, DomainWork(domain=request.domain))
        found[request.domain] = replace(
            work,
            num_sequences=work.num_sequences + 1,
            num_rows=work.num_rows + 1 + 4 * drafts,
            num_output_tokens=work.num_output_tokens + len(output.token_ids),
            num_draft_tokens=work.num_draft_tokens + 4 * drafts,
            num_accepted_tokens=work.num_accepted_tokens + num_accepted * drafts,
        )
    return tuple(found.values())


def _logprobs(token_id: int, num_top: int) -> TokenLogprobs:
    top = tuple((token_id + offset, -0.5 - offset) for offset in range(num_top))
    return TokenLogprobs(token_id=token_id, logprob=-0.5, rank=1, top=top)


def _prompt_logprobs(request: Request) -> tuple[TokenLogprobs | None, ...]:
    num_top = request.sampling.prompt_logprobs or 0
    return (None, *(_logprobs(token_id, num_top) for token_id in request.prompt_token_ids[1:]))
