"""Serves the cases of the check on an engine of their own, as a scenario says."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from cluster.config import EngineConfig
from cluster.engine.drafters.base import Drafter
from cluster.engine.engine import Engine
from cluster.engine.features import RoundFeatures
from cluster.engine.lossless.cases import Scenario
from cluster.engine.model_runner import FeatureRunner, ModelRunner, TreeRunner
from cluster.engine.startup import EngineParts
from cluster.grammar.compiler import GrammarCompiler
from cluster.types import FinishReason, Request, RequestOutput

# Short chunks, so that a prompt is read over several rounds beside the decoding of others.
_PREFILL_CHUNK_TOKENS = 64


@dataclass(slots=True)
class Served:
    """What one request produced.

    Attributes:
        token_ids: output.
        finish_reason: None while it goes on.
        num_cached_tokens: prompt tokens from the prefix cache.
        num_draft_tokens: verified.
        num_accepted_tokens: of those.
    """

    token_ids: list[int] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    num_cached_tokens: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0

    def take(self, output: RequestOutput) -> None:
        """Add what a round emitted."""
        self.token_ids += output.token_ids
        self.finish_reason = output.finish_reason
        self.num_cached_tokens = output.num_cached_tokens
        if output.speculation is not None:
            self.num_draft_tokens = output.speculation.num_draft_tokens
            self.num_accepted_tokens = output.speculation.num_accepted_tokens


class _SmallPool:
    """A runner of which only some KV blocks are used."""

    def __init__(self, runner: ModelRunner, num_kv_blocks: int) -> None:
        self.vocab_size, self.block_size, self.max_model_len = (
            runner.vocab_size,
            runner.block_size,
            runner.max_model_len,
        )
        self.dtype, self.numerics, self.num_kv_blocks = runner.dtype, runner.numerics, num_kv_blocks
        self.forward = runner.forward
        self.close = runner.close
        if isinstance(runner, TreeRunner):
            self.move_kv = runner.move_kv
        self._reader = runner if isinstance(runner, FeatureRunner) else None
        if self._reader is not None:
            self.hidden_size, self.num_layers = self._reader.hidden_size, self._reader.num_layers
            self.capture = self._reader.capture

    @property
    def features(self) -> RoundFeatures:
        """The runner's, where it keeps any."""
        if self._reader is None:
            raise AttributeError("features")
        return self._reader.features


def build_engine(
    parts: EngineParts,
    config: EngineConfig,
    scenario: Scenario,
    *,
    num_kv_blocks: int,
    drafter: Drafter | None = None,
    grammars: GrammarCompiler | None = None,
) -> Engine:
    """An engine for one scenario; it shares the model with others, so only one of them may be in use.

    Args:
        parts: the loaded model.
        config: its settings.
        scenario: how requests are served.
        num_kv_blocks: size of the KV cache.
        drafter: what drafts, if neither nobody nor the n-gram drafter does; the engine does not close it.
        grammars: of an earlier engine of the same model: to read the vocabulary anew takes a while.
    """
    engine = Engine.from_parts(
        replace(
            config,
            draft_budget="fixed",  # Drafts that do not pay must be right as well.
            max_num_seqs=scenario.max_num_seqs,
            prefill_chunk_tokens=config.prefill_chunk_tokens if scenario.max_num_seqs == 1 else _PREFILL_CHUNK_TOKENS,
            enable_prefix_cache=scenario.has_prefix_cache,
            num_speculative_tokens=max(scenario.lookaheads),
            drafter="ngram" if scenario.drafts == "ngram" else "off",
        ),
        replace(parts, runner=_SmallPool(parts.runner, num_kv_blocks)),
        drafter=drafter,
    )
    engine.grammars = grammars or engine.grammars
    return engine


def serve(
    engine: Engine,
    requests: Iterable[Request],
    on_end: Callable[[], None],
    after_round: Callable[[Mapping[str, Served]], None] = lambda served: None,
) -> tuple[dict[str, Served], int]:
    """Serve requests, `max_num_seqs` at a time; one arrives in a round, so that prefills meet decoding sequences.

    Args:
        engine: without work.
        requests: in order of arrival.
        on_end: called when a request has ended.
        after_round: called with what was served until then.

    Returns:
        What each request produced, and how often one was preempted.
    """
    waiting = deque(requests)
    served: dict[str, Served] = {}
    num_preempted = num_open = 0
    while waiting or engine.has_work:
        if waiting and num_open < engine.config.max_num_seqs:
            served[waiting[0].request_id] = Served()
            engine.add(waiting.popleft())
            num_open += 1
        for output in engine.step():
            served[output.request_id].take(output)
            if output.finish_reason is not None:
                num_open -= 1
                on_end()
        num_preempted += engine.last_step.num_preempted
        after_round(served)
    engine.check_integrity()
    return served, num_preempted
