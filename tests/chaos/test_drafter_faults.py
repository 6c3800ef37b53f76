"""Whatever a drafter does or has done to it: no error, the same text, counters that say why, and a quick return."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from cluster.config import DraftConfig, EngineConfig
from cluster.transport.address import Address
from deployments.drafter_process import drafter_process
from tests.chaos.conftest import RETURN_S, Verifier, save_model
from tests.chaos.faulty_drafter import Fault, FaultyDrafter, faulty_drafter
from tests.chaos.garbage import GarbageDrafter, pieces, stranger

pytestmark = [pytest.mark.engine, pytest.mark.chaos, pytest.mark.slow]

FAULTS = {  # What the verifier thinks of it, and what becomes of many lookups.
    Fault.SLOW: ("late", "none"),
    Fault.HUNG: ("late", "none"),
    Fault.WRONG_OUTCOMES: ("wrong", "miss"),
    Fault.WRONG_DRAFTS: ("wrong", "hit"),
    Fault.UNKNOWN_IDS: ("malformed", None),
    Fault.NEGATIVE_IDS: ("malformed", None),
    Fault.SWAPPED_TABLES: ("late", "stale"),
    Fault.SWAPPED_ENTRIES: ("wrong", "miss"),
    Fault.OLD_INCARNATION: ("late", "stale"),
}

TROUBLES = ("silent", "malformed", "late", "wrong")


@pytest.fixture(scope="module")
def lasting(
    engine_config: EngineConfig, draft_config: DraftConfig, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[FaultyDrafter]:
    """One drafter for all tests that leave it alive."""
    with faulty_drafter(engine_config, draft_config, tmp_path_factory.mktemp("lasting")) as drafter:
        yield drafter
        assert drafter.is_running, "it broke down"


@pytest.fixture
def drafter(lasting: FaultyDrafter) -> FaultyDrafter:
    """The lasting one, without a fault."""
    lasting.have(Fault.NONE)
    return lasting


@pytest.fixture
def doomed(engine_config: EngineConfig, draft_config: DraftConfig, tmp_path: Path) -> Iterator[FaultyDrafter]:
    """One that will not live long."""
    with faulty_drafter(engine_config, draft_config, tmp_path) as drafter:
        yield drafter


def troubles(verifier: Verifier) -> dict[str, int]:
    """Why the drafter was left alone, and how often."""
    return {reason: count for reason in TROUBLES if (count := verifier.transitions(reason))}


@contextmanager
def paused_in_mid_round(verifier: Verifier, drafter: FaultyDrafter) -> Iterator[None]:
    """The drafter stops while the verifier's next pass runs, and goes on after the block."""
    try:
        verifier.during.meanwhile = lambda: os.kill(drafter.pid, signal.SIGSTOP)
        yield
    finally:
        os.kill(drafter.pid, signal.SIGCONT)


def seconds_passed(limit_s: float) -> Callable[[], bool]:
    """True once so many seconds have passed."""
    end_s = time.monotonic() + limit_s
    return lambda: time.monotonic() >= end_s


def test_a_good_drafter_is_hit_by_nearly_every_lookup_and_never_left_alone(
    verifier: Verifier, drafter: FaultyDrafter
) -> None:
    verifier.use(drafter.record)
    verifier.serve(12)
    assert verifier.lookups("hit") > 0.7 * sum(verifier.client.stats().lookups.values())
    assert not troubles(verifier)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_drafter_that_goes_wrong_is_left_alone_for_the_right_reason_and_used_again_once_it_is_right(
    verifier: Verifier, drafter: FaultyDrafter, fault: Fault
) -> None:
    reason, result = FAULTS[fault]
    verifier.use(drafter.record)
    verifier.serve_until_hit(30)
    assert not troubles(verifier)
    before = verifier.client.stats()

    drafter.have(fault)
    verifier.serve_until(lambda: bool(troubles(verifier)), "trouble")
    assert troubles(verifier) == {reason: 1}
    lookups = verifier.client.stats().lookups
    new = {name: count - before.lookups[name] for name, count in lookups.items()}
    if result is not None:  # Others wait for a table that does not come; some were there before the fault.
        assert new[result] > 0.2 * sum(new.values())
        assert result == "hit" or new["hit"] < 0.2 * sum(new.values())
    verifier.serve(6)
    after = verifier.client.stats()
    assert after.fallbacks["quarantined"] > 0
    assert after.num_malformed >= 4 if reason == "malformed" else after.num_malformed == 0
    assert after.transitions["recovered"] == 0

    drafter.have(Fault.NONE)
    verifier.recovers()
    assert verifier.transitions("recovered") == 1


