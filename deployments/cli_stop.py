"""How `outrider serve` ends: signals, and the time that open requests are given."""

import contextlib
import signal
import sys
import threading
import time
from typing import Any

POLL_S = 0.2
CALL_TIMEOUT_S = 5.0


class Stop:
    """Ctrl-C and SIGTERM: the first one asks, a second one interrupts. Before anything is served, the first one does.

    Belongs to the main thread.
    """

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.at_once = False
        self._is_polite = False
        self.listen()

    def listen(self) -> None:
        """Hear of signals; once more after Ray has started, which puts handlers of its own in place."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._handle)

    def wait_politely(self) -> None:
        """From now on requests may be open: the first signal only asks."""
        self._is_polite = True

    def ignore(self) -> None:
        """What is left to do must not be interrupted any more."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)

    def _handle(self, _: int, __: object) -> None:
        if self._is_polite and not self.asked.is_set():
            self.asked.set()
            return
        self.at_once = True
        raise KeyboardInterrupt


def drain_gateways(app_name: str, grace_s: float) -> None:
    """Let the gateways take no new work, and wait until they have none, but not longer than the grace time.

    Args:
        app_name: of the Serve application.
        grace_s: seconds; what is open then ends with an error.
    """
    from ray import serve

    gateways: Any = serve.get_app_handle(app_name)
    end_s = time.monotonic() + grace_s
    _ask(gateways, "drain", grace_s)
    # Between two steps of its life a request is not counted for a moment: none has to be seen twice.
    num_idle, is_told = 0, False
    while num_idle < 2 and time.monotonic() < end_s + POLL_S:
        num_active = sum(_ask(gateways, "num_active"))
        num_idle = 0 if num_active else num_idle + 1
        if num_active and not is_told:
            is_told = True
            print(f"{num_active} open requests may finish; Ctrl-C again ends them", file=sys.stderr, flush=True)
        time.sleep(POLL_S)


def _ask(gateways: Any, method: str, *args: float) -> list[Any]:
    """What the gateways answer; nothing where there is none left."""
    with contextlib.suppress(Exception):
        results = gateways.broadcast(method, *args).results(timeout_s=CALL_TIMEOUT_S, return_exceptions=True)
        return [result for result in results if not isinstance(result, BaseException)]
    return []
