from typing import Any

import pytest

from cluster.clock import ManualClock
from cluster.routing.ranking import STALE_AFTER_S
from cluster.routing.types import DomainStats
from cluster.types import Role
from deployments.pool_view import PoolView, RouterRecorder
from deployments.replica_stats import BEAT_S, ReplicaStats, StatsWriter, stats_from_json


def told(role: Role, tokens: int = 0, *, number: int = 1, **more: Any) -> dict[str, Any]:
    stats = ReplicaStats(number=0, role=role, num_outstanding_tokens=tokens, **more)
    return StatsWriter().write(stats, 0.0) | {"number": number}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(100.0)


@pytest.fixture
def view(clock: ManualClock) -> PoolView:
    return PoolView(clock)


def first(view: PoolView, call: str = "c", **kwargs: object) -> str:
    return chosen(view, kwargs, call)


def chosen(view: PoolView, kwargs: dict[str, object], call: str = "c") -> str:
    return view.rank(sorted(view.replica_ids), call, kwargs)[0][0]


def test_calls_go_to_the_pool_they_ask_for(view: PoolView) -> None:
    view.publish([("a", told(Role.SPECULATIVE, 900)), ("b", told(Role.BATCH, 0))])
    assert [first(view, str(i), pool=role.value) for i, role in enumerate(Role)] == ["a", "b"]
    assert first(view, pool=None) == "b"


def test_a_replica_that_changed_its_role_is_followed_with_its_next_word(view: PoolView) -> None:
    view.publish([("a", told(Role.SPECULATIVE)), ("b", told(Role.BATCH))])
    view.publish([("a", told(Role.BATCH, number=2)), ("b", told(Role.SPECULATIVE, number=2))])
    assert first(view, pool="speculative") == "b"


def test_calls_on_their_way_count_until_the_replica_speaks_of_them(view: PoolView, clock: ManualClock) -> None:
    view.publish([("a", told(Role.BATCH)), ("b", told(Role.BATCH))])
    busy = first(view, "long", pool="batch", num_tokens=1000)
    (idle,) = {"a", "b"} - {busy}
    assert [first(view, str(index), pool="batch", num_tokens=100) for index in range(4)] == [idle] * 4
    for index in range(4):
        view.done(str(index))
    clock.advance(1.0)
    # The replica speaks of the long call no more: it is over, though nobody said so here.
    view.publish([(busy, told(Role.BATCH, 0, number=2)), (idle, told(Role.BATCH, 10, number=2))])
    assert first(view, "next", pool="batch", num_tokens=100) == busy


def test_a_prompt_that_begins_alike_goes_where_its_beginning_was_computed(view: PoolView) -> None:
    view.publish([("a", told(Role.BATCH)), ("b", told(Role.BATCH)), ("c", told(Role.BATCH))])
    holder = first(view, "1", pool="batch", prefix=(2, 1), num_tokens=10)
    view.done("1")
    for index in range(6):
        assert first(view, str(index), pool="batch", prefix=(9, 1), num_tokens=10) == holder
        view.done(str(index))
    assert view.counts().num_prefix_hits == 6


def test_a_prefix_of_a_replica_that_is_gone_is_no_use(view: PoolView) -> None:
    view.publish([("a", told(Role.BATCH)), ("b", told(Role.BATCH))])
    gone = first(view, "1", pool="batch", prefix=(1,))
    view.publish([({"a": "b", "b": "a"}[gone], told(Role.BATCH))])
    assert first(view, "2", pool="batch", prefix=(1,)) != gone


def test_stale_words_degrade_to_load_routing(view: PoolView, clock: ManualClock) -> None:
    view.publish([("a", told(Role.SPECULATIVE, 9000)), ("b", told(Role.BATCH, 0))])
    clock.advance(STALE_AFTER_S + 1)
    assert sorted(first(view, str(i), pool="speculative", num_tokens=5) for i in range(2)) == ["a", "b"]
    assert view.snapshot().age_s == STALE_AFTER_S + 1


@pytest.mark.parametrize(
    "broken",
    [{"role": "king"}, {"number": "x", "role": "batch"}, {"number": 1}, [1, 2], "text", 7, {"number": 1, "role": None},
     told(Role.BATCH) | {"tokens_per_s": float("nan")}, told(Role.BATCH) | {"num_outstanding_tokens": -5},
     told(Role.BATCH) | {"domains": {"code": 3}}],
)  # fmt: skip
def test_words_that_cannot_be_read_are_counted_and_routed_by_load(view: PoolView, broken: object) -> None:
    view.publish([("a", broken), ("b", told(Role.BATCH, 10**6))])
    assert first(view, pool="speculative") == "a"
    assert view.counts().degraded["stats"] == 1


@pytest.mark.parametrize("nothing", [None, {}])
def test_a_replica_that_was_not_asked_yet_is_no_fault(view: PoolView, nothing: object) -> None:
    view.publish([("a", nothing)])
    assert first(view, pool="batch") == "a"
    assert not view.counts().degraded


