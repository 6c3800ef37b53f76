"""How a gateway learns that the replica of a call is gone, or hangs, and what a replica does whose engine died."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from ray.exceptions import ActorDiedError
from ray.serve._private.common import DeploymentID
from ray.serve.exceptions import DeploymentUnavailableError

from cluster.clock import ManualClock
from cluster.errors import UnavailableError
from cluster.telemetry import names
from cluster.telemetry.prometheus import EngineRecorder
from cluster.types import FinishReason, Request, RequestOutput, Role, SamplingParams, SpeculationStats
from deployments import client, wire
from deployments.client import ServeClient
from deployments.load_report import LoadMeter
from deployments.pool_view import SILENT_S, VIEW, PoolView
from deployments.replica_stats import BEAT_S, ReplicaStats, StatsWriter
from deployments.verifier import VerifierCore
from deployments.verifier_config import VerifierConfig
from tests.deployments.fake_engine import FakeEngine

pytestmark = pytest.mark.anyio

REQUEST = Request(request_id="call-0", prompt_token_ids=(1, 2, 3), sampling=SamplingParams(max_tokens=20, seed=0))
CALL = wire.GenerateCall(requests=(REQUEST,))


class Replica:
    """Speaks with every change, as `StatsWriter` lets it."""

    def __init__(self) -> None:
        self._writer = StatsWriter()
        self.last: dict[str, Any] = {}

    def speak(self, now_s: float) -> dict[str, Any]:
        self.last = self._writer.write(ReplicaStats(number=0, role=Role.BATCH), now_s)
        return self.last


@pytest.mark.parametrize(("silent", "is_lost"), [("carrier", True), ("other", False), ("both", False), ("", False)])
def test_a_call_is_lost_when_its_replica_is_silent_and_another_one_speaks(silent: str, is_lost: bool) -> None:
    clock = ManualClock(100.0)
    view = PoolView(clock)
    replicas = {"carrier": Replica(), "other": Replica()}
    view.publish([(name, each.speak(clock.now_s())) for name, each in replicas.items()])
    assert view.rank(["carrier"], "serve-id", {"call_id": "mine"}) == [["carrier"]]
    for _ in range(int(SILENT_S / BEAT_S)):
        assert not view.has_lost("mine")
        clock.advance(BEAT_S)
        for name, each in replicas.items():
            if silent not in (name, "both"):
                each.speak(clock.now_s())
        view.publish([(name, each.last) for name, each in replicas.items()])
    assert view.has_lost("mine") is is_lost
    assert not view.has_lost("another call")
    view.forget("mine")
    assert not view.has_lost("mine")


def test_a_replica_that_takes_no_more_work_goes_on_with_what_it_has() -> None:
    clock = ManualClock(100.0)
    view, leaving, other = PoolView(clock), Replica(), Replica()
    view.publish([("leaving", leaving.speak(100.0)), ("other", other.speak(100.0))])
    view.rank(["leaving"], "serve-id", {"call_id": "mine"})
    for _ in range(20):
        clock.advance(BEAT_S)
        view.publish([("other", other.speak(clock.now_s()))])
    assert not view.has_lost("mine")


class FakeStream:
    def __init__(self, items: list[bytes], error: Exception | None) -> None:
        self._items, self._error = items, error
        self.is_cancelled = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for item in self._items:
            yield item
        if self._error is not None:
            raise self._error

    def cancel(self) -> None:
        self.is_cancelled = True


class FakeResponse:
    async def results_async(self, **_: object) -> list[object]:
        raise TimeoutError("a replica hangs")


class FakeHandle:
    """What `ServeClient` uses of a handle."""

    def __init__(self, stream: FakeStream) -> None:
        self._stream = stream
        self.aborted: list[str] = []
        self.kwargs: dict[str, object] = {}

    def options(self, **_: object) -> "FakeHandle":
        return self

    def remote(self, *_: object, **kwargs: object) -> FakeStream:
        self.kwargs = kwargs
        VIEW.rank(["r"], "serve-id", kwargs)
        return self._stream

    def broadcast(self, method: str, call_id: str) -> FakeResponse:
        assert method == "abort"
        self.aborted.append(call_id)
        return FakeResponse()


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ActorDiedError(), "replica_lost"),
        (RuntimeError("anything"), "replica_lost"),
        (DeploymentUnavailableError(DeploymentID(name="Verifier")), "no_replica"),
    ],
)
async def test_errors_of_serve_say_what_became_of_a_call(error: Exception, code: str) -> None:
    handle = FakeHandle(FakeStream([b"one"], error))
    stream = ServeClient(handle).generate(CALL)  # type: ignore[arg-type]
    assert await anext(stream) == b"one"
    with pytest.raises(UnavailableError) as caught:
        await anext(stream)
    assert caught.value.code == code
    assert handle.aborted == ["call-0"]
    await asyncio.sleep(0)  # The broadcast's own failure is nobody's.
    assert "call-0" not in VIEW._replica_of


async def test_a_call_that_ends_is_not_aborted_and_one_that_is_closed_is() -> None:
    handle = FakeHandle(FakeStream([b"one", b"two"], None))
    assert [item async for item in ServeClient(handle).generate(CALL)] == [b"one", b"two"]  # type: ignore[arg-type]
    assert (handle.aborted, handle.kwargs["call_id"]) == ([], "call-0")
    stream = ServeClient(handle).generate(CALL)  # type: ignore[arg-type]
    await anext(stream)
    assert "call-0" in VIEW._replica_of
    await stream.aclose()
    assert (handle.aborted, handle._stream.is_cancelled) == (["call-0"], True)
    assert "call-0" not in VIEW._replica_of
    assert client.ABORT_TIMEOUT_S > 0


async def test_a_dead_engine_is_told_once_and_to_later_calls_in_another_way() -> None:
    deaths: list[bool] = []
    core = VerifierCore(VerifierConfig(), lambda: FakeEngine(crash_at_step=2), on_death=lambda: deaths.append(True))
    await core.start()

    async def code() -> str | None:
        *_, last = [wire.decode_batch(item) async for item in core.generate(wire.encode(CALL))]
        assert last.failure is not None and last.failure.status == 503
        return last.failure.code

    assert [await code(), await code(), await code()] == ["engine_dead", "no_engine", "no_engine"]
    assert deaths == [True]
    assert core._admission.num_requests == 0
    await core.stop()
    assert deaths == [True]


def output(num_tokens: int, total: int, *, ends: bool = False) -> RequestOutput:
    return RequestOutput(
        request_id="call-0",
        token_ids=(1,) * num_tokens,
        num_output_tokens=total,
        finish_reason=FinishReason.STOP if ends else None,
        speculation=SpeculationStats(entropy_bits_sum=4.0) if ends else None,
    )


def test_load_counts_what_a_resumed_choice_costs_and_brings_here() -> None:
    meter = LoadMeter()
    resumed = replace(REQUEST, output_token_ids=(7,) * 12, domain="code_synthesis")
    meter.record_arrival(resumed)
    assert meter.report("r", Role.BATCH, 0.0).num_outstanding_tokens == 3 + 20
    meter.record_outputs([output(2, 14)], 0.1)
    report = meter.report("r", Role.BATCH, 0.1)
    assert (report.num_outstanding_tokens, report.mean_context_tokens) == (6, 3 + 12 + 2)
    meter.record_outputs([output(6, 20, ends=True)], 0.2)
    report = meter.report("r", Role.BATCH, 0.2)
    assert report.num_outstanding_tokens == 0
    assert report.domains["code_synthesis"].num_output_tokens == 8
    assert report.domains["code_synthesis"].entropy_bits == pytest.approx(0.5)


def test_time_per_token_of_a_resumed_choice_counts_the_tokens_of_this_engine() -> None:
    recorder = EngineRecorder(model_name="m", engine="a")
    recorder.record_arrival("call-0", 0.0)
    recorder.record_outputs([output(1, 101)], 1.0)
    recorder.record_outputs([output(4, 105, ends=True)], 3.0)
    name = f"{names.TIME_PER_OUTPUT_TOKEN.name}_sum"
    (line,) = [line for line in recorder.metrics.render().splitlines() if line.startswith(name)]
    assert float(line.split()[-1]) == pytest.approx(0.5)
