"""The engines that `outrider calibrate` measures: one with drafts of a fixed length, one that chooses, on one model."""

import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cluster.config import DraftConfig
from cluster.engine.budget import DraftCost
from cluster.engine.drafters.base import Drafter
from cluster.engine.drafters.best_draft import BestDraft
from cluster.engine.drafters.draft_ahead import DraftModel
from cluster.engine.drafters.draft_build import build_draft_beside
from cluster.engine.drafters.draft_model import DraftModelDrafter
from cluster.engine.drafters.draft_source import draft_memory_bytes
from cluster.engine.drafters.factory import build_drafter
from cluster.engine.drafters.step_cost import TableCost
from cluster.engine.engine import Engine
from cluster.engine.model_input import ModelInput
from cluster.engine.model_runner import ModelRunner
from cluster.engine.startup import EngineParts, available_threads, load_parts, measure_pass_times, set_num_threads
from cluster.engine.step_time import StepTimeModel, StepTimes
from cluster.errors import ConfigError, LoadError
from deployments.calibrate_drafter import GaugedDrafter, Ledger
from deployments.draft_client import DraftClientConfig
from deployments.drafter_process import NODE_ID, DrafterProcess, drafter_process
from deployments.engine_build import build_client, measure
from deployments.layout import LayoutKind, NodeShare, choose_layout, plan_threads
from deployments.pairing import candidates_of
from deployments.verifier_config import VerifierConfig

if TYPE_CHECKING:
    from deployments.app import AppArgs

_CONNECT_TIMEOUT_S = 20.0


