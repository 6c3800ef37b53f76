"""What does a draft exchange cost on the wire: time of a round trip, the caller's own time, bytes?"""

import hashlib
import itertools
import multiprocessing
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median

import zmq

from cluster.messages import Entry, Round, Row, SequenceTable, Table, draft_hash
from cluster.transport.address import Address
from cluster.transport.channel import Channel
from cluster.transport.codec import encode
from cluster.transport.zmq import ZmqListener, connect
from cluster.transport.zmq_auth import Keys
from tests.benchmarks import report
from tests.benchmarks.measure import interleave
from tests.benchmarks.report import Answer, Limit
from tests.cluster.transport.relay import Relay

RAW = "ipc, plain encrypted sockets, ready bytes"
IPC, TCP = "ipc, round to table", "tcp, round to table"
AFTER_WORK = "ipc, round to table, after native work"
CALLER = "ipc, caller's time for both, native work in between"

NUM_SPECULATIVE_TOKENS, FAN_OUT = 4, 4
ROUND_TRIP_LIMIT_S = 150e-6
BYTES_LIMIT = 1024
WAIT_S = 10.0
WORK = bytes(4 << 20)
"""Hashing it keeps a thread busy for some milliseconds without the interpreter lock, as a forward pass does."""

_DRAFT = (284, 12_000, 40_000, 49_151)
ROW = Row(sequence=1000, epoch=0, base_length=700, new_token_ids=_DRAFT[:3], draft_token_ids=_DRAFT, num_tokens=4)
ENTRIES = tuple(
    Entry(num_accepted=num_accepted, token_ids=tuple(200 + 9_000 * (rank + 1) + place for place in range(5)))
    for num_accepted in range(NUM_SPECULATIVE_TOKENS + 1)
    for rank in range(FAN_OUT)
)
SEQUENCE = SequenceTable(sequence=1000, epoch=0, base_length=700, draft_hash=draft_hash(_DRAFT), entries=ENTRIES)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Far:
    """The processes at the other end.

    Attributes:
        address: of its listener.
        raw: of its plain socket, on ipc.
    """

    address: Address
    raw: Address


def measure(*, quick: bool) -> Answer:
    """Interleave blocks of exchanges over both transports with the same bytes over plain sockets."""
    num_rounds, num_exchanges = (1, 20) if quick else (25, 200)
    ready: list[float] = []
    numbers = itertools.count()
    with ExitStack() as stack:
        far = stack.enter_context(_far())
        near = stack.enter_context(_open(far.address))
        remote = stack.enter_context(_open(replace(far.address, ipc=None)))
        raw = stack.enter_context(_plain(far.raw))
        variants = [
            partial(_repeat, name, exchange, num_exchanges)
            for name, exchange in {
                RAW: partial(_raw_round_trip_s, raw),
                IPC: partial(_round_trip_s, near, numbers),
                TCP: partial(_round_trip_s, remote, numbers),
                AFTER_WORK: partial(_round_trip_after_work_s, near, numbers),
                CALLER: partial(_callers_s, near, numbers, ready),
            }.items()
        ]
        rounds = interleave(variants, num_rounds=num_rounds)
        wire = [_bytes_on_the_wire(far.address, num_exchanges) for _ in range(num_rounds)]
        traffic = near.traffic
    names = (RAW, IPC, TCP, AFTER_WORK, CALLER)
    return Answer(
        question=f"What does a draft exchange cost (one sequence, K = {NUM_SPECULATIVE_TOKENS}, fan-out {FAN_OUT})?",
        model="none",
        rows=tuple(report.Row.of(name, rounds) for name in names),
        limits=(
            Limit.at_most_of("round trip over ipc in us", _us(rounds.medians(IPC)), 1e6 * ROUND_TRIP_LIMIT_S),
            Limit.at_most_of(
                "round trip over ipc after native work in us", _us(rounds.medians(AFTER_WORK)), 1e6 * ROUND_TRIP_LIMIT_S
            ),
            Limit.at_most_of("bytes on the wire per sequence and round, both directions", wire, BYTES_LIMIT),
        ),
        counts={
            "rounds": num_rounds,
            "exchanges_per_round": num_exchanges,
            "bytes_up": round(traffic.bytes_sent / traffic.sent),
            "bytes_down": round(traffic.bytes_received / traffic.received),
        },
        notes=(
            f"libzmq {zmq.zmq_version()}; bytes_up and bytes_down are encoded messages by the traffic counters",
            "the wire adds encryption and framing; a tcp relay counts it",
            f"native work took {1e3 * median(_work() for _ in range(5)):.1f} ms; "
            f"after it {100 * sum(ready) / len(ready):.0f} % of the tables were there",
        ),
    )


def _us(samples_s: Sequence[float]) -> list[float]:
    return [1e6 * sample for sample in samples_s]


