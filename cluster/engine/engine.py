"""The engine: one `step` is one round over a batch. Start reading at `Engine.step`."""

from typing import TYPE_CHECKING

from cluster.clock import Clock, MonotonicClock
from cluster.config import EngineConfig
from cluster.engine.batch import build_model_input, needs_prompt_logprobs
from cluster.engine.block_pool import BlockPool
from cluster.engine.budget import DraftCost
from cluster.engine.choice import Choice
from cluster.engine.draft_budget import DraftBudget, StaticLimits
from cluster.engine.drafters.base import Drafter
from cluster.engine.drafters.best_draft import beside_grammar
from cluster.engine.drafters.collect import Drafting, DraftLimits
from cluster.engine.drafters.factory import build_drafter
from cluster.engine.memory_plan import num_reserve_blocks
from cluster.engine.model_runner import FeatureRunner, ModelRunner, TreeRunner
from cluster.engine.output import OutputProcessor
from cluster.engine.plan import Plan, ScheduledSequence, SchedulerConfig
from cluster.engine.rule_verifier import build_sampler
from cluster.engine.sampler import NO_TOKEN, NonFiniteLogitsError
from cluster.engine.scheduler import Scheduler
from cluster.engine.sequence import Sequence
from cluster.engine.startup import EngineParts, load_parts, measure_draft_cost
from cluster.engine.step_recorder import StepRecorder
from cluster.engine.step_time import StepTimes
from cluster.engine.streams import DualStreams
from cluster.engine.token_tree import MAX_NODES
from cluster.engine.verification import Verified, keep_paths, split_rows, verify
from cluster.errors import ConfigError, InvalidRequestError, check_range
from cluster.grammar.compiler import GrammarCompiler
from cluster.grammar.matcher import GrammarMatcher
from cluster.types import GRAMMAR_FAILED, FinishReason, Request, RequestOutput, Role, StepStats, TokenLogprobs

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerBase


