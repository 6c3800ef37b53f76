"""The drafter's thread: what comes in reaches the model, one failure costs one sequence, an idle drafter sleeps."""

import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from cluster.errors import EngineDeadError, LoadError
from cluster.messages import PROTOCOL_VERSION, Close, Hello, Lost, Message, Open, Refusal, Round, Row, Welcome
from cluster.transport.address import Address
from cluster.transport.channel import PeerGone, PeerId, Traffic
from cluster.types import SamplingParams
from deployments import drafter_core
from deployments.drafter_core import DrafterCore, Outgoing

A, B = b"a", b"b"
HELLO = Hello(version=PROTOCOL_VERSION, incarnation=1, model_hash="m", tokenizer_hash="t", name="v")


class QueueListener:
    """Holds messages in two queues."""

    address = Address(node_id="n")
    traffic = Traffic()

    def __init__(self) -> None:
        self.inbox: queue.Queue[tuple[PeerId, Message | PeerGone] | None] = queue.Queue()
        self.sent: queue.Queue[tuple[PeerId, Message]] = queue.Queue()
        self.num_receives = 0

    def send(self, peer: PeerId, message: Message) -> bool:
        self.sent.put((peer, message))
        return True

    def receive(self, timeout_s: float = 0.0) -> list[tuple[PeerId, Message | PeerGone]]:
        self.num_receives += 1
        try:
            item = self.inbox.get(timeout=timeout_s) if timeout_s else self.inbox.get_nowait()
        except queue.Empty:
            return []
        return [] if item is None else [item]

    def close(self) -> None:
        self.inbox.put(None)


class ScriptedAhead:
    """Echoes hellos, works for as many steps as a round has rows, and fails when told to."""

    def __init__(self) -> None:
        self.work = 0
        self.fail_on: type | None = None
        self.step_error: Exception | None = None
        self.handled: list[tuple[PeerId, Message]] = []
        self.dropped: list[PeerId] = []
        self.thread: str | None = None
        self.is_closed = False
        self.num_evictions = 0

    @property
    def has_work(self) -> bool:
        return self.work > 0

    def handle(self, peer: PeerId, message: Message) -> Outgoing:
        if self.fail_on is not None and isinstance(message, self.fail_on):
            raise ZeroDivisionError
        self.handled.append((peer, message))
        if isinstance(message, Round):
            self.work += len(message.rows)
        if isinstance(message, Hello):
            yield peer, Welcome(version=1, incarnation=2, num_speculative_tokens=4, max_model_len=9)

    def step(self) -> Outgoing:
        self.thread = threading.current_thread().name
        if self.step_error is not None:
            time.sleep(0.01)
            raise self.step_error
        if self.work:
            self.work -= 1
            return [(A, Lost(sequences=(self.work,), reason="unknown"))]
        return []

    def drop_peer(self, peer: PeerId) -> None:
        self.dropped.append(peer)

    def evict_idle(self) -> int:
        self.num_evictions += 1
        return 0

    def release(self) -> None:
        self.is_closed = True


@contextmanager
def running(
    ahead: ScriptedAhead, *, loads_at_start: bool = True, build: Callable[[], ScriptedAhead] | None = None
) -> Iterator[tuple[DrafterCore, QueueListener]]:
    listener = QueueListener()
    core = DrafterCore(listener, build or (lambda: ahead), release=ahead.release, loads_at_start=loads_at_start)
    core.start()
    try:
        yield core, listener
    finally:
        core.stop()


def round_of(*sequences: int) -> Round:
    rows = tuple(
        Row(sequence=s, epoch=0, base_length=3, new_token_ids=(), draft_token_ids=(), num_tokens=4) for s in sequences
    )
    return Round(number=1, verify_s=0.01, rows=rows)


def wait_for(condition: Callable[[], bool], timeout_s: float = 5.0) -> None:
    end_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.002)


def test_answers_go_to_who_asked_and_work_is_stepped_until_done() -> None:
    ahead = ScriptedAhead()
    with running(ahead) as (_, listener):
        listener.inbox.put((B, HELLO))
        peer, answer = listener.sent.get(timeout=5)
        assert (peer, type(answer)) == (B, Welcome)
        listener.inbox.put((A, round_of(7, 8)))
        assert [listener.sent.get(timeout=5)[1] for _ in range(2)] == [
            Lost(sequences=(1,), reason="unknown"),
            Lost(sequences=(0,), reason="unknown"),
        ]
        assert ahead.thread == "drafter"


