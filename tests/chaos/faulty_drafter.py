"""A real drafter in a process of its own that goes wrong as it is told, whenever it is told.

`faulty_drafter` starts one. A file holds the name of its fault, and is read again at every message and every pass.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from msgspec.structs import replace

from cluster.config import DraftConfig, EngineConfig
from cluster.engine.drafters.run_ahead import RunAhead
from cluster.messages import Entry, Hello, Message, SequenceTable, Table, Welcome
from deployments.discovery import DrafterRecord
from deployments.drafter_core import Outgoing
from deployments.drafter_process import DrafterProcess, drafter_process, main
from tests.tiny import VOCAB_SIZE

FILE_VARIABLE = "OUTRIDER_TEST_FAULT"
PASS_S = 0.01
"""A pass of the tiny draft model counts as one of this length at least when it is made ten times as long."""


class Fault(StrEnum):
    """What is wrong.

    - none: nothing.
    - slow: each pass takes ten times as long.
    - hung: nothing is drafted and nothing read; the channel's own thread still answers pings.
    - wrong_outcomes: each table is about next tokens that the target does not draw.
    - wrong_drafts: the next tokens are right, what follows them is not.
    - unknown_ids: ids that the vocabulary does not have.
    - negative_ids: the same below zero.
    - swapped_tables: each table goes out under the number of another sequence.
    - swapped_entries: each table holds the continuations of another sequence.
    - repeated: each table comes twice, and the one before it once more after it.
    - old_incarnation: tables say that a drafter from before made them.
    - reborn: all that was told is forgotten at once, as if it had been started anew behind the same address.
    """

    NONE = "none"
    SLOW = "slow"
    HUNG = "hung"
    WRONG_OUTCOMES = "wrong_outcomes"
    WRONG_DRAFTS = "wrong_drafts"
    UNKNOWN_IDS = "unknown_ids"
    NEGATIVE_IDS = "negative_ids"
    SWAPPED_TABLES = "swapped_tables"
    SWAPPED_ENTRIES = "swapped_entries"
    REPEATED = "repeated"
    OLD_INCARNATION = "old_incarnation"
    REBORN = "reborn"


def _shifted(entry: Entry, begin: int, by: int = 1) -> Entry:
    """The tokens from `begin` on replaced by others."""
    ids = entry.token_ids
    return replace(entry, token_ids=(*ids[:begin], *((each + by) % VOCAB_SIZE for each in ids[begin:])))


def _beyond(entry: Entry, last_id: int) -> Entry:
    return replace(entry, token_ids=(*entry.token_ids[:-1], last_id))


_EDITS: dict[Fault, Callable[[Entry], Entry]] = {
    Fault.WRONG_OUTCOMES: lambda entry: _shifted(entry, 0),
    Fault.WRONG_DRAFTS: lambda entry: _shifted(entry, 1),
    Fault.UNKNOWN_IDS: lambda entry: _beyond(entry, VOCAB_SIZE),
    Fault.NEGATIVE_IDS: lambda entry: _beyond(entry, -1),
}


class FaultyRunAhead:
    """`RunAhead` with faults.

    Args:
        ahead: the drafter's mind.
        path: file that names the fault.
    """

    def __init__(self, ahead: RunAhead, path: Path) -> None:
        self._ahead, self._path = ahead, path
        self._peers: set[bytes] = set()
        self._num_births, self._is_reborn = 0, False
        self._last: dict[int, SequenceTable] = {}
        self._last_message: dict[bytes, Table] = {}

    @property
    def has_work(self) -> bool:
        return self._ahead.has_work

    def handle(self, peer: bytes, message: Message) -> Outgoing:
        self._wait_while_hung()
        self._be_reborn()
        if isinstance(message, Hello):
            self._peers.add(peer)
        return self._edit(self._ahead.handle(peer, message))

    def step(self) -> Outgoing:
        self._wait_while_hung()
        started_s = time.monotonic()
        out = self._ahead.step()
        if self._fault() is Fault.SLOW:
            time.sleep(9 * max(PASS_S, time.monotonic() - started_s))
        return self._edit(out)

    def drop_peer(self, peer: bytes) -> None:
        self._peers.discard(peer)
        self._ahead.drop_peer(peer)

    def evict_idle(self) -> int:
        return self._ahead.evict_idle()

    def _fault(self) -> Fault:
        return Fault(self._path.read_text())

    def _wait_while_hung(self) -> None:
        while self._fault() is Fault.HUNG:
            time.sleep(0.02)

    def _be_reborn(self) -> None:
        is_reborn = self._fault() is Fault.REBORN
        if is_reborn and not self._is_reborn:
            self._num_births += 1
            for peer in self._peers:
                self._ahead.drop_peer(peer)
        self._is_reborn = is_reborn

    def _edit(self, out: Outgoing) -> Iterator[tuple[bytes, Message]]:
        for peer, message in out:
            match message:
                case Welcome():
                    yield peer, replace(message, incarnation=message.incarnation + self._num_births)
                case Table():
                    for table in self._edit_table(peer, message):
                        yield peer, table
                case _:
                    yield peer, message

    def _edit_table(self, peer: bytes, message: Table) -> Iterable[Table]:
        fault = self._fault()
        message = replace(message, incarnation=message.incarnation + self._num_births)
        before, self._last_message[peer] = self._last_message.get(peer, message), message
        match fault:
            case Fault.OLD_INCARNATION:
                return (replace(message, incarnation=message.incarnation - 1),)
            case Fault.REPEATED:
                return message, message, before
        return (replace(message, sequences=tuple(self._edit_sequence(table, fault) for table in message.sequences)),)

    def _edit_sequence(self, table: SequenceTable, fault: Fault) -> SequenceTable:
        other = next((each for each in self._last.values() if each.sequence != table.sequence), None)
        self._last.pop(table.sequence, None)
        self._last = {table.sequence: table, **dict(list(self._last.items())[:3])}
        if fault is Fault.SWAPPED_TABLES and other is not None:
            return replace(table, sequence=other.sequence)
        if fault is Fault.SWAPPED_ENTRIES and other is not None:
            # Only those that this sequence's draft is long enough for: the others could be told to be wrong at once.
            most = max((entry.num_accepted for entry in table.entries), default=0)
            return replace(table, entries=tuple(entry for entry in other.entries if entry.num_accepted <= most))
        edit = _EDITS.get(fault)
        return table if edit is None else replace(table, entries=tuple(map(edit, table.entries)))


@dataclass(frozen=True, slots=True)
class FaultyDrafter:
    """A drafter that was started.

    Attributes:
        running: the process.
        path: names its fault.
    """

    running: DrafterProcess
    path: Path

    @property
    def record(self) -> DrafterRecord:
        """How verifiers find it."""
        return self.running.record

    @property
    def pid(self) -> int:
        """Of its process."""
        return self.running.process.pid

    @property
    def is_running(self) -> bool:
        """It has not ended."""
        return self.running.process.poll() is None

    def have(self, fault: Fault) -> None:
        """Go wrong in this way from now on."""
        whole = self.path.with_suffix(".new")
        whole.write_text(fault)
        whole.replace(self.path)  # It never reads half a name.


@contextmanager
def faulty_drafter(engine: EngineConfig, draft: DraftConfig, folder: Path) -> Iterator[FaultyDrafter]:
    """A drafter without a fault so far; it is gone at the end of the block.

    Args:
        engine: names the target.
        draft: the draft model.
        folder: for its file.
    """
    path = folder / "fault"
    path.write_text(Fault.NONE)
    os.environ[FILE_VARIABLE] = str(path)
    with drafter_process(engine, draft, module=__name__) as running:
        yield FaultyDrafter(running, path)


if __name__ == "__main__":
    main(lambda ahead: FaultyRunAhead(ahead, Path(os.environ[FILE_VARIABLE])))
