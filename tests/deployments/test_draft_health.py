"""When a drafter is left alone, and how it comes back."""

import pytest

from cluster.engine.drafters.table import LookupResult
from cluster.errors import ConfigError
from deployments.draft_health import Change, Health, HealthConfig, HealthState

HIT, MISS, NONE, LATE = LookupResult.HIT, LookupResult.MISS, LookupResult.NONE, LookupResult.LATE


def fed(health: Health, *results: LookupResult, drafted: int = 0, accepted: int = 0) -> Change | None:
    """Record, then judge at a time when the drafter was just heard."""
    for result in results:
        health.record_lookup(result)
    if drafted:
        health.record_verdict(drafted, accepted)
    return health.update(0.0, 0.0)


@pytest.mark.parametrize(
    ("results", "drafted", "accepted", "change"),
    [
        ([HIT] * 64, 64, 64, None),
        ([HIT] * 64, 64, 1, None),
        ([HIT] * 64, 63, 0, None),
        ([HIT] * 64, 64, 0, Change.WRONG),
        ([HIT] + [MISS] * 63, 0, 0, None),
        ([MISS] * 64, 0, 0, Change.WRONG),
        ([MISS] * 63, 0, 0, None),
        ([NONE] * 64, 0, 0, Change.LATE),
        ([LATE] * 60 + [HIT] * 4, 0, 0, Change.LATE),
        ([LATE] * 57 + [HIT] * 7, 0, 0, None),
        ([NONE] * 63, 0, 0, None),
    ],
)
def test_a_window_is_judged_when_it_is_full(
    results: list[LookupResult], drafted: int, accepted: int, change: Change | None
) -> None:
    health = Health(HealthConfig())
    assert fed(health, *results, drafted=drafted, accepted=accepted) is change
    assert (health.state is HealthState.GOOD) == (change is None)
    assert health.max_sequences == (None if change is None else 0)


def test_one_bad_message_harms_nobody_and_several_do() -> None:
    health = Health(HealthConfig())
    health.record_malformed(1)
    assert health.update(0.0, 0.0) is None
    health.record_malformed(3)
    assert health.update(0.0, 0.0) is Change.MALFORMED
    assert "4 malformed" in health.evidence


def test_malformed_messages_long_ago_are_forgotten() -> None:
    health = Health(HealthConfig())
    for _ in range(10):
        health.record_malformed(1)
        assert fed(health, *[HIT] * 64, drafted=64, accepted=32) is None


def test_a_long_good_past_does_not_hide_a_bad_present() -> None:
    health = Health(HealthConfig())
    for _ in range(100):
        assert fed(health, *[HIT] * 64, drafted=256, accepted=200) is None
    changes = [fed(health, HIT, drafted=4, accepted=0) for _ in range(32)]
    assert Change.WRONG in changes


def probe(health: Health, now_s: float, *, is_good: bool) -> Change | None:
    """From a pause that is over through a probe."""
    assert health.update(now_s, now_s) is Change.PROBING
    assert health.max_sequences == 2
    for _ in range(40):
        health.record_lookup(HIT if is_good else MISS)
        if is_good:
            health.record_verdict(4, 2)
        if change := health.update(now_s, now_s):
            return change
    return None


def test_pauses_double_up_to_the_longest_and_good_probes_end_them() -> None:
    health = Health(HealthConfig())
    fed(health, *[MISS] * 64)
    now_s, pauses = 0.0, []
    for _ in range(7):
        pauses.append(health.resumes_s - now_s)
        assert health.update(health.resumes_s - 0.01, health.resumes_s) is None
        now_s = health.resumes_s
        assert probe(health, now_s, is_good=False) is Change.PROBE_FAILED
    assert pauses == [1.0, 2.0, 3.0, 3.0, 3.0, 3.0, 3.0]
    assert probe(health, health.resumes_s, is_good=True) is Change.RECOVERED
    assert health.max_sequences is None


def test_a_pause_after_a_whole_good_window_is_short_again() -> None:
    health = Health(HealthConfig())
    fed(health, *[MISS] * 64)
    for _ in range(4):
        probe(health, health.resumes_s, is_good=False)
    now_s = health.resumes_s
    assert probe(health, now_s, is_good=True) is Change.RECOVERED
    for _ in range(64):
        health.record_lookup(HIT)
    assert health.update(now_s, now_s) is None
    for _ in range(64):
        health.record_lookup(NONE)
    assert health.update(now_s, now_s) is Change.LATE
    assert health.resumes_s == now_s + 1.0


def test_trouble_right_after_recovery_prolongs_the_pause() -> None:
    health = Health(HealthConfig())
    fed(health, *[NONE] * 64)
    now_s = health.resumes_s
    assert probe(health, now_s, is_good=True) is Change.RECOVERED
    for _ in range(64):
        health.record_lookup(NONE)
    assert health.update(now_s, now_s) is Change.LATE
    assert health.resumes_s == now_s + 2.0


def test_hits_without_any_accepted_token_do_not_pass_a_probe() -> None:
    health = Health(HealthConfig())
    fed(health, *[MISS] * 64)
    now_s = health.resumes_s
    health.update(now_s, now_s)
    changes = []
    for _ in range(32):
        health.record_lookup(HIT)
        health.record_verdict(2, 0)
        changes.append(health.update(now_s, now_s))
    assert changes[-1] is Change.PROBE_FAILED
    assert Change.RECOVERED not in changes


def test_silence_ends_when_the_drafter_speaks_however_long_the_pause_should_be() -> None:
    health = Health(HealthConfig())
    for _ in range(5):
        assert health.update(10.0, 8.0) is Change.SILENT
        assert health.update(10.5, 10.4) is Change.PROBING
    assert health.update(20.0, 8.0) is Change.SILENT
    assert health.update(5000.0, 8.0) is None
    assert health.update(5000.0, 4999.9) is Change.PROBING


def test_a_pause_for_another_reason_is_not_ended_by_a_silent_drafter() -> None:
    health = Health(HealthConfig())
    fed(health, *[MISS] * 64)
    assert health.update(60.0, 0.0) is Change.SILENT
    assert health.update(61.0, 0.0) is None
    assert health.update(61.0, 60.5) is Change.PROBING


def test_a_drafter_that_falls_silent_while_it_is_left_alone_is_tried_as_soon_as_it_speaks() -> None:
    health = Health(HealthConfig(first_pause_s=30.0, longest_pause_s=60.0))
    fed(health, *[NONE] * 64)
    assert health.update(1.4, 0.0) is None
    assert health.update(1.6, 0.0) is Change.SILENT
    assert health.state is HealthState.PAUSED and health.resumes_s == 30.0
    assert health.update(5.0, 4.9) is Change.PROBING


@pytest.mark.parametrize(
    "changes",
    [{"window": 0}, {"max_malformed": 0}, {"num_probe_lookups": 0}, {"first_pause_s": 0.0}, {"first_pause_s": 31.0}],
)
def test_settings_that_make_no_sense_are_refused(changes: dict[str, int]) -> None:
    with pytest.raises(ConfigError):
        HealthConfig(**changes)


def test_hits_pass_a_probe_at_its_end_where_the_budget_verified_no_draft() -> None:
    health = Health(HealthConfig())
    fed(health, *[MISS] * 64)
    now_s = health.resumes_s
    health.update(now_s, now_s)
    changes = []
    for _ in range(32):
        health.record_lookup(HIT)
        changes.append(health.update(now_s, now_s))
    assert set(changes[:-1]) == {None}
    assert changes[-1] is Change.RECOVERED