def _repeat(name: str, exchange: Callable[[], float], num_exchanges: int) -> Mapping[str, Sequence[float]]:
    """Times of so many exchanges, after some that are not kept."""
    for _ in range(5):
        exchange()
    return {name: [exchange() for _ in range(num_exchanges)]}


def _round_of(number: int) -> Round:
    return Round(number=number, verify_s=0.0213, rows=(ROW,))


def _work() -> float:
    """Seconds of native work without the interpreter lock."""
    started_s = time.perf_counter()
    hashlib.sha256(WORK)
    return time.perf_counter() - started_s


def _round_trip_s(channel: Channel, numbers: Iterator[int]) -> float:
    number = next(numbers)
    started_s = time.perf_counter()
    channel.send(_round_of(number))
    messages = channel.receive(WAIT_S)
    elapsed_s = time.perf_counter() - started_s
    _check(messages, number)
    return elapsed_s


def _round_trip_after_work_s(channel: Channel, numbers: Iterator[int]) -> float:
    _work()
    return _round_trip_s(channel, numbers)


def _callers_s(channel: Channel, numbers: Iterator[int], ready: list[float]) -> float:
    """Time in the two calls when work lies between them; notes whether the table was there by then."""
    number = next(numbers)
    started_s = time.perf_counter()
    channel.send(_round_of(number))
    elapsed_s = time.perf_counter() - started_s
    _work()
    started_s = time.perf_counter()
    messages = channel.receive()
    elapsed_s += time.perf_counter() - started_s
    ready.append(float(bool(messages)))
    _check(messages or channel.receive(WAIT_S), number)
    return elapsed_s


def _check(messages: Sequence[object], number: int) -> None:
    if messages != [_table_of(number)]:
        raise RuntimeError(f"wrong answer to round {number}: {messages}")


def _table_of(number: int) -> Table:
    return Table(incarnation=2**63, number=number, sequences=(SEQUENCE,))


def _raw_round_trip_s(socket: "zmq.Socket[bytes]") -> float:
    data = encode(_round_of(1))
    started_s = time.perf_counter()
    socket.send(data)
    socket.recv()
    return time.perf_counter() - started_s


def _bytes_on_the_wire(address: Address, num_exchanges: int) -> float:
    """Bytes per exchange, both directions, that cross a tcp connection after its handshake."""
    host, _, port = (address.tcp or "").removeprefix("tcp://").rpartition(":")
    numbers = itertools.count()
    with ExitStack() as stack:
        relay = stack.enter_context(Relay(host, int(port)))
        by_relay = replace(address, ipc=None, tcp=f"tcp://127.0.0.1:{relay.port}")
        channel = stack.enter_context(_open(by_relay))
        _round_trip_s(channel, numbers)
        before = relay.bytes_up + relay.bytes_down
        for _ in range(num_exchanges):
            _round_trip_s(channel, numbers)
        return (relay.bytes_up + relay.bytes_down - before) / num_exchanges


@contextmanager
def _far() -> Iterator[_Far]:
    """Two processes that answer until the block ends: a listener, and plain sockets."""
    context = multiprocessing.get_context("spawn")
    keys, client = Keys.generate(), Keys.generate()
    with tempfile.TemporaryDirectory() as folder:
        raw = Address(
            node_id="n",
            ipc=f"ipc://{folder}/raw",
            server_public_key=keys.public,
            client_public_key=client.public,
            client_secret_key=client.secret,
        )
        ours, theirs = context.Pipe()
        processes = [
            context.Process(target=_answer, args=(theirs, Path(folder)), daemon=True),
            context.Process(target=_answer_plainly, args=(raw.ipc, keys.secret), daemon=True),
        ]
        for process in processes:
            process.start()
        theirs.close()
        try:
            yield _Far(address=Address.from_json(ours.recv()), raw=raw)
        finally:
            for process in processes:
                process.kill()
                process.join()


def _answer(pipe: Connection, folder: Path) -> None:
    with closing(ZmqListener("n", host="127.0.0.1", ipc_dir=folder)) as listener:
        pipe.send(listener.address.to_json())
        while True:
            for peer, message in listener.receive(WAIT_S):
                if isinstance(message, Round):
                    listener.send(peer, _table_of(message.number))


def _answer_plainly(endpoint: str, secret_key: str) -> None:
    answer = encode(_table_of(1))
    with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
        socket.curve_server, socket.curve_secretkey = True, secret_key.encode()
        socket.bind(endpoint)
        while True:
            peer, _ = socket.recv_multipart()
            socket.send_multipart([peer, answer])


@contextmanager
def _open(address: Address) -> Iterator[Channel]:
    with closing(connect(address, "n")) as channel:
        yield channel


@contextmanager
def _plain(address: Address) -> Iterator["zmq.Socket[bytes]"]:
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.linger = 0
        socket.curve_serverkey = (address.server_public_key or "").encode()
        socket.curve_publickey = (address.client_public_key or "").encode()
        socket.curve_secretkey = (address.client_secret_key or "").encode()
        socket.connect(address.ipc or "")
        yield socket
