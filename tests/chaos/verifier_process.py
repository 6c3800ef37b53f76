"""A verifier in a process of its own: a real engine and its client of a drafter, told by JSON lines what to do.

Reads its settings, then pieces of work, a line each, and answers every line with one; `verifiers.py` starts such
processes. Its target takes as long as it is told: it sleeps, which costs no core.
"""

import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from cluster.config import EngineConfig
from cluster.engine.budget import DraftCost
from cluster.engine.engine import Engine
from cluster.engine.model_input import ModelInput
from cluster.engine.model_runner import ModelRunner
from cluster.engine.startup import load_parts, measure_draft_cost
from cluster.engine.step_time import StepTimes
from cluster.types import Request, SamplingParams
from deployments.discovery import DrafterRecord
from deployments.draft_client import DraftClient, DraftClientConfig
from deployments.drafter_process import NODE_ID
from deployments.engine_build import build_client
from deployments.pairing import candidates_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One request.

    Attributes:
        request_id: names it.
        prompt: its token ids.
        num_tokens: output tokens; EOS does not end it.
        temperature: 0 is greedy.
        seed: of its noise.
        first_round: round of the work from which on it is there.
        abort_round: round in which its client goes; None for never.
    """

    request_id: str
    prompt: tuple[int, ...]
    num_tokens: int
    temperature: float = 0.0
    seed: int = 0
    first_round: int = 0
    abort_round: int | None = None

    def request(self) -> Request:
        """As the engine takes it."""
        sampling = SamplingParams(
            max_tokens=self.num_tokens, seed=self.seed, temperature=self.temperature, ignore_eos=True
        )
        return Request(request_id=self.request_id, prompt_token_ids=tuple(self.prompt), sampling=sampling)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What became of a piece of work; counts are of this work alone.

    Attributes:
        texts: output token ids by request.
        reasons: why each request ended.
        lookups: what became of the lookups for drafts, by result.
        fallbacks: sequences that had to do without, by reason.
        transitions: changes of what the verifier thinks of its drafter, by reason.
        drafted: draft tokens verified, by round.
        accepted: of them.
        num_preempted: sequences that lost their KV blocks.
        num_foreign_ids: token ids in the target's input that are none.
        rss_bytes: memory of the process at the end.
    """

    texts: Mapping[str, list[int]]
    reasons: Mapping[str, str]
    lookups: Mapping[str, int]
    fallbacks: Mapping[str, int]
    transitions: Mapping[str, int]
    drafted: list[int]
    accepted: list[int]
    num_preempted: int
    num_foreign_ids: int
    rss_bytes: int

    @property
    def num_lookups(self) -> int:
        """Lookups of sequences that the drafter followed and was asked about."""
        return sum(self.lookups.values())

    @property
    def hit_ratio(self) -> float:
        """Hits, as a share of all lookups."""
        return self.lookups["hit"] / max(1, self.num_lookups)

    @property
    def acceptance_ratio(self) -> float:
        """Accepted share of the draft tokens."""
        return sum(self.accepted) / max(1, sum(self.drafted))


class PacedRunner:
    """A target whose pass takes longer, and that notes what no target should be fed with.

    Args:
        runner: the target.
        forward_s: seconds to sleep in each pass.
        step_ratios: (rows, sleep as a multiple of `forward_s`), straight lines between; empty for the same at any size.
    """

    def __init__(self, runner: ModelRunner, forward_s: float, step_ratios: Sequence[tuple[int, float]] = ()) -> None:
        self.vocab_size, self.num_kv_blocks, self.block_size = (
            runner.vocab_size,
            runner.num_kv_blocks,
            runner.block_size,
        )
        self.max_model_len, self.dtype, self.numerics = runner.max_model_len, runner.dtype, runner.numerics
        self.num_foreign_ids = 0
        self._runner = runner
        self._sleep = StepTimes(knots=tuple((rows, ratio * forward_s) for rows, ratio in step_ratios or ((1, 1.0),)))

    def forward(self, batch: ModelInput) -> torch.Tensor:
        ids = batch.token_ids
        self.num_foreign_ids += int(((ids < 0) | (ids >= self.vocab_size)).sum())
        logits_NV = self._runner.forward(batch)
        time.sleep(self._sleep.forward_s(len(ids)))
        return logits_NV

    def close(self) -> None:
        self._runner.close()


