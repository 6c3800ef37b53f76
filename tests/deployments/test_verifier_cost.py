"""What a verifier's scrape says about cost: time by role, tokens and time by domain, all of it adding up."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from cluster.clock import Clock, ManualClock
from cluster.telemetry.cost import CostConfig, Resources
from cluster.types import Role
from deployments import wire
from deployments.replica_resources import Holding
from deployments.verifier import VerifierCore
from deployments.verifier_config import RoleSeats, VerifierConfig
from tests.cluster.engine.engine_harness import make_engine, random_prompt, request
from tests.deployments.fake_engine import FakeEngine

pytestmark = pytest.mark.anyio

CONFIG = VerifierConfig(
    max_num_seqs_by_role=RoleSeats(speculative=4, batch=32), cost=CostConfig(usd_per_cpu_hour=3600.0)
)


@asynccontextmanager
async def _core(engine: Any, clock: Clock | None = None) -> AsyncIterator[VerifierCore]:
    holding = Holding(resources=Resources(num_cpus=2))
    core = VerifierCore(CONFIG, lambda: engine, clock=clock, holding=holding)
    await core.start()
    try:
        yield core
    finally:
        await core.stop()


def _values(core: VerifierCore, name: str) -> dict[tuple[str, ...], float]:
    """Samples of a metric by the values of its own labels, in the order of their names."""
    core.metrics()
    found = {}
    for family in core._recorder.metrics.registry.collect():
        for sample in family.samples:
            if sample.name == name:
                own = sorted(set(sample.labels) - {"model_name", "engine"})
                found[tuple(sample.labels[label] for label in own)] = sample.value
    return found


async def _serve(core: VerifierCore, *names_and_domains: tuple[str, str]) -> None:
    for name, domain in names_and_domains:
        asked = replace(request(name, random_prompt(len(name), 40), max_tokens=20, ignore_eos=True), domain=domain)
        async for _ in core.generate(wire.encode(wire.GenerateCall(requests=(asked,)))):
            pass


async def test_a_replica_is_paid_for_from_its_start_and_in_the_role_that_it_has() -> None:
    clock = ManualClock()
    async with _core(FakeEngine(clock=clock), clock) as core:
        clock.advance(3.0)
        await core.set_role(Role.BATCH)
        clock.advance(1.0)
        assert _values(core, "outrider_role_seconds_total") == {("speculative",): 3.0, ("batch",): 1.0}
        clock.advance(1.0)
        assert _values(core, "outrider_cost_usd_total") == {("speculative",): 6.0, ("batch",): 4.0}
        assert _values(core, "outrider_energy_joules_total") == {}


async def test_what_domains_were_given_is_what_the_engine_generated() -> None:
    async with _core(make_engine(max_num_seqs=4)) as core:
        await _serve(core, ("a", "code_synthesis"), ("bb", "general_chat"), ("ccc", "code_synthesis"))
        await core.set_role(Role.BATCH)
        await _serve(core, ("dddd", "general_chat"))
        tokens = _values(core, "outrider_domain_tokens_total")
        assert {key: value for key, value in tokens.items() if value} == {
            ("code_synthesis", "speculative"): 40.0,
            ("general_chat", "speculative"): 20.0,
            ("general_chat", "batch"): 20.0,
        }
        assert _values(core, "vllm:generation_tokens_total") == {(): 80.0}
        drafted = _values(core, "outrider_domain_draft_tokens_total")
        assert sum(drafted.values()) == _values(core, "vllm:spec_decode_num_draft_tokens_total")[()] > 0
        rejected = sum(value for (*_, result, _role), value in drafted.items() if result == "rejected")
        assert rejected == _values(core, "outrider_wasted_draft_tokens_total")[()]


async def test_the_time_of_rounds_is_divided_without_rest() -> None:
    async with _core(make_engine(max_num_seqs=4)) as core:
        await _serve(core, ("a", "code_synthesis"), ("bb", "general_chat"))
        for name in ("busy", "wasted", "counterfactual"):
            part = "domain_seconds" if name == "busy" else f"domain_{name}_seconds"
            whole = sum(_values(core, f"outrider_{name}_seconds_total").values())
            assert sum(_values(core, f"outrider_{part}_total").values()) == pytest.approx(whole)
        busy = _values(core, "outrider_busy_seconds_total")
        assert busy[("speculative",)] == pytest.approx(_values(core, "outrider_step_seconds_sum")[()])
        assert busy[("batch",)] == 0
