"""A verifier that changes its role, with a drafter in a process of its own, over a real channel."""

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from cluster.config import DraftConfig, EngineConfig
from cluster.types import Role
from tests.chaos.test_drafter_cases import DRAFT_WAIT_S, jobs
from tests.chaos.verifier_process import Served, Verifier
from tests.chaos.verifiers import verifier_here
from tests.chaos.watched_drafter import WatchedDrafter, watched_drafter

pytestmark = [pytest.mark.chaos, pytest.mark.slow]


@pytest.fixture(scope="module")
def drafter(
    engine_config: EngineConfig, draft_config: DraftConfig, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[WatchedDrafter]:
    """Drafts what the target says."""
    with watched_drafter(engine_config, draft_config, tmp_path_factory.mktemp("roles")) as drafter:
        yield drafter


def accepted(served: Served, begin: int, end: int) -> float:
    """Accepted share of the draft tokens of some rounds."""
    return sum(served.accepted[begin:end]) / max(1, sum(served.drafted[begin:end]))


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_the_drafter_is_told_to_let_go_and_drafts_as_well_when_the_role_is_back(
    engine_config: EngineConfig, drafter: WatchedDrafter, temperature: float
) -> None:
    """Case A10, with a change of role instead of a burst."""
    work = jobs(4, 450, temperature=temperature)
    with verifier_here(replace(engine_config, num_speculative_tokens=0), []) as plain:
        expected = plain.run(work).texts
    served = Served()
    with verifier_here(engine_config, [drafter.running.record], forward_s=0.01, draft_wait_s=DRAFT_WAIT_S) as verifier:

        def rounds(number: int) -> tuple[int, int]:
            begin = len(served.drafted)
            for _ in range(number):
                verifier._round(work, 64, served)
            return begin, begin + number

        before = rounds(30)
        assert drafter.wait_for(lambda sight: sight.num_sequences == 4)
        flipped_s = time.monotonic()
        flip(verifier, Role.BATCH)
        assert drafter.wait_for(lambda sight: sight.is_empty).at_s - flipped_s < 1.0
        begin, end = rounds(40)
        assert sum(served.drafted[begin:end]) == 0
        assert all(sight.is_empty for sight in drafter.sights() if sight.at_s > time.monotonic() - 0.05)
        time.sleep(2.0)  # Longer than a drafter may be silent.
        flip(verifier, Role.SPECULATIVE)
        rounds(2)
        after = rounds(30)
        # How long drafts are depends on who else uses the cores, so only their number is a matter of the role.
        assert min(sum(map(bool, served.drafted[slice(*part)])) for part in (before, after)) >= 28
        assert accepted(served, *after) > accepted(served, *before) - 0.05
        for number in range(50):
            flip(verifier, Role.BATCH if number % 2 == 0 else Role.SPECULATIVE)
        while len(served.reasons) < len(work):
            rounds(1)
        assert verifier._client is not None
        stats = verifier._client.stats()
        assert not stats.is_quarantined
        assert sum(stats.transitions[reason] for reason in ("silent", "late", "wrong", "malformed")) == 0
        assert served.texts == expected
        assert served.num_preempted == 0
        drafter.wait_for(lambda sight: sight.is_empty)


def flip(verifier: Verifier, role: Role) -> None:
    verifier._engine.set_role(role, max_num_seqs=16)
    verifier._engine.check_integrity()