@pytest.mark.parametrize("fault", [Fault.HUNG, Fault.WRONG_OUTCOMES])
def test_however_long_it_was_wrong_a_drafter_is_used_again_as_quickly(
    verifier: Verifier, drafter: FaultyDrafter, fault: Fault
) -> None:
    verifier.use(drafter.record)
    verifier.serve_until_hit(30)
    drafter.have(fault)
    # Once the third attempt has failed, pauses have had time to grow.
    verifier.serve_until(lambda: verifier.transitions("probe_failed") == 3, "attempts")
    drafter.have(Fault.NONE)
    verifier.recovers()


def test_tables_that_come_again_and_again_do_no_harm(verifier: Verifier, drafter: FaultyDrafter) -> None:
    verifier.use(drafter.record)
    verifier.serve_until_hit(30)
    drafter.have(Fault.REPEATED)
    verifier.serve_until_hit(200)
    assert not troubles(verifier) and verifier.client.stats().num_malformed == 0


def test_a_drafter_that_forgot_everything_is_told_again(verifier: Verifier, drafter: FaultyDrafter) -> None:
    verifier.use(drafter.record)
    verifier.serve_until_hit(30)
    drafter.have(Fault.REBORN)
    verifier.serve_until(lambda: verifier.transitions("restarted") > 0, "its new incarnation")
    verifier.recovers()
    assert verifier.transitions("restarted") == 1 and not troubles(verifier)
    assert verifier.fallbacks("lost") > 0


@pytest.mark.parametrize("paused_s", [2.5, 9.0])
def test_a_paused_drafter_is_left_alone_and_used_again_when_it_goes_on(
    verifier: Verifier, drafter: FaultyDrafter, paused_s: float
) -> None:
    verifier.use(drafter.record)
    verifier.serve_until_hit(30)
    num_texts = verifier.num_texts
    with paused_in_mid_round(verifier, drafter):
        verifier.serve_until(seconds_passed(paused_s), "the pause")
        assert verifier.transitions("silent") == 1
        assert verifier.fallbacks("quarantined") > 0
        assert verifier.num_texts > num_texts
    verifier.recovers()
    assert verifier.transitions("recovered") == 1


def test_a_pause_that_is_short_is_no_trouble(verifier: Verifier, drafter: FaultyDrafter) -> None:
    verifier.use(drafter.record)
    verifier.serve_until_hit(30)
    with paused_in_mid_round(verifier, drafter):
        verifier.serve_round()
        time.sleep(0.3)
    verifier.recovers()
    assert not troubles(verifier)


def test_a_drafter_that_is_paused_before_it_can_answer_is_used_when_it_goes_on(
    verifier: Verifier, drafter: FaultyDrafter
) -> None:
    with paused_in_mid_round(verifier, drafter):
        verifier.serve_round()
        verifier.use(drafter.record)
        verifier.serve_until(lambda: verifier.transitions("unreachable") == 1, "giving up")
        assert verifier.fallbacks("disconnected") > 0 and verifier.transitions("welcomed") == 0
    verifier.recovers()


@pytest.mark.parametrize("num_hits", [0, 30], ids=["in its first round", "later"])
def test_a_killed_drafter_costs_no_token_and_another_one_takes_over_at_once(
    verifier: Verifier, doomed: FaultyDrafter, drafter: FaultyDrafter, num_hits: int
) -> None:
    verifier.use(doomed.record)
    verifier.serve_until(lambda: verifier.transitions("welcomed") == 1, "a welcome")
    verifier.serve_until_hit(num_hits)
    verifier.during.meanwhile = lambda: os.kill(doomed.pid, signal.SIGKILL)
    verifier.serve_until(lambda: verifier.transitions("silent") == 1, "silence")
    assert not doomed.is_running
    verifier.serve(6)
    assert verifier.fallbacks("quarantined") > 0
    hits = verifier.lookups("hit")

    verifier.use(drafter.record)
    verifier.recovers()
    transitions = verifier.client.stats().transitions
    assert (transitions["gone"], transitions["connected"], transitions["welcomed"]) == (1, 2, 2)
    assert verifier.lookups("hit") > hits