class SharedRunner:
    """A share of a runner's KV blocks, so that two engines can hold sequences at once. Only one of them runs a pass.

    Args:
        runner: the model.
        first_block: of the share.
        num_kv_blocks: of the share.
    """

    def __init__(self, runner: ModelRunner, *, first_block: int, num_kv_blocks: int) -> None:
        self.vocab_size, self.block_size, self.max_model_len = (
            runner.vocab_size,
            runner.block_size,
            runner.max_model_len,
        )
        self.dtype, self.numerics, self.num_kv_blocks = runner.dtype, runner.numerics, num_kv_blocks
        self._runner, self._first_block = runner, first_block

    def forward(self, batch: ModelInput) -> Any:
        """Pass it on, at the blocks of the share; returns the runner's logits."""
        first = self._first_block
        slots, blocks = batch.slot_mapping + first * self.block_size, batch.block_tables + first
        return self._runner.forward(replace(batch, slot_mapping=slots, block_tables=blocks))

    def close(self) -> None:
        """Nothing to release: whoever loaded the runner closes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engines:
    """Two engines on one model.

    Attributes:
        fixed: drafts as long as `gauge` says, whatever it costs.
        chosen: decides by itself, as in `outrider serve`.
        gauge: in front of the first one's drafter.
        num_kv_tokens: KV capacity of each.
    """

    fixed: Engine
    chosen: Engine
    gauge: GaugedDrafter
    num_kv_tokens: int


class Workbench:
    """A target with its source of drafts, once loaded; everything is gone at the end of the `with` block.

    Args:
        args: the application's arguments.
        max_tokens: longest fixed draft.
        num_kv_tokens: KV capacity that each of two engines needs.

    Attributes:
        parts: the target.
        drafter: who drafts: actor, local or ngram.
        num_threads: of the target's forward pass.
        config: of both engines, but for how they draft.
    """

    def __init__(self, args: "AppArgs", *, max_tokens: int, num_kv_tokens: int) -> None:
        if args.effective_drafter == "off" or max_tokens == 0:
            allowed = "a source of drafts: without one there is nothing to calibrate"
            raise ConfigError(field="drafter", value="off", allowed=allowed)
        size = args.engine.block_size
        kv_tokens = max(args.engine.kv_cache_tokens, 2 * -(-num_kv_tokens // size) * size)
        self.config = replace(args.engine, kv_cache_tokens=kv_tokens, calibration=None)
        if args.effective_drafter == "ngram":
            self.config = replace(self.config, drafter="ngram")
        self._args, self._max_tokens = args, max_tokens
        self._draft = replace(args.draft, model=args.draft_model)
        self._stack = ExitStack()
        self._process: DrafterProcess | None = None
        self.parts: EngineParts
        self.drafter: LayoutKind
        self.num_threads: int

    def __enter__(self) -> "Workbench":
        """Nothing is loaded yet."""
        return self

    def load(self) -> None:
        """Load the target, and settle who drafts.

        Raises:
            ConfigError: a setting does not fit the model or the machine.
            LoadError: a model is refused or damaged.
        """
        with ExitStack() as stack:
            wanted = self._args.effective_drafter
            memory = None
            if wanted in ("auto", "local") and self._draft.model is not None:
                memory = draft_memory_bytes(self._draft.model, kv_cache_tokens=2 * self._draft.kv_cache_tokens)
            self.parts = load_parts(self.config, memory)
            stack.callback(self.parts.runner.close)
            self.drafter = self._choose() if wanted == "auto" else wanted
            self.num_threads = self._num_threads()
            set_num_threads(self.parts.runner, self.num_threads)
            if self.drafter == "actor":
                draft = replace(self._draft, num_speculative_tokens=self._longest_draft)
                self._process = stack.enter_context(drafter_process(self.config, draft))
            self._stack = stack.pop_all()

    def __exit__(self, *_: object) -> None:
        """Release models and processes."""
        self._stack.close()

    def engines(self, times: StepTimes, ledger: Ledger) -> Engines:
        """Two engines without work, each with half of the KV cache. Called once.

        Args:
            times: what the second one decides by.
            ledger: counts the drafts of the first one.
        """
        longest = self._max_tokens
        gauge = GaugedDrafter(self._open_drafter(None, lookup_tokens=longest, model_tokens=longest), ledger)
        chooses, own = DraftCost(model=StepTimeModel(assumed=times)), self.config.num_speculative_tokens
        drafter = self._open_drafter(
            chooses, lookup_tokens=own, model_tokens=min(own, self._draft.num_speculative_tokens)
        )
        for opened in (gauge, drafter):
            self._stack.callback(opened.close)
        fixed = replace(self.config, draft_budget="fixed", num_speculative_tokens=self._max_tokens)
        return Engines(
            fixed=Engine.from_parts(fixed, self._share(0), draft_cost=DraftCost.free(), drafter=gauge),
            chosen=Engine.from_parts(self.config, self._share(1), draft_cost=chooses, drafter=drafter),
            gauge=gauge,
            num_kv_tokens=self.parts.runner.num_kv_blocks // 2 * self.parts.runner.block_size,
        )

    @property
    def _longest_draft(self) -> int:
        return max(self._max_tokens, self.config.num_speculative_tokens)

    def _share(self, index: int) -> EngineParts:
        half = self.parts.runner.num_kv_blocks // 2
        return replace(self.parts, runner=SharedRunner(self.parts.runner, first_block=index * half, num_kv_blocks=half))

    def _choose(self) -> LayoutKind:
        """As a verifier does at start-up; see `engine_build`."""
        model = self._load_model(self._draft)
        config = VerifierConfig(engine=self.config, drafter="auto", draft=self._draft)
        try:
            layout = choose_layout(measure(config, self._node(), self.parts.runner, model.runner))
        finally:
            model.close_model()
        return layout.kind

    def _node(self) -> NodeShare:
        return NodeShare(node_id=NODE_ID, num_drafters=1)

    def _num_threads(self) -> int:
        plan = plan_threads(
            num_cores=available_threads(),
            engine_threads=self.config.num_threads,
            node=replace(self._node(), num_drafters=int(self.drafter == "actor")),
            drafter_threads=self._draft.num_threads,
        )
        return plan.verifier

    def _load_model(self, draft: DraftConfig) -> DraftModel:
        assert draft.model is not None
        return build_draft_beside(draft.model, draft, self.parts)

    def _open_drafter(self, cost: DraftCost | None, *, lookup_tokens: int, model_tokens: int) -> Drafter:
        """The source of drafts of one engine; prompt lookup stands beside a draft model, as in `outrider serve`.

        Args:
            cost: what drafts cost; None where they are as long as they may be.
            lookup_tokens: longest draft of prompt lookup.
            model_tokens: longest draft of a draft model.
        """
        lookup = build_drafter(self.config.drafter, max_draft_tokens=lookup_tokens)
        if self.drafter == "ngram":
            assert lookup is not None
            return lookup
        if self.drafter == "actor":
            client = self._connect(model_tokens)
            return client if lookup is None else BestDraft((client, None), (lookup, None))
        model = self._load_model(self._draft)
        set_num_threads(model.runner, self.num_threads)
        passes = None if cost is None else TableCost(measure_pass_times(model.runner))
        local = DraftModelDrafter(model, max_draft_tokens=model_tokens, cost=cost or DraftCost.free(), pass_cost=passes)
        return local if lookup is None else BestDraft((lookup, None), (local, local.promise))

    def _connect(self, max_tokens: int) -> Drafter:
        """A verifier's end of the drafter's process."""
        assert self._process is not None
        config = DraftClientConfig(num_speculative_tokens=max_tokens, draft_wait_s=self._draft.draft_wait_s)
        client = build_client(self.parts, config, node_id=NODE_ID, name="calibrate")
        client.set_peers(candidates_of([self._process.record]))
        end_s = time.monotonic() + _CONNECT_TIMEOUT_S
        while not client.stats().is_connected:
            client.propose([])  # what is told between rounds is read by the next one
            time.sleep(0.01)
            if time.monotonic() > end_s:
                client.close()
                raise LoadError("the drafter's process did not answer")
        return client
