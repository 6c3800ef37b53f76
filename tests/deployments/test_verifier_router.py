"""The router as Serve uses it, without a cluster: its base class is not initialised, and replicas are stand-ins."""

from types import SimpleNamespace
from typing import Any

import pytest
from ray import cloudpickle

from cluster.types import Role
from deployments import pool_view
from deployments.pool_view import PoolView
from deployments.replica_stats import ReplicaStats, StatsWriter
from deployments.verifier_router import VerifierRouter

pytestmark = pytest.mark.anyio


@pytest.fixture
def view(monkeypatch: pytest.MonkeyPatch) -> PoolView:
    view = PoolView()
    monkeypatch.setattr(pool_view, "VIEW", view)
    return view


@pytest.fixture
def router(monkeypatch: pytest.MonkeyPatch) -> VerifierRouter:
    monkeypatch.setattr("ray.serve.request_router.RequestRouter.update_replicas", lambda self, replicas: None)
    return VerifierRouter.__new__(VerifierRouter)


def replica(name: str, role: Role | None = None) -> Any:
    stats = {} if role is None else StatsWriter().write(ReplicaStats(number=0, role=role), 0.0)
    return SimpleNamespace(replica_id=SimpleNamespace(unique_id=name), routing_stats=stats)


def call(name: str = "c1", **kwargs: object) -> Any:
    return SimpleNamespace(kwargs=kwargs, metadata=SimpleNamespace(internal_request_id=name))


REPLICAS = [replica("a", Role.SPECULATIVE), replica("b", Role.BATCH), replica("c")]


def ids(groups: list[list[Any]]) -> list[list[str]]:
    return [[each.replica_id.unique_id for each in group] for group in groups]


async def test_a_call_for_a_pool_is_ranked_by_what_replicas_said(view: PoolView, router: VerifierRouter) -> None:
    router.update_replicas(REPLICAS)
    assert ids(await router.choose_replicas(REPLICAS, call(pool="batch"))) == [["b"], ["c"], ["a"]]
    assert ids(await router.choose_replicas(REPLICAS, call(pool="speculative"))) == [["a"], ["c"], ["b"]]


async def test_control_calls_go_to_any_replica_and_count_for_none(view: PoolView, router: VerifierRouter) -> None:
    router.update_replicas(REPLICAS)
    assert await router.choose_replicas(REPLICAS, call()) == [REPLICAS]
    assert await router.choose_replicas(REPLICAS, None) == [REPLICAS]
    assert not view.counts().routed


async def test_only_candidates_are_chosen_even_if_others_are_known(view: PoolView, router: VerifierRouter) -> None:
    router.update_replicas(REPLICAS)
    assert ids(await router.choose_replicas(REPLICAS[2:], call(pool="batch"))) == [["c"]]


async def test_a_router_that_fails_offers_every_replica(
    view: PoolView, router: VerifierRouter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view, "rank", lambda *_: 1 / 0)
    assert await router.choose_replicas(REPLICAS, call(pool="batch")) == [REPLICAS]
    router.update_replicas([SimpleNamespace(replica_id=None)])  # type: ignore[list-item]
    assert view.counts().degraded == {"error": 2}


async def test_a_call_that_ended_counts_no_more(view: PoolView, router: VerifierRouter) -> None:
    both = [replica("a", Role.BATCH), replica("b", Role.BATCH)]
    router.update_replicas(both)
    (first,), _ = ids(await router.choose_replicas(both, call("1", pool="batch", num_tokens=50)))
    (second,), _ = ids(await router.choose_replicas(both, call("2", pool="batch", num_tokens=40)))
    assert first != second
    router.on_request_completed(SimpleNamespace(unique_id=first), "1")  # type: ignore[arg-type]
    for name in ("3", "4"):
        (third,), _ = ids(await router.choose_replicas(both, call(name, pool="batch", num_tokens=10)))
        assert third == first


def test_the_class_is_pickled_by_value_as_serve_does() -> None:
    import deployments.verifier_router as module

    pickler: Any = cloudpickle  # untyped
    pickler.register_pickle_by_value(module)
    try:
        copy = pickler.loads(pickler.dumps(VerifierRouter))
    finally:
        pickler.unregister_pickle_by_value(module)
    assert copy.__name__ == "VerifierRouter"
