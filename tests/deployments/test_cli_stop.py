"""Signals to `outrider serve`."""

import signal
from collections.abc import Iterator

import pytest

from deployments.cli_stop import Stop

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@pytest.fixture
def stop() -> Iterator[Stop]:
    before = [signal.getsignal(number) for number in SIGNALS]
    yield Stop()
    for number, handler in zip(SIGNALS, before, strict=True):
        signal.signal(number, handler)


@pytest.mark.parametrize("number", SIGNALS)
def test_before_anything_is_served_the_first_signal_ends_it_at_once(stop: Stop, number: int) -> None:
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(number)
    assert stop.at_once


@pytest.mark.parametrize("number", SIGNALS)
def test_while_requests_may_be_open_the_first_signal_asks_and_the_second_ends_at_once(stop: Stop, number: int) -> None:
    stop.wait_politely()
    signal.raise_signal(number)
    assert stop.asked.is_set()
    assert not stop.at_once
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    assert stop.at_once


def test_the_last_steps_are_not_interrupted(stop: Stop) -> None:
    stop.wait_politely()
    stop.ignore()
    signal.raise_signal(signal.SIGTERM)
    assert not stop.asked.is_set()
