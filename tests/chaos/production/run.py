"""One run: undisturbed answers, a calm round, the storm, a calm round again, and what is left."""

import asyncio
import os
import random
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.production.application import Sizes, Watch, application, processes
from tests.chaos.production.balance import Balance, take_balance
from tests.chaos.production.calls import CALLS, stable
from tests.chaos.production.clients import Load, Outcome
from tests.chaos.production.killer import RECOVERY_S, Kill, Killer
from tests.chaos.production.report import Report
from tests.e2e.conftest import Outrider
from tests.e2e.reference import undisturbed

START_S = 60.0
"""For replicas that come after the first of their kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Of a run.

    Attributes:
        storm_s: how long replicas are killed.
        mean_pause_s: between two kills.
        num_clients: at once.
        seed: of calls and kills.
        sizes: of the deployments.
    """

    storm_s: float
    mean_pause_s: float = 4.0
    num_clients: int = 6
    seed: int = 0
    sizes: Sizes = field(default_factory=Sizes)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    outcomes: Sequence[Outcome]
    kills: Sequence[Kill]
    resumes: Mapping[str, float]
    not_whole: Sequence[str]
    before: Balance
    after: Balance


def chaos(model: Path, plan: Plan, *, command: str) -> Report:
    """Start the application, attack it, stop it, and tell.

    Args:
        model: folder; see `application`.
        plan: of the run.
        command: that was given, for the report.
    """
    expected = expected_answers(model)
    started_s = time.monotonic()
    with application(model, plan.sizes) as server:
        say(f"the application runs after {time.monotonic() - started_s:.0f} s")
        seen = asyncio.run(_attack(server, plan, expected))
    return Report(
        title=f"Chaos: {plan.storm_s / 60:g} minutes",
        command=command,
        about={
            "replicas": ", ".join(f"{plan.sizes.of(kind)} x {kind}" for kind in ("verifier", "drafter", "gateway")),
            "clients": str(plan.num_clients),
            "mean pause between kills": f"{plan.mean_pause_s:g} s",
            "seed": str(plan.seed),
            "machine": f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the end",
        },
        sizes=plan.sizes,
        outcomes=seen.outcomes,
        kills=seen.kills,
        resumes=seen.resumes,
        not_whole=seen.not_whole,
        before=seen.before,
        after=seen.after,
        left_over=list(processes(server.marker).values()),
    )


def expected_answers(model: Path) -> dict[str, object]:
    """The undisturbed answer to each call, as far as it must always be the same."""
    answers = undisturbed(model, {call.name: (call.path, call.body) for call in CALLS})
    return {
        call.name: stable(call, answer.status_code, answer.json() if call.path != "/metrics" else answer.text)
        for call in CALLS
        for answer in (answers[call.name],)
    }


async def _attack(server: Outrider, plan: Plan, expected: Mapping[str, object]) -> _Seen:
    watch, load = Watch(server=server, sizes=plan.sizes), Load(url=server.url, expected=expected, seed=plan.seed)
    killer = Killer(watch=watch, rng=random.Random(plan.seed), mean_pause_s=plan.mean_pause_s)
    watching = asyncio.create_task(watch.run())
    try:
        if late := await watch.wait_whole(START_S):
            raise RuntimeError(f"never ready: {', '.join(late)}")
        await load.ask_everything()
        before = await take_balance(server)
        say(f"{len(load.outcomes)} calm requests; the storm begins")
        await _storm(load, killer, plan)
        not_whole = await watch.wait_whole(RECOVERY_S)
        say(f"{len(load.outcomes)} requests, {len(killer.kills)} kills; calm again")
        await load.ask_everything()
        after = await take_balance(server)
    finally:
        watch.stop()
        await watching
    return _Seen(
        outcomes=load.outcomes,
        kills=killer.kills,
        resumes=watch.resumes,
        not_whole=not_whole,
        before=before,
        after=after,
    )


async def _storm(load: Load, killer: Killer, plan: Plan) -> None:
    clients = asyncio.create_task(load.run(plan.num_clients))
    try:
        await killer.run(plan.storm_s)
    finally:
        load.stop()
        await clients


def say(text: str) -> None:
    """One line on standard error."""
    sys.stderr.write(f"  {text}\n")
    sys.stderr.flush()