def test_a_peer_that_is_gone_is_dropped() -> None:
    ahead = ScriptedAhead()
    with running(ahead) as (_, listener):
        listener.inbox.put((A, PeerGone()))
        wait_for(lambda: ahead.dropped == [A])


def test_a_failing_round_loses_its_own_sequences_and_nothing_else() -> None:
    ahead = ScriptedAhead()
    ahead.fail_on = Round
    with running(ahead) as (core, listener):
        listener.inbox.put((A, round_of(7, 8)))
        assert listener.sent.get(timeout=5) == (A, Lost(sequences=(7, 8), reason="unknown"))
        assert ahead.handled == [(A, Close(sequences=(7, 8)))]
        listener.inbox.put((B, HELLO))
        assert listener.sent.get(timeout=5)[0] == B
        core.check_health()
        assert core.num_failures == 1


def test_a_failing_open_or_hello_is_answered_so_that_nobody_waits() -> None:
    ahead = ScriptedAhead()
    with running(ahead) as (_, listener):
        ahead.fail_on = Open
        sampling = SamplingParams(max_tokens=4, seed=1)
        listener.inbox.put((A, Open(sequence=5, epoch=0, num_prompt_tokens=1, token_ids=(1,), sampling=sampling)))
        assert listener.sent.get(timeout=5) == (A, Lost(sequences=(5,), reason="unknown"))
        ahead.fail_on = Hello
        listener.inbox.put((A, HELLO))
        assert isinstance(listener.sent.get(timeout=5)[1], Refusal)


def test_a_failing_step_is_survived_but_a_broken_model_ends_the_drafter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drafter_core, "MAX_FAILED_STEPS", 50)
    ahead = ScriptedAhead()
    with running(ahead) as (core, listener):
        ahead.step_error, ahead.work = ZeroDivisionError("broken"), 1
        listener.inbox.put(None)
        wait_for(lambda: core.num_failures > 2)
        core.check_health()
        ahead.step_error = None
        listener.inbox.put((B, HELLO))
        assert {listener.sent.get(timeout=5)[0] for _ in range(2)} == {A, B}
        ahead.step_error, ahead.work = ZeroDivisionError("broken"), 1
        listener.inbox.put(None)
        wait_for(lambda: not core._thread.is_alive())
        with pytest.raises(EngineDeadError) as caught:
            core.check_health()
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
        assert ahead.is_closed


def test_an_idle_drafter_sleeps() -> None:
    with running(ScriptedAhead()) as (core, listener):
        time.sleep(0.3)
        assert listener.num_receives <= 2
        assert core.busy_ratio == 0.0


def test_an_idle_drafter_looks_for_forgotten_sequences_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drafter_core, "IDLE_WAIT_S", 0.01)
    ahead = ScriptedAhead()
    with running(ahead):
        wait_for(lambda: ahead.num_evictions > 2)


def test_a_lazy_drafter_loads_nothing_until_a_verifier_says_hello() -> None:
    loaded: list[str] = []
    ahead = ScriptedAhead()

    def build() -> ScriptedAhead:
        loaded.append(threading.current_thread().name)
        return ahead

    with running(ahead, loads_at_start=False, build=build) as (core, listener):
        listener.inbox.put((A, round_of(1)))
        listener.inbox.put((A, PeerGone()))
        wait_for(lambda: listener.inbox.empty())
        assert (loaded, core.is_loaded) == ([], False)
        core.check_health()
        listener.inbox.put((A, HELLO))
        assert isinstance(listener.sent.get(timeout=5)[1], Welcome)
        assert loaded == ["drafter"]
        assert ahead.handled == [(A, HELLO)]


def test_a_model_that_cannot_be_loaded_is_told_by_start() -> None:
    def build() -> ScriptedAhead:
        raise LoadError("no such folder")

    core = DrafterCore(QueueListener(), build)
    with pytest.raises(LoadError, match="no such folder"):
        core.start()
    core.stop()


def test_stop_ends_the_thread_at_once_and_releases_the_model() -> None:
    ahead = ScriptedAhead()
    with running(ahead) as (core, _):
        started_s = time.monotonic()
        core.stop()
        assert time.monotonic() - started_s < 0.4
        assert ahead.is_closed
        core.stop()
        with pytest.raises(EngineDeadError):
            core.check_health()
