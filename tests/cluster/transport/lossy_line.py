"""A cable between two network namespaces that loses and delays packets, made of two TUN devices and a thread.

For kernels without netem: the packets are real, and so is what tcp makes of their loss.
"""

import fcntl
import heapq
import itertools
import os
import random
import select
import struct
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

DEVICE = Path("/dev/net/tun")
_TUNSETIFF = 0x400454CA
_IFF_TUN_NO_PI = 0x1001
_MAX_PACKET_BYTES = 65_536


class LossyLine:
    """Both ends of a cable, to be moved into their namespaces; use it as a context manager.

    Args:
        names: of the two devices.
        loss: share of the packets that vanish, each way.
        delay_s: time on the way.

    Attributes:
        loss: may be set at any time.
        num_lost: packets that vanished.
    """

    def __init__(self, names: tuple[str, str], *, loss: float, delay_s: float) -> None:
        self.num_lost = 0
        self.loss, self._delay_s = loss, delay_s
        self._ends = tuple(_open_tun(name) for name in names)
        self._random = random.Random(0)
        self._order = itertools.count()
        self._under_way: list[tuple[float, int, int, bytes]] = []
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_closed = True
        self._thread.join()
        for end in self._ends:
            os.close(end)

    def _run(self) -> None:
        poller = select.poll()
        for end in self._ends:
            poller.register(end, select.POLLIN)
        while not self._is_closed:
            poller.poll(1 if self._under_way else 20)
            for source, target in (self._ends, self._ends[::-1]):
                self._take(source, target)
            self._deliver()

    def _take(self, source: int, target: int) -> None:
        while True:
            try:
                packet = os.read(source, _MAX_PACKET_BYTES)
            except OSError:  # nothing there, or not up yet
                return
            if self._random.random() < self.loss:
                self.num_lost += 1
                continue
            heapq.heappush(self._under_way, (time.monotonic() + self._delay_s, next(self._order), target, packet))

    def _deliver(self) -> None:
        while self._under_way and self._under_way[0][0] <= time.monotonic():
            _, _, target, packet = heapq.heappop(self._under_way)
            try:
                os.write(target, packet)
            except OSError:
                self.num_lost += 1


def _open_tun(name: str) -> int:
    end = os.open(DEVICE, os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(end, _TUNSETIFF, struct.pack("16sH", name.encode(), _IFF_TUN_NO_PI))
    return end
