"""How verifiers find drafters: what each replica publishes, and a watch over all of them.

A drafter replica returns a `DrafterRecord` from Serve's `record_replica_metadata`. Serve's controller pushes the
records of all running replicas to every process that holds a handle, where `DrafterRouter` pins them to the `BOARD`.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle

ROUTER_CLASS = "deployments.drafter_router.DrafterRouter"
TOUCH_TIMEOUT_S = 5.0
LOAD_PERIOD_S = 2.0
"""How often drafters are asked for their load."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrafterRecord:
    """What a drafter replica tells about itself: once, when it is ready, and its load now and then.

    Attributes:
        replica: Serve's id of it.
        node_id: Ray's id of its node.
        incarnation: random number drawn when it started.
        address: `Address.to_json()` of its listener.
        model_id: of its draft model.
        target: model for which the draft model was made.
        tokenizer_hash: of the vocabulary, id by id.
        max_sequences: how many sequences it follows at most.
        num_sequences: how many it followed when it was last asked, roughly.
    """

    replica: str
    node_id: str
    incarnation: int
    address: dict[str, str | None]
    model_id: str
    target: str
    tokenizer_hash: str
    max_sequences: int
    num_sequences: int = 0

    def to_json(self) -> dict[str, Any]:
        """As Serve wants it."""
        return asdict(self)


def record_from_json(data: Mapping[str, Any]) -> DrafterRecord | None:
    """The record behind a replica's metadata, or None when it is of another kind or version."""
    values: dict[str, Any] = {field.name: data.get(field.name) for field in fields(DrafterRecord)}
    values["num_sequences"] = data.get("num_sequences", 0)  # Unknown until the replica was asked.
    numbers, address = [values[name] for name in ("incarnation", "max_sequences", "num_sequences")], values["address"]
    texts = [values[name] for name in ("replica", "node_id", "model_id", "target", "tokenizer_hash")]
    if not (
        all(type(number) is int for number in numbers)
        and all(isinstance(text, str) for text in texts)
        and isinstance(address, dict)
        and all(isinstance(key, str) and (part is None or isinstance(part, str)) for key, part in address.items())
    ):
        return None
    return DrafterRecord(**values)


Listener = Callable[[tuple[DrafterRecord, ...]], None]


class Board:
    """The drafters that run now, as this process knows them. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._records: tuple[DrafterRecord, ...] = ()
        self._listeners: list[Listener] = []

    @property
    def records(self) -> tuple[DrafterRecord, ...]:
        """The running drafters, in a stable order."""
        return self._records

    def publish(self, metadata: Iterable[Mapping[str, Any]]) -> None:
        """Replace what is known; listeners hear of it when something changed."""
        found = (record_from_json(data) for data in metadata)
        records = tuple(sorted((r for r in found if r is not None), key=lambda r: (r.replica, r.incarnation)))
        with self._lock:
            if records == self._records:
                return
            self._records = records
            for listener in self._listeners:
                listener(records)

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` now and at every change, on the publisher's thread; returns how to end that."""
        with self._lock:
            self._listeners.append(listener)
            listener(self._records)

        def unsubscribe() -> None:
            with self._lock:
                self._listeners.remove(listener)

        return unsubscribe


BOARD = Board()
"""This process's."""


async def watch(handle: "DeploymentHandle[Any]", on_change: Listener, board: Board = BOARD) -> None:
    """Tell about the running drafters now and at every change, until cancelled.

    Args:
        handle: of the drafter deployment; its router feeds the board.
        on_change: called on the event loop's thread with all that run.
        board: where the router publishes.
    """
    loop = asyncio.get_running_loop()
    changed = asyncio.Event()

    def notice(_: tuple[DrafterRecord, ...]) -> None:
        loop.call_soon_threadsafe(changed.set)

    unsubscribe = board.subscribe(notice)
    touch = asyncio.create_task(_touch(handle))
    try:
        while True:
            await changed.wait()
            changed.clear()
            on_change(board.records)
    finally:
        touch.cancel()
        unsubscribe()


async def first_records(
    handle: "DeploymentHandle[Any]", timeout_s: float, board: Board = BOARD
) -> tuple[DrafterRecord, ...]:
    """The running drafters as soon as there are any; empty when none came in time."""
    found: asyncio.Future[tuple[DrafterRecord, ...]] = asyncio.get_running_loop().create_future()

    def take(records: tuple[DrafterRecord, ...]) -> None:
        if records and not found.done():
            found.set_result(records)

    task = asyncio.create_task(watch(handle, take, board))
    try:
        return await asyncio.wait_for(found, timeout_s)
    except TimeoutError:
        return ()
    finally:
        task.cancel()


async def _touch(handle: "DeploymentHandle[Any]") -> None:
    """Use the handle once: Serve connects its router at the first call, whatever becomes of that."""
    response = handle.broadcast("contact")
    try:
        await response.results_async(timeout_s=TOUCH_TIMEOUT_S, return_exceptions=True)
    except Exception as error:  # noqa: BLE001 -- no drafter runs yet, or all are busy: the router is connected anyway
        logger.debug("no drafter answered yet: %s", error)
