"""What drafters publish reaches a watch as soon as Serve tells."""

import asyncio
import threading
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from deployments.discovery import Board, DrafterRecord, first_records, record_from_json, watch

pytestmark = pytest.mark.anyio


def record(replica: str = "r1", incarnation: int = 1) -> DrafterRecord:
    return DrafterRecord(
        replica=replica,
        node_id="n",
        incarnation=incarnation,
        address={"node_id": "n", "tcp": "tcp://10.0.0.1:7000", "ipc": None},
        model_id="draft",
        target="target",
        tokenizer_hash="h",
        max_sequences=8,
    )


class Handle:
    """A handle whose drafters do not answer yet."""

    def __init__(self) -> None:
        self.called: list[str] = []

    def broadcast(self, method: str) -> "Handle":
        self.called.append(method)
        return self

    async def results_async(self, **_: Any) -> list[Any]:
        raise RuntimeError("no replica")


def test_a_record_survives_serves_metadata() -> None:
    assert record_from_json(record().to_json()) == record()


def test_a_load_comes_beside_the_metadata_and_may_be_missing() -> None:
    metadata = record().to_json()
    del metadata["num_sequences"]
    assert record_from_json(metadata) == record()
    assert record_from_json({**metadata, "num_sequences": 3}) == replace(record(), num_sequences=3)


@pytest.mark.parametrize(
    "change",
    [
        {"replica": None},
        {"num_sequences": "3"},
        {"incarnation": "1"},
        {"address": "tcp://x"},
        {"address": {"tcp": 7}},
        {"max_sequences": 1.0},
    ],
)
def test_metadata_of_another_kind_is_no_drafter(change: dict[str, Any]) -> None:
    assert record_from_json(record().to_json() | change) is None
    assert record_from_json({}) is None


def test_only_changes_are_told() -> None:
    board = Board()
    seen: list[tuple[DrafterRecord, ...]] = []
    board.subscribe(seen.append)
    both = [record("b").to_json(), {"other": "deployment"}, record("a").to_json()]
    board.publish(both)
    board.publish(reversed(both))
    assert seen == [(), (record("a"), record("b"))]


async def test_a_watch_tells_of_a_restarted_drafter_and_connects_the_handle_first() -> None:
    board, handle = Board(), Handle()
    seen: asyncio.Queue[tuple[DrafterRecord, ...]] = asyncio.Queue()
    task = asyncio.create_task(watch(handle, seen.put_nowait, board))  # type: ignore[arg-type]
    assert await seen.get() == ()
    assert handle.called == ["contact"]
    for incarnation in (1, 2):
        thread = threading.Thread(target=board.publish, args=([record(incarnation=incarnation).to_json()],))
        thread.start()
        assert await asyncio.wait_for(seen.get(), 5) == (record(incarnation=incarnation),)
        thread.join()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert board._listeners == []


async def test_the_first_drafters_are_waited_for_but_not_for_ever() -> None:
    board, handle = Board(), Handle()
    assert await first_records(handle, 0.05, board) == ()  # type: ignore[arg-type]
    waiting = asyncio.ensure_future(first_records(handle, 5.0, board))  # type: ignore[arg-type]
    await asyncio.sleep(0.01)
    board.publish([record().to_json()])
    assert await waiting == (record(),)
    await asyncio.sleep(0)
    assert board._listeners == []