def test_a_verifier_that_knows_two_drafters_replaces_a_killed_one_by_itself(
    verifier: Verifier, doomed: FaultyDrafter, drafter: FaultyDrafter
) -> None:
    verifier.use(doomed.record)
    verifier.serve_until_hit(30)
    verifier.use(doomed.record, drafter.record)
    verifier.serve_until_hit(30)
    assert verifier.transitions("connected") == 1
    os.kill(doomed.pid, signal.SIGKILL)
    doomed.running.process.wait()
    killed_s = time.monotonic()
    verifier.serve_until(lambda: verifier.transitions("connected") == 2, "the other one")
    verifier.serve_until_hit(1)
    assert time.monotonic() - killed_s < RETURN_S
    assert sum(troubles(verifier).values()) == 1


def test_random_bytes_at_a_drafters_door_disturb_no_verifier(verifier: Verifier, drafter: FaultyDrafter) -> None:
    verifier.use(drafter.record)
    verifier.serve_until_hit(30)
    nonsense, hits, num_sent = pieces(seed=0), verifier.lookups("hit"), 0
    with stranger(Address.from_json(drafter.record.address)) as send:
        while num_sent < 2000:
            for _ in range(40):
                send(next(nonsense))
            num_sent += 40
            verifier.serve_until_hit(1)
    assert verifier.lookups("hit") >= hits + 50
    assert not troubles(verifier) and verifier.client.stats().num_malformed == 0
    assert drafter.is_running


@pytest.mark.parametrize("is_polite", [True, False], ids=["after a welcome", "from the start"])
def test_a_drafter_that_answers_random_bytes_is_given_up_for_another_one(
    verifier: Verifier, drafter: FaultyDrafter, is_polite: bool
) -> None:
    with GarbageDrafter(drafter.record, is_polite=is_polite) as garbage:
        verifier.use(garbage.record)
        reason = "malformed" if is_polite else "unreachable"
        verifier.serve_until(lambda: verifier.transitions(reason) > 0, reason)
        assert verifier.client.stats().num_malformed >= 4
        fallback = "quarantined" if is_polite else "disconnected"
        verifier.serve_until(lambda: verifier.client.stats().fallbacks[fallback] > 0, fallback)
        assert verifier.client.stats().lookups["hit"] == 0 and not troubles(verifier).keys() - {reason}

        verifier.use(garbage.record, drafter.record)
        verifier.recovers()
        assert verifier.transitions("connected") == 2


def test_a_drafter_for_another_tokenizer_refuses_and_is_never_asked_again(
    verifier: Verifier, drafter: FaultyDrafter, tmp_path: Path
) -> None:
    folder = str(with_two_tokens_swapped(save_model(tmp_path / "another")))
    with drafter_process(EngineConfig(model=folder), DraftConfig(model=folder, kv_cache_tokens=4096)) as another:
        assert another.record.tokenizer_hash != drafter.record.tokenizer_hash
        verifier.use(another.record)
        verifier.serve_until(lambda: verifier.transitions("refused") == 1, "a refusal")
        num_sent = verifier.client.stats().num_sent
        verifier.serve_until(seconds_passed(2.0), "longer than what is only left alone is left alone")
        stats = verifier.client.stats()
        assert (stats.transitions["refused"], stats.transitions["connected"], stats.num_sent) == (1, 1, num_sent)
        assert stats.fallbacks["disconnected"] > 0 and sum(stats.lookups.values()) == 0
        assert not stats.is_connected

        verifier.use(another.record, drafter.record)
        verifier.recovers()
        assert verifier.transitions("refused") == 1


def with_two_tokens_swapped(folder: Path) -> Path:
    """The model in `folder` with a tokenizer in which two ids have each other's text."""
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    ids = tokenizer["model"]["vocab"]
    ids["a"], ids["b"] = ids["b"], ids["a"]
    path.write_text(json.dumps(tokenizer))
    return folder


def test_a_drafter_that_is_long_gone_is_only_missed(verifier: Verifier, drafter: FaultyDrafter, tmp_path: Path) -> None:
    record = drafter.record
    nowhere = record.address | {"ipc": f"ipc://{tmp_path}/nobody", "tcp": None}
    verifier.use(replace(record, incarnation=record.incarnation - 1, address=nowhere))
    verifier.serve_until(lambda: verifier.transitions("unreachable") == 1, "giving up")
    assert verifier.fallbacks("disconnected") > 0
    verifier.use(record)
    verifier.recovers()