class Engine:
    """Serves many choices at once. Not thread safe: one thread calls `add`, `abort` and `step`.

    Args:
        config: limits and speculation settings.
        runner: the target's forward pass and KV cache.
        tokenizer: turns ids into text.
        eos_token_ids: ids that end a choice.
        model_id: name of the model.
        fingerprint: tells it apart from others of its name.
        clock: source of deadlines and durations.
        draft_cost: what drafts cost on this machine.
        drafter: source of drafts instead of the configured one.
        kv_tax_tokens: KV capacity that speculation takes from the target while it is on; 0 where roles are not used.

    Attributes:
        last_step: what the last round did.
        role: what the engine does now; it starts speculative.
        grammars: makes the matchers of requests; any thread may use it.
    """

    def __init__(
        self,
        config: EngineConfig,
        *,
        runner: ModelRunner,
        tokenizer: "PreTrainedTokenizerBase",
        eos_token_ids: frozenset[int],
        model_id: str,
        fingerprint: str = "",
        clock: Clock,
        draft_cost: DraftCost | None = None,
        drafter: Drafter | None = None,
        kv_tax_tokens: int = 0,
    ) -> None:
        self.config, self.tokenizer, self.model_id, self.fingerprint = config, tokenizer, model_id, fingerprint
        self.eos_token_ids, self.vocab_size = eos_token_ids, runner.vocab_size
        self.max_model_len = runner.max_model_len
        self.numerics, self.dtype = runner.numerics, runner.dtype
        self.last_step, self.role = StepStats(), Role.SPECULATIVE
        self._runner, self._clock = runner, clock
        self._pool = BlockPool(runner.num_kv_blocks, runner.block_size)
        self._scheduler = Scheduler(
            SchedulerConfig(
                max_num_seqs=config.max_num_seqs,
                max_num_batched_tokens=config.max_num_batched_tokens,
                prefill_chunk_tokens=config.prefill_chunk_tokens,
                max_model_len=runner.max_model_len,
                enable_prefix_cache=config.enable_prefix_cache,
            ),
            self._pool,
            num_reserve_blocks=num_reserve_blocks(kv_tax_tokens, runner.num_kv_blocks, runner.block_size),
        )
        self._resting: Drafting | None = None  # Kept during role batch.
        self._sampler, self._rules = build_sampler(config.acceptance, runner.vocab_size, eos_token_ids)
        self.grammars = GrammarCompiler(tokenizer, runner.vocab_size, eos_token_ids, config.grammar)
        self._draft_cost = draft_cost or DraftCost()
        self._choices: dict[str, Choice] = {}
        self._streams = DualStreams(config.overlap, runner=runner, clock=clock, live=self._choices)
        self.use_drafter(drafter or build_drafter(config.drafter, max_draft_tokens=config.num_speculative_tokens))
        self._ended: list[RequestOutput] = []

    @classmethod
    def from_config(cls, config: EngineConfig, clock: Clock | None = None) -> "Engine":
        """Load what `config` names and build an engine around it.

        Raises:
            ConfigError: a setting does not fit the model or the machine.
            LoadError: the model is refused or damaged.
        """
        parts = load_parts(config)
        return cls.from_parts(
            config, parts, draft_cost=measure_draft_cost(parts.runner, config, model_id=parts.model_id), clock=clock
        )

    @classmethod
    def from_parts(
        cls,
        config: EngineConfig,
        parts: EngineParts,
        *,
        clock: Clock | None = None,
        draft_cost: DraftCost | None = None,
        drafter: Drafter | None = None,
        kv_tax_tokens: int = 0,
    ) -> "Engine":
        """Build an engine around a loaded model; arguments as for the class."""
        return cls(
            config,
            runner=parts.runner,
            tokenizer=parts.tokenizer,
            eos_token_ids=parts.eos_token_ids,
            model_id=parts.model_id,
            fingerprint=parts.source.fingerprint,
            clock=clock or MonotonicClock(),
            draft_cost=draft_cost,
            drafter=drafter,
            kv_tax_tokens=kv_tax_tokens,
        )

    def use_drafter(self, drafter: Drafter | None) -> None:
        """Take another source of drafts, or none; only while there is no work. The old one is not closed."""
        self._streams.clear()
        if self._resting is None:
            self._drafting = self._new_drafting(drafter)
            self._capture()
        else:
            self._resting = self._new_drafting(drafter)

    @property
    def step_times(self) -> StepTimes:
        """Times of rounds as they are known now."""
        return self._draft_cost.model.times

    @property
    def kv_tax_tokens(self) -> int:
        """KV capacity in tokens that is withheld for speculation now."""
        return self._pool.num_withheld_blocks * self._pool.block_size

    def set_role(self, role: Role, *, max_num_seqs: int) -> None:
        """Work in another role from the next round on; called between rounds. Texts stay what they are.

        In role batch a round does nothing for speculation: the drafter has forgotten every sequence, is kept as it is,
        and is not called. The KV tax goes back to the target. Sequences that run keep running in either direction.

        Raises:
            ConfigError: `max_num_seqs` is not within 1 to `max_num_batched_tokens`; nothing has changed.
        """
        check_range("max_num_seqs", max_num_seqs, 1, self.config.max_num_batched_tokens)
        self._streams.clear()
        is_batch = role is Role.BATCH
        if is_batch and self._resting is None:
            for request_id in self._choices:
                self._drafting.forget(request_id)
            self._resting, self._drafting = self._drafting, self._new_drafting(None)
        elif not is_batch and self._resting is not None:
            self._drafting, self._resting = self._resting, None
        self._capture()
        self._scheduler.set_limits(max_num_seqs=max_num_seqs, withholds_reserve=not is_batch)
        self.role = role

    @property
    def has_work(self) -> bool:
        """True while `step` has something to do or to tell."""
        return bool(self._choices or self._ended)

    def add(self, request: Request, grammar: GrammarMatcher | None = None) -> None:
        """Queue a choice, or go on with one that another replica began.

        Args:
            request: the choice.
            grammar: matcher of `request.grammar`, made in a thread that may wait; None lets it be made here, where all
                other choices wait for it.

        Raises:
            InvalidRequestError: it can never be served; nothing has changed.
        """
        self._check(request)
        if request.grammar and grammar is None:
            grammar = self.grammars.matcher(request.grammar)
        output = OutputProcessor(self.tokenizer, request, self.eos_token_ids, self.max_model_len, grammar)
        output.resume(request.output_token_ids)
        choice = Choice(Sequence.from_request(request, grammar), output)
        if output.finish_reason is not None:  # The earlier attempt brought all but the word that it was over.
            self._ended.append(choice.emit((), ()))
            return
        self._choices[request.request_id] = choice
        self._scheduler.add(choice.sequence)

    def abort(self, request_id: str) -> None:
        """End a choice and free its blocks now; the next step reports it. Unknown ids are ignored."""
        if choice := self._choices.get(request_id):
            self._end(choice, FinishReason.ABORT)

    def step(self) -> list[RequestOutput]:
        """Run one round: at most one forward pass of the target.

        Returns:
            What became visible, at most one entry per choice.
        """
        recorder = StepRecorder(self._clock.now_s())
        for sequence in self._scheduler.expired(self._clock.now_s()):
            self._end(self._choices[sequence.request_id], FinishReason.DEADLINE)
        streams, scheduler = self._streams, self._scheduler
        drafts = streams.begin_round(self._drafting, scheduler.decoding(), scheduler.num_prompt_rows_due)
        plan = scheduler.schedule(self._clock.now_s(), drafts, self._drafting.trees, among=streams.half)
        recorder.count_plan(plan)
        outputs, self._ended = self._ended, []
        if plan.scheduled:
            outputs += self._run(plan, recorder)
        recorder.draft_wait_s, recorder.num_drafter_failures = streams.wait_s, self._drafting.take_failures()
        recorder.is_overlapped, recorder.hidden_draft_s = streams.half is not None, streams.hidden_s
        recorder.draft_limits = self._drafting.take_limited()
        recorder.calibration_errors = self._drafting.calibration_errors()
        self.last_step = recorder.finish(
            now_s=self._clock.now_s(),
            num_running=self._scheduler.num_running,
            num_waiting=self._scheduler.num_waiting,
            kv_cache_usage_ratio=self._pool.usage_ratio,
        )
        if streams.is_usual:
            recorder.teach(self._draft_cost.model, self.last_step)
        streams.end_round(self.last_step)
        return outputs

    def check_integrity(self) -> None:
        """Check that every KV block and every choice is accounted for.

        Raises:
            AssertionError: the books do not balance.
        """
        self._scheduler.check_integrity()
        assert self._scheduler.num_running + self._scheduler.num_waiting == len(self._choices)

    def close(self) -> None:
        """Release the model and the drafter; the engine cannot be used afterwards."""
        self._streams.close()
        (self._resting or self._drafting).close()
        self._runner.close()

    def _capture(self) -> None:
        """Let the runner keep the hidden states that the drafters in use read, and no others."""
        layers = self._drafting.feature_layers
        reader = self._runner if isinstance(self._runner, FeatureRunner) else None
        if layers and reader is None:
            raise ConfigError(field="draft.heads", value=layers, allowed="none: this runner keeps no hidden states")
        if reader is not None:
            reader.capture(layers)
        self._reader = reader if layers else None

    def _new_drafting(self, drafter: Drafter | None) -> Drafting:
        config, cost = self.config, self._draft_cost
        limits = DraftLimits(
            num_speculative_tokens=config.num_speculative_tokens,
            vocab_size=self.vocab_size,
            max_tree_nodes=MAX_NODES if self._rules is None and isinstance(self._runner, TreeRunner) else 0,
            static=StaticLimits(
                max_sequences=config.max_draft_sequences,
                max_context=config.max_draft_context,
                min_acceptance_rate=config.min_acceptance_rate,
            ),
        )
        budget = None
        if config.draft_budget == "measured":
            budget = DraftBudget(cost.model, round_cost_ratio=cost.round_cost_ratio)
        if drafter is not None:
            drafter = beside_grammar(drafter)
        return Drafting(drafter, limits, self._clock, budget)

    def _check(self, request: Request) -> None:
        num_prompt_tokens = len(request.prompt_token_ids)
        if request.request_id in self._choices:
            raise InvalidRequestError(f"request id {request.request_id} is in use", param="request_id")
        if num_prompt_tokens == 0:
            raise InvalidRequestError("the prompt has no tokens", param="prompt")
        if num_prompt_tokens >= self.max_model_len:
            raise InvalidRequestError(
                f"the prompt has {num_prompt_tokens} tokens; this model takes 1 to {self.max_model_len - 1}",
                param="prompt",
                code="context_length_exceeded",
            )
        for param, token_ids in (("prompt", request.prompt_token_ids), ("output_token_ids", request.output_token_ids)):
            if not all(0 <= token_id < self.vocab_size for token_id in token_ids):
                raise InvalidRequestError(f"{param}: token ids must be 0 to {self.vocab_size - 1}", param=param)
        names = (self._resting or self._drafting).names
        if request.speculation.drafter not in (None, *names):
            raise InvalidRequestError(
                f"drafter {request.speculation.drafter!r} is not here; expected one of {', '.join(names)}",
                param="speculation.drafter",
            )
        num_tokens = min(num_prompt_tokens + request.sampling.max_tokens, self.max_model_len)
        if not self._scheduler.can_ever_fit(num_tokens):
            raise InvalidRequestError(
                f"prompt plus max_tokens is {num_tokens} tokens; the KV cache holds {self._scheduler.capacity_tokens}",
                param="max_tokens",
                code="context_length_exceeded",
            )

    def _run(self, plan: Plan, recorder: StepRecorder) -> list[RequestOutput]:
        batch = build_model_input(plan.scheduled, self._pool.block_size)
        self._drafting.begin_round(plan.scheduled)
        with self._streams.beside(self._drafting, self._scheduler, plan.scheduled):
            started_s = self._clock.now_s()
            logits_NV = self._runner.forward(batch)
            recorder.forward_s = self._clock.now_s() - started_s
        rows = split_rows(plan.scheduled, logits_NV)
        started_s = self._clock.now_s()
        verified = [
            self._verify(item, rows_NV) if item.samples else None
            for item, rows_NV in zip(plan.scheduled, rows, strict=True)
        ]
        recorder.sampling_s += self._clock.now_s() - started_s
        paths = keep_paths(plan.scheduled, verified, self._runner)
        if self._reader is not None:
            self._drafting.take_features(plan.scheduled, self._reader.features, paths)
        outputs = [self._commit(*parts, recorder) for parts in zip(plan.scheduled, rows, verified, strict=True)]
        return [output for output in outputs if output is not None]

    def _verify(self, item: ScheduledSequence, logits_NV: "torch.Tensor") -> Verified:
        """What the target draws for an item; nothing is committed."""
        logits_NV = logits_NV[len(logits_NV) - len(item.draft_token_ids) - 1 :]
        if self._rules is None:
            return verify(self._sampler, item, logits_NV)
        return self._rules.verify(item, logits_NV, self._drafting.probabilities_of(item))

    def _commit(
        self, item: ScheduledSequence, logits_NV: "torch.Tensor", drawn: Verified | None, recorder: StepRecorder
    ) -> RequestOutput | None:
        """Take in what was drawn for one item. The only place that adds tokens to a sequence."""
        choice = self._choices[item.sequence.request_id]
        if needs_prompt_logprobs(item):
            try:
                self._take_prompt_logprobs(choice, item, logits_NV)
            except NonFiniteLogitsError:
                return self._finish_round(choice, item, num_computed_tokens=item.start, reason=FinishReason.ERROR)
        if drawn is None:
            self._scheduler.advance(item, item.start + item.num_tokens)
            return None
        verdict = drawn.verdict
        is_broken = verdict.token_ids[-1] == NO_TOKEN  # Only this choice ends; the others go on.
        num_emitted = self._append(choice, verdict.token_ids[:-1] if is_broken else verdict.token_ids)
        entropy_bits, nodes = drawn.entropy_bits[:num_emitted], verdict.nodes[:num_emitted]
        num_accepted = len(nodes)
        choice.count_round(len(item.draft_token_ids), num_accepted, sum(entropy_bits), depth=item.draft_depth)
        source = self._drafting.observe(item, nodes) if item.draft_token_ids else ""
        if source:
            choice.draft_sources[source] = None
        recorder.count_tokens(item, entropy_bits, nodes, source)
        return self._finish_round(
            choice,
            item,
            # The KV of a broken row is not trusted.
            num_computed_tokens=item.start + num_accepted + (0 if is_broken else item.num_tokens),
            reason=FinishReason.ERROR if is_broken else None,
            token_ids=verdict.token_ids[:num_emitted],
            logprobs=drawn.first_logprobs(num_emitted),
        )

    def _finish_round(
        self,
        choice: Choice,
        item: ScheduledSequence,
        *,
        num_computed_tokens: int,
        reason: FinishReason | None,
        token_ids: tuple[int, ...] = (),
        logprobs: tuple[TokenLogprobs, ...] = (),
    ) -> RequestOutput:
        """Book the round's rows; end the choice for `reason` unless it has ended by itself."""
        if reason is FinishReason.ERROR:
            grammar = choice.sequence.grammar
            choice.output.fail(GRAMMAR_FAILED if grammar is not None and grammar.error else None)
        self._scheduler.advance(item, num_computed_tokens)
        if choice.output.finish_reason is not None:
            self._drop(choice)
        return choice.emit(token_ids, logprobs)

    def _append(self, choice: Choice, token_ids: tuple[int, ...]) -> int:
        """Pass tokens on one at a time until one of them ends the choice; returns how many were taken."""
        for count, token_id in enumerate(token_ids, start=1):
            choice.sequence.token_ids.append(token_id)
            choice.output.append(token_id)
            if choice.output.finish_reason is not None:
                return count
        return len(token_ids)

    def _take_prompt_logprobs(self, choice: Choice, item: ScheduledSequence, logits_NV: "torch.Tensor") -> None:
        """Collect what prompt rows say about the prompt tokens after them."""
        prompt, num_top = item.sequence.request.prompt_token_ids, item.sequence.request.sampling.prompt_logprobs
        choice.prompt_logprobs = choice.prompt_logprobs or [None]
        # After a preemption rows come again; what is known already is skipped.
        first, last = (
            max(item.start, len(choice.prompt_logprobs) - 1),
            min(item.start + item.num_tokens, len(prompt) - 1),
        )
        if first < last:
            rows_NV = logits_NV[first - item.start : last - item.start]
            choice.prompt_logprobs += self._sampler.prompt_logprobs(rows_NV, prompt[first + 1 : last + 1], num_top or 0)

    def _end(self, choice: Choice, reason: FinishReason) -> None:
        choice.output.finish(reason)
        self._drop(choice)
        self._ended.append(choice.emit((), ()))

    def _drop(self, choice: Choice) -> None:
        self._scheduler.finish(choice.sequence)
        del self._choices[choice.sequence.request_id]
        self._streams.forget(choice.sequence.request_id)
        self._drafting.forget(choice.sequence.request_id)
