"""The ways to draft that `run_ahead` compares, around one target: in the verifier, asked in turn, ahead of the verdict.

Each has one core and one thread for the verifier, and a drafter's process has one for itself where there are two.
"""

import os
import time
from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Seq
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from cluster.config import DraftConfig, EngineConfig
from cluster.engine.budget import DraftCost
from cluster.engine.drafters.base import Draft, Wanted
from cluster.engine.drafters.draft_build import build_draft_beside
from cluster.engine.drafters.draft_model import DraftModelDrafter
from cluster.engine.drafters.step_cost import TableCost
from cluster.engine.engine import Engine
from cluster.engine.plan import ScheduledSequence
from cluster.engine.sequence import Sequence
from cluster.engine.startup import EngineParts, load_parts, measure_draft_cost, measure_pass_times
from deployments.discovery import DrafterRecord
from deployments.draft_client import DraftClient, DraftClientConfig
from deployments.drafter_process import NODE_ID, DrafterProcess, drafter_process
from deployments.engine_build import build_client
from deployments.pairing import candidates_of

NUM_TOKENS = 4
_FAN_OUT = 4
_KV_TOKENS = 16_384
_WELCOME_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cores:
    """Where the two actors run.

    Attributes:
        verifier: its cores.
        drafter: the drafter's.
    """

    verifier: tuple[int, ...]
    drafter: tuple[int, ...]

    @property
    def are_apart(self) -> bool:
        """True when neither takes time from the other."""
        return not set(self.verifier) & set(self.drafter)


def split_cores(allowed: Iterable[int]) -> Cores:
    """The first core for the verifier, the second for the drafter; one for both where no more are allowed."""
    first, *others = sorted(allowed)
    return Cores(verifier=(first,), drafter=tuple(others[:1]) or (first,))


def pin() -> Cores:
    """Keep this process, the verifier, on its core from now on; to be called before it starts any thread."""
    cores = split_cores(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores.verifier)
    return cores


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A loaded target.

    Attributes:
        config: what was loaded.
        parts: its model.
        engine: around it, without a drafter.
        cost: what draft rows cost in it.
    """

    config: EngineConfig
    parts: EngineParts
    engine: Engine
    cost: DraftCost


def load_target(model: str) -> Target:
    """Load a target for one thread; without a prefix cache, so that repeated prompts count in full."""
    config = EngineConfig(
        model=model,
        num_threads=1,
        kv_cache_tokens=_KV_TOKENS,
        enable_prefix_cache=False,
        drafter="off",
        num_speculative_tokens=NUM_TOKENS,
    )
    parts = load_parts(config)
    cost = measure_draft_cost(parts.runner)
    engine = Engine.from_parts(config, parts, draft_cost=cost)
    return Target(config=config, parts=parts, engine=engine, cost=cost)


def start_drafter(
    target: Target, draft: str, cores: Cores, *, fan_out: int = _FAN_OUT, module: str = "deployments.drafter_process"
) -> AbstractContextManager[DrafterProcess]:
    """A drafter in a process and on a core of its own."""
    return drafter_process(target.config, _draft_config(draft, fan_out), cores=cores.drafter, module=module)


def local_drafter(target: Target, draft: str) -> tuple[DraftModelDrafter, DraftCost]:
    """The draft model in this process, which drafts between two passes; and what its drafts cost."""
    model = build_draft_beside(draft, _draft_config(draft, 1), target.parts)
    passes = measure_pass_times(model.runner)
    local = DraftModelDrafter(model, max_draft_tokens=NUM_TOKENS, cost=target.cost, pass_cost=TableCost(passes))
    return local, replace(target.cost, token_s=passes.forward_s(1))


def ahead_client(target: Target, record: DrafterRecord) -> DraftClient:
    """The verifier's end of a drafter that runs ahead, once it is welcome there.

    Raises:
        RuntimeError: the drafter does not answer.
    """
    config = DraftClientConfig(num_speculative_tokens=NUM_TOKENS)
    client = build_client(target.parts, config, node_id=NODE_ID, name="benchmark", cost=target.cost)
    client.set_peers(candidates_of([record]))
    deadline_s = time.monotonic() + _WELCOME_S
    while not client.stats().is_connected:
        if time.monotonic() > deadline_s:
            raise RuntimeError("the drafter did not answer")
        time.sleep(0.01)
        client.begin_round(())
    return client


class PaddingDrafter:
    """Drafts of every length in turn that mean nothing: rounds with as many rows, and nobody who drafts."""

    name = "padding"

    def __init__(self) -> None:
        self._num_rounds = 0

    def propose(self, wanted: Seq[Wanted]) -> Mapping[str, Draft]:
        """The last token, repeated: 0, 1, .. NUM_TOKENS times the sequences in all, spread evenly."""
        num_tokens = self._num_rounds % (NUM_TOKENS * len(wanted) + 1)
        self._num_rounds += 1
        drafts = {}
        for index, want in enumerate(wanted):
            length = min((num_tokens + index) // len(wanted), want.max_tokens)
            drafts[want.sequence.request_id] = Draft(
                token_ids=(want.sequence.token_ids[-1],) * length, source=self.name
            )
        return drafts

    def begin_round(self, items: Seq[ScheduledSequence]) -> None:
        """Nothing to do."""

    def observe(self, sequence: Sequence, draft: Draft, num_accepted: int) -> None:
        """Nothing to learn."""

    def forget(self, request_id: str) -> None:
        """Nothing to drop."""

    def close(self) -> None:
        """Nothing to release."""


def _draft_config(draft: str, fan_out: int) -> DraftConfig:
    return DraftConfig(
        model=draft, num_speculative_tokens=NUM_TOKENS, max_fan_out=fan_out, kv_cache_tokens=_KV_TOKENS, num_threads=1
    )