@dataclass(slots=True)
class Served:
    """A piece of work in progress; see `Report`."""

    texts: dict[str, list[int]] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    drafted: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)
    num_added: int = 0
    num_preempted: int = 0


class Verifier:
    """The engine, its target and its client.

    Args:
        settings: as `verifiers.settings` makes them.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        config = EngineConfig(**settings["engine"])
        parts = load_parts(config)
        self._client: DraftClient | None = None
        self._runner = PacedRunner(parts.runner, settings["forward_s"], settings["step_ratios"])
        self._cost = measure_draft_cost(self._runner, config) if settings["step_ratios"] else DraftCost()
        if settings["records"]:
            self._client = build_client(
                parts,
                DraftClientConfig(num_speculative_tokens=4, draft_wait_s=settings["draft_wait_s"]),
                node_id=NODE_ID,
                name=settings["name"],
                cost=self._cost,
            )
            self._client.set_peers(candidates_of([DrafterRecord(**each) for each in settings["records"]]))
        self._engine = Engine.from_parts(
            config, replace(parts, runner=self._runner), draft_cost=self._cost, drafter=self._client
        )

    def connect(self, timeout_s: float = 20.0) -> None:
        """Wait until a drafter has welcomed this verifier, if there is any."""
        end_s = time.monotonic() + timeout_s
        while self._client is not None and not self._client.stats().is_connected:
            assert time.monotonic() < end_s, "no drafter answered"
            self._client.propose([])
            time.sleep(0.01)

    def run(self, jobs: Sequence[Job], batch: int = 64) -> Report:
        """Serve all jobs, at most `batch` at a time, and say what happened."""
        before, num_foreign_ids, served = self._counts(), self._runner.num_foreign_ids, Served()
        while len(served.reasons) < len(jobs):
            self._round(jobs, batch, served)
        self._engine.check_integrity()
        lookups, fallbacks, transitions = (
            {name: count - old[name] for name, count in new.items()}
            for new, old in zip(self._counts(), before, strict=True)
        )
        return Report(
            texts=served.texts,
            reasons=served.reasons,
            lookups=lookups,
            fallbacks=fallbacks,
            transitions=transitions,
            drafted=served.drafted,
            accepted=served.accepted,
            num_preempted=served.num_preempted,
            num_foreign_ids=self._runner.num_foreign_ids - num_foreign_ids,
            rss_bytes=rss_bytes(os.getpid()),
        )

    def _round(self, jobs: Sequence[Job], batch: int, served: "Served") -> None:
        number = len(served.drafted)
        while served.num_added < len(jobs) and served.num_added - len(served.reasons) < batch:
            if jobs[served.num_added].first_round > number:
                break
            self._engine.add(jobs[served.num_added].request())
            served.num_added += 1
        for job in jobs[: served.num_added]:
            if job.abort_round == number:
                self._engine.abort(job.request_id)
        for output in self._engine.step():
            served.texts.setdefault(output.request_id, []).extend(output.token_ids)
            if output.finish_reason is not None:
                served.reasons[output.request_id] = output.finish_reason.value
        stats = self._engine.last_step
        served.drafted.append(stats.num_draft_tokens)
        served.accepted.append(sum(stats.accepted_per_position))
        served.num_preempted += stats.num_preempted

    @property
    def num_kept(self) -> int:
        """Sequences that the client keeps anything for."""
        return 0 if self._client is None else self._client.num_sequences

    def close(self) -> None:
        """End the engine and the connection."""
        self._engine.close()

    def _counts(self) -> tuple[Mapping[str, int], Mapping[str, int], Mapping[str, int]]:
        if self._client is None:
            return {}, {}, {}
        stats = self._client.stats()
        return stats.lookups, stats.fallbacks, stats.transitions


def rss_bytes(pid: int) -> int:
    """Memory that a process holds."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    """Serve what standard input says until it closes."""
    verifier = Verifier(json.loads(sys.stdin.readline()))
    verifier.connect()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        work = json.loads(line)
        report = verifier.run([Job(**each) for each in work["jobs"]], work["batch"])
        sys.stdout.write(json.dumps(asdict(report)) + "\n")
        sys.stdout.flush()
    verifier.close()


if __name__ == "__main__":
    main()