@pytest.mark.parametrize(
    ("kwargs", "reason"),
    [
        ({"pool": "king"}, "pool"), ({"pool": 7}, "pool"), ({"pool": ["batch"]}, "pool"),
        ({"pool": "batch", "prefix": "text"}, "prefix"), ({"pool": "batch", "prefix": (1, None)}, "prefix"),
        ({"pool": "batch", "prefix": None}, "prefix"), ({"pool": "batch", "num_tokens": "many"}, "num_tokens"),
        ({"pool": "batch", "num_tokens": -1}, "num_tokens"), ({"pool": "batch", "num_tokens": True}, "num_tokens"),
    ],
)  # fmt: skip
def test_calls_that_cannot_be_read_are_counted_and_still_routed(
    view: PoolView, kwargs: dict[str, object], reason: str
) -> None:
    view.publish([("a", told(Role.BATCH)), ("b", told(Role.BATCH, 10**6))])
    assert chosen(view, kwargs) == "a"
    assert view.counts().degraded == {reason: 1}


def test_older_news_from_another_handle_change_nothing(view: PoolView, clock: ManualClock) -> None:
    view.publish([("a", told(Role.BATCH, number=5))])
    clock.advance(1.0)
    view.publish([("a", told(Role.SPECULATIVE, number=4))])
    snapshot = view.snapshot()
    assert set(snapshot.pools) == {Role.BATCH}
    assert snapshot.age_s == 1.0


def test_the_snapshot_adds_up_the_replicas_of_each_role(view: PoolView) -> None:
    code = DomainStats(num_requests=1, num_output_tokens=10, num_draft_tokens=10, num_accepted_tokens=9, entropy_bits=1)
    chat = DomainStats(num_requests=1, num_output_tokens=30, num_draft_tokens=10, num_accepted_tokens=3, entropy_bits=3)
    fields: dict[str, Any] = {"num_running": 2, "num_waiting": 1, "tokens_per_s": 5.0}
    view.publish([
        ("a", told(Role.SPECULATIVE, tpot_s=0.03, domains={"code": code}, **fields)),
        ("b", told(Role.SPECULATIVE, tpot_s=0.02, domains={"code": chat}, **fields)),
        ("c", told(Role.BATCH, **fields)),
    ])  # fmt: skip
    snapshot = view.snapshot()
    speculative, batch = snapshot.pools[Role.SPECULATIVE], snapshot.pools[Role.BATCH]
    assert (speculative.num_replicas, speculative.num_running, speculative.tokens_per_s) == (2, 4, 10.0)
    assert (speculative.tpot_s, batch.tpot_s, batch.num_waiting) == (0.02, None, 1)
    assert snapshot.domains["code"].entropy_bits == pytest.approx(2.5)
    assert snapshot.acceptance_rate == pytest.approx(0.6)
    assert snapshot.age_s == 0.0


def test_a_silent_replica_is_left_out_while_others_speak(view: PoolView, clock: ManualClock) -> None:
    view.publish([("a", told(Role.BATCH)), ("silent", told(Role.SPECULATIVE))])
    clock.advance(STALE_AFTER_S + 1)
    view.publish([("a", told(Role.BATCH, number=2)), ("silent", told(Role.SPECULATIVE))])
    assert (set(view.snapshot().pools), view.snapshot().age_s) == ({Role.BATCH}, 0.0)


def test_nothing_heard_is_infinitely_old(view: PoolView) -> None:
    assert view.snapshot().age_s == float("inf")
    assert view.snapshot().pools == {}


def test_an_idle_replica_says_the_same_until_it_is_time_for_a_beat() -> None:
    writer, stats = StatsWriter(), ReplicaStats(number=0, role=Role.BATCH)
    one = writer.write(stats, 0.0)
    assert writer.write(stats, BEAT_S / 2) == one
    beat = writer.write(stats, BEAT_S)
    assert beat["number"] > one["number"]
    changed = writer.write(ReplicaStats(number=0, role=Role.SPECULATIVE), BEAT_S)
    assert changed["number"] > beat["number"]
    assert stats_from_json(changed) == ReplicaStats(number=changed["number"], role=Role.SPECULATIVE)


def test_the_scrape_tells_of_calls_and_degradation(view: PoolView) -> None:
    recorder = RouterRecorder(view, "g1")
    view.publish([("a", told(Role.BATCH))])
    first(view, "1", pool="speculative", prefix=(1,))
    first(view, "2", pool="speculative", prefix=(1,), num_tokens="x")
    for _ in range(2):
        text = recorder.render()
    assert 'outrider_router_calls_total{gateway="g1",pool="speculative",role="batch"} 2.0' in text
    assert 'outrider_router_degraded_total{gateway="g1",reason="num_tokens"} 1.0' in text
    assert 'outrider_router_prefix_hits_total{gateway="g1"} 1.0' in text
    assert 'outrider_router_replicas{gateway="g1",role="batch"} 1.0' in text
