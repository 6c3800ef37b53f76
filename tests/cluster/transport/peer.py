"""One end in a process of its own, for tests that pause, kill or cut off processes.

    python -m tests.cluster.transport.peer listen HOST NODE IPC_DIR PEER_TIMEOUT_S
    python -m tests.cluster.transport.peer connect ADDRESS_JSON NODE INTERVAL_S

Writes JSON lines: a listener its address, then both a report every 0.1 s. Ends when its standard input does.
"""

import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cluster.messages import Round, Table
from cluster.transport.address import Address
from cluster.transport.channel import PeerGone
from cluster.transport.zmq import ZmqListener, connect
from tests.cluster.transport.samples import round_of, table_of

REPORT_INTERVAL_S = 0.1


def listen(host: str, node_id: str, ipc_dir: str, peer_timeout_s: float) -> None:
    """Answer every round with its table."""
    listener = ZmqListener(
        node_id,
        host=host or None,
        ipc_dir=Path(ipc_dir) if ipc_dir else None,
        peer_timeout_s=peer_timeout_s,
    )
    _write(listener.address.to_json())
    report = {"num_received": 0, "num_gone": 0, "last_number": -1, "num_wrong": 0, "gone_at_s": 0.0}

    def turn() -> None:
        for peer, message in listener.receive(0.02):
            if isinstance(message, PeerGone):
                report["num_gone"] += 1
                report["gone_at_s"] = time.monotonic()
                continue
            is_right = isinstance(message, Round) and message == round_of(message.number)
            report["num_received"] += 1
            if isinstance(message, Round):
                is_right = is_right and message.number > report["last_number"]
                report["last_number"] = message.number
                listener.send(peer, table_of(message.number))
            report["num_wrong"] += not is_right

    _run(turn, report)
    listener.close()


def talk(address: Address, node_id: str, interval_s: float) -> None:
    """Send a round every `interval_s`, look for tables without waiting, and note the longest time of a call."""
    channel = connect(address, node_id)
    report = {
        "num_sent": 0,
        "num_dropped": 0,
        "last_number": -1,
        "num_received": 0,
        "num_wrong": 0,
        "longest_call_s": 0.0,
    }
    number = 0

    def turn() -> None:
        nonlocal number
        started_s = time.monotonic()
        is_sent = channel.send(round_of(number))
        messages = channel.receive()
        report["longest_call_s"] = max(report["longest_call_s"], time.monotonic() - started_s)
        number += 1
        report["num_sent" if is_sent else "num_dropped"] += 1
        for message in messages:
            is_right = isinstance(message, Table) and message == table_of(message.number)
            is_right = is_right and message.number > report["last_number"]  # type: ignore[union-attr]
            report["num_wrong"] += not is_right
            report["last_number"] = message.number  # type: ignore[union-attr]
            report["num_received"] += 1
        time.sleep(interval_s)

    _run(turn, report)
    channel.close()


def _run(turn: Callable[[], None], report: dict[str, Any]) -> None:
    is_over = threading.Event()

    def wait_for_the_end() -> None:
        sys.stdin.read()
        is_over.set()

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    next_s = 0.0
    while not is_over.is_set():
        turn()
        if time.monotonic() >= next_s:
            next_s = time.monotonic() + REPORT_INTERVAL_S
            _write(report | {"at_s": time.monotonic()})


def _write(values: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    role, *arguments = sys.argv[1:]
    if role == "listen":
        listen(arguments[0], arguments[1], arguments[2], float(arguments[3]))
    else:
        talk(Address.from_json(json.loads(arguments[0])), arguments[1], float(arguments[2]))
