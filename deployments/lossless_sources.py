"""Drafts of a draft model for `outrider verify-lossless`: from a drafter actor's process, and from the verifier's own.

The verifier waits for the actor as long as it may: what is checked is tokens, not speed.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from types import TracebackType
from typing import Self

from cluster.config import DraftConfig, EngineConfig
from cluster.engine.budget import DraftCost
from cluster.engine.drafters.draft_build import build_draft_model
from cluster.engine.drafters.draft_model import DraftModelDrafter
from cluster.engine.drafters.draft_source import DraftWeights, draft_memory_bytes, load_draft_model
from cluster.engine.drafters.head_build import build_head_drafters
from cluster.engine.drafters.head_drafter import HeadDrafter
from cluster.engine.drafters.heads import head_kind
from cluster.engine.lossless.cases import LOOKAHEADS
from cluster.engine.lossless.sources import DraftSource
from cluster.engine.memory_plan import DraftMemory
from cluster.engine.startup import EngineParts, available_threads
from deployments.draft_client import DraftClient, DraftClientConfig
from deployments.draft_health import HealthConfig
from deployments.drafter_process import NODE_ID, DrafterProcess, drafter_process
from deployments.engine_build import build_client
from deployments.pairing import candidates_of

_CONNECT_TIMEOUT_S = 20.0
_TREE_NODES = 16
_ACTOR, _NAME = "deployments.lossless_actor", "verify-lossless"


def draft_memory(draft: DraftConfig | None) -> DraftMemory | None:
    """Memory of the draft model in the verifier's process; None without one, or where it cannot be known.

    Raises:
        LoadError: the folder is refused or incomplete.
    """
    if draft is None or draft.model is None:
        return None
    return draft_memory_bytes(draft.model, kv_cache_tokens=draft.kv_cache_tokens)


@contextmanager
def draft_sources(
    parts: EngineParts, engine: EngineConfig, draft: DraftConfig | None
) -> Iterator[Mapping[str, DraftSource]]:
    """What a draft model and heads can draft from, by name. The actor is gone at the end of the block.

    Args:
        parts: the verifier's.
        engine: names the target.
        draft: the draft model and the heads.

    Raises:
        LoadError: the draft model or a head is refused, or the actor did not come up.
    """
    heads = {} if draft is None else _head_sources(parts, engine, draft)
    if draft is None or draft.model is None:
        yield heads
        return
    # First here, where a wrong folder is refused in one line.
    loaded = load_draft_model(draft.model, parts.source, target_tokenizer=parts.tokenizer)
    with ActorDrafts(parts, engine, draft) as actor:
        yield {
            "drafter actor": DraftSource(open=actor.open, outage=actor),
            "draft model": DraftSource(open=lambda: _local_drafter(parts, loaded, draft)),
            **heads,
        }


class ActorDrafts:
    """A drafter actor that runs from `with` to the end of the block; `begin` and `end` make an outage of it.

    Args:
        parts: the verifier's.
        engine: names the target.
        draft: the draft model.
    """

    def __init__(self, parts: EngineParts, engine: EngineConfig, draft: DraftConfig) -> None:
        self._parts, self._engine, self._draft = parts, engine, draft
        self._running = ExitStack()
        self._actor: DrafterProcess | None = None
        self._client: DraftClient | None = None

    def __enter__(self) -> Self:
        """Start it."""
        self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it, however it does."""
        self._running.close()

    def open(self) -> DraftClient:
        """A verifier's end of it, connected."""
        config = DraftClientConfig(
            num_speculative_tokens=self._draft.num_speculative_tokens,
            draft_wait_s=1.0,
            # Neither a slow machine nor a draft model that guesses badly is a reason to do without drafts here.
            health=HealthConfig(max_late_ratio=1.0, min_acceptance_ratio=0.0),
        )
        self._client = build_client(self._parts, config, node_id=NODE_ID, name=_NAME, cost=DraftCost.free())
        self._connect()
        return self._client

    def begin(self) -> None:
        """Kill the process, as a crash or the kernel would."""
        assert self._actor is not None
        os.kill(self._actor.process.pid, signal.SIGKILL)
        self._actor.process.wait()

    def end(self) -> None:
        """Start another process, and tell the verifier of it as Serve would."""
        assert self._client is not None
        self._client.propose([])  # ends the last round, which must not seem to last as long as the start
        self._running.close()
        self._start()
        self._connect()

    def _start(self) -> None:
        self._actor = self._running.enter_context(drafter_process(self._engine, self._draft, module=_ACTOR))

    def _connect(self) -> None:
        """Let the client find the process. If it does not, nothing is drafted, and the report says so."""
        assert self._client is not None and self._actor is not None
        self._client.set_peers(candidates_of([self._actor.record]))
        end_s = time.monotonic() + _CONNECT_TIMEOUT_S
        while time.monotonic() < end_s:
            self._client.propose([])  # what is told between rounds is read by the next one
            if self._client.stats().is_connected:
                return
            time.sleep(0.01)


def _local_drafter(parts: EngineParts, loaded: DraftWeights, draft: DraftConfig) -> DraftModelDrafter:
    model = build_draft_model(loaded, draft, eos_token_ids=parts.eos_token_ids)
    return DraftModelDrafter(model, max_draft_tokens=draft.num_speculative_tokens, cost=DraftCost.free())


def _head_sources(parts: EngineParts, engine: EngineConfig, draft: DraftConfig) -> dict[str, DraftSource]:
    """Each head twice: its drafts are chains, or trees."""

    def opener(name: str, num_nodes: int) -> Callable[[], HeadDrafter]:
        return lambda: _head_drafter(parts, engine, replace(draft, heads=(name,), tree_nodes=num_nodes))

    return {
        f"head {head_kind(name)}{shape}": DraftSource(open=opener(name, num_nodes))
        for name in draft.heads
        for shape, num_nodes in (("", 0), (" tree", _TREE_NODES))
    }


def _head_drafter(parts: EngineParts, engine: EngineConfig, draft: DraftConfig) -> HeadDrafter:
    settings = replace(engine, draft_budget="fixed", num_speculative_tokens=max(LOOKAHEADS))
    num_threads = engine.num_threads or available_threads()
    (drafter,) = build_head_drafters(parts, settings, draft, cost=DraftCost.free(), num_threads=num_threads)
    return drafter
