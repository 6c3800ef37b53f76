"""One drafter and several verifiers, each in a process of its own, over a real channel.

Passes of target and draft model sleep for most of their time, so that what can be drafted in time depends little on
who else uses the cores.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from cluster.config import DraftConfig, EngineConfig
from tests.chaos.verifier_process import Job, Report, rss_bytes
from tests.chaos.verifiers import VerifierProcess, start, stopping
from tests.chaos.watched_drafter import Pace, WatchedDrafter, watched_drafter

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

FORWARD_S, DRAFT_WAIT_S = 0.15, 0.05
PACE = Pace(fixed_s=0.008, row_s=0.0005)
"""Of the draft model: five passes of 44 rows fit into one of the target, for all verifiers together."""

MAX_BEHIND = 0.15
NAMES = ("a", "b", "c")


def jobs(num_jobs: int, num_tokens: int, *, prompt_tokens: int = 30, first: int = 0) -> list[Job]:
    return [
        Job(request_id=f"r{i}", prompt=tuple((10 + 7 * i + j) % 500 + 3 for j in range(prompt_tokens)),
            num_tokens=num_tokens, seed=i)
        for i in range(first, first + num_jobs)
    ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fleet:
    """A drafter and its verifiers."""

    drafter: WatchedDrafter
    verifiers: Sequence[VerifierProcess]

    def serve(self, loads: Sequence[int], num_tokens: int) -> list[Report]:
        """Let all verifiers serve at once, each as many sequences as `loads` says."""
        for verifier, num_jobs in zip(self.verifiers, loads, strict=True):
            verifier.begin(jobs(num_jobs, num_tokens))
        return [verifier.report() for verifier in self.verifiers]


@pytest.fixture(scope="module")
def fleet(
    engine_config: EngineConfig, draft_config: DraftConfig, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Fleet]:
    """Three verifiers."""
    with watched_drafter(engine_config, draft_config, tmp_path_factory.mktemp("fleet"), pace=PACE) as drafter:
        started = [start_paced(drafter, engine_config, name) for name in NAMES]
        with stopping(*started) as verifiers:
            yield Fleet(drafter, verifiers)


def start_paced(drafter: WatchedDrafter, config: EngineConfig, name: str) -> VerifierProcess:
    return start(config, [drafter.running.record], name=name, forward_s=FORWARD_S, draft_wait_s=DRAFT_WAIT_S)


@pytest.mark.parametrize("loads", [(4, 4, 4), (8, 2, 2)], ids=["equal", "one_with_most"])
def test_one_drafter_serves_three_verifiers_fairly(fleet: Fleet, loads: Sequence[int]) -> None:
    # With unequal loads the passes are shared by verifier: who has more sequences gets fewer guesses for each of them,
    # but one at least. Nobody may starve, on either side.
    fleet.serve(loads, 12)  # Costs of passes and verify times are learnt.
    reports = fleet.serve(loads, 100)
    hit_ratios = [report.hit_ratio for report in reports]
    assert min(report.num_lookups for report in reports) > 40
    assert min(hit_ratios) > max(0.5, max(hit_ratios) - MAX_BEHIND), reports
    assert fleet.drafter.wait_for(lambda sight: sight.is_empty)


def test_a_killed_verifier_is_forgotten_within_two_seconds_and_the_others_keep_hitting(
    engine_config: EngineConfig, draft_config: DraftConfig, tmp_path: Path
) -> None:
    with watched_drafter(engine_config, draft_config, tmp_path, pace=PACE) as drafter:
        started = [start_paced(drafter, engine_config, name) for name in NAMES[:2]]
        with stopping(*started) as (victim, survivor):
            expected = survivor.serve(jobs(4, 60)).texts
            victim.begin(jobs(8, 1000, prompt_tokens=400))
            survivor.begin(jobs(4, 60))
            before = drafter.wait_for(lambda sight: sight.by_verifier == {"a": 8, "b": 4})
            killed_s = time.monotonic()
            victim.kill()
            after = drafter.wait_for(lambda sight: "a" not in sight.by_verifier)
            assert after.at_s - killed_s < 2.0
            prompts_ratio = 8 * 400 / draft_config.kv_cache_tokens
            assert before.kv_cache_usage_ratio - after.kv_cache_usage_ratio > prompts_ratio / 2
            during, afterwards = survivor.report(), survivor.serve(jobs(4, 60))
            assert during.texts == afterwards.texts == expected
            assert during.hit_ratio > 0.5
            assert afterwards.hit_ratio > 0.5
            drafter.wait_for(lambda sight: sight.is_empty)


def test_ten_thousand_short_requests_leave_memory_and_acceptance_as_they_were(
    engine_config: EngineConfig, draft_config: DraftConfig, tmp_path: Path
) -> None:
    max_grown_bytes = 4 << 20  # Half a kilobyte for each of the last 8,000 requests.
    engine = replace(engine_config, enable_prefix_cache=False)
    with watched_drafter(engine, draft_config, tmp_path) as drafter:
        verifier = start(engine, [drafter.running.record], draft_wait_s=0.2)
        with stopping(verifier):
            reports, drafter_bytes = [], []
            for first in range(0, 10_000, 2000):
                reports.append(verifier.serve(jobs(2000, 8, prompt_tokens=6, first=first), batch=48))
                drafter_bytes.append(rss_bytes(drafter.running.process.pid))
            ended = drafter.wait_for(lambda sight: sight.is_empty)
    assert ended.counters.num_opened >= 10_000
    assert reports[-1].rss_bytes - reports[0].rss_bytes < max_grown_bytes
    assert drafter_bytes[-1] - drafter_bytes[0] < max_grown_bytes
    assert abs(reports[-1].hit_ratio - reports[1].hit_ratio) < 0.1
    assert abs(reports[-1].acceptance_ratio - reports[1].acceptance_ratio) < 0.1
    assert min(report.hit_ratio for report in reports) > 0.5
