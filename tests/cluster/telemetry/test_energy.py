"""Energy counters, against a fake of the few functions of `pynvml` that are called."""

from typing import Any

import pytest

from cluster.telemetry.energy import find_gpus


class FakeNvmlError(Exception):
    pass


class FakeNvml:
    """Two GPUs, by index or id; an MIG slice that counts no energy."""

    NVMLError: type[Exception] = FakeNvmlError

    def __init__(self, *, is_there: bool = True) -> None:
        self.is_there = is_there
        self.millijoules: dict[str, int | None] = {"GPU-a": 5_000, "GPU-b": 70_000, "MIG-c": None}

    def nvmlInit(self) -> None:  # noqa: N802 -- NVIDIA's names
        if not self.is_there:
            raise FakeNvmlError("Driver Not Loaded")

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any:  # noqa: N802
        if index >= 2:
            raise FakeNvmlError("Invalid Argument")
        return ("GPU-a", "GPU-b")[index]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> Any:  # noqa: N802
        if uuid not in self.millijoules:
            raise FakeNvmlError("Not Found")
        return uuid

    def nvmlDeviceGetName(self, handle: Any) -> str | bytes:  # noqa: N802
        return b"NVIDIA H100" if handle == "GPU-a" else "NVIDIA H200"

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: Any) -> int:  # noqa: N802
        value = self.millijoules[handle]
        if value is None:
            raise FakeNvmlError("Not Supported")
        return value


def test_joules_are_what_the_counters_rose_by_since_the_last_look() -> None:
    nvml = FakeNvml()
    gpus = find_gpus(["0", "GPU-b"], nvml=nvml)
    assert gpus is not None
    assert gpus.names == ("NVIDIA H100", "NVIDIA H200")
    assert gpus.take_joules() == 0
    nvml.millijoules |= {"GPU-a": 6_500, "GPU-b": 70_500}
    assert gpus.take_joules() == pytest.approx(2.0)
    assert gpus.take_joules() == 0


def test_a_shared_gpu_gives_its_share() -> None:
    nvml = FakeNvml()
    gpus = find_gpus(["0"], share=0.25, nvml=nvml)
    assert gpus is not None
    nvml.millijoules["GPU-a"] = 9_000
    assert gpus.take_joules() == pytest.approx(1.0)


def test_a_gpu_without_a_counter_says_nothing_and_raises_nothing() -> None:
    gpus = find_gpus(["MIG-c"], nvml=FakeNvml())
    assert gpus is not None
    assert gpus.take_joules() is None


def test_a_counter_that_does_not_answer_for_a_while_loses_nothing() -> None:
    nvml = FakeNvml()
    gpus = find_gpus(["0"], nvml=nvml)
    assert gpus is not None
    nvml.millijoules["GPU-a"] = None
    assert gpus.take_joules() is None
    nvml.millijoules["GPU-a"] = 8_000
    assert gpus.take_joules() == pytest.approx(3.0)


def test_a_counter_that_begins_anew_does_not_go_backwards() -> None:
    nvml = FakeNvml()
    gpus = find_gpus(["0"], nvml=nvml)
    assert gpus is not None
    nvml.millijoules["GPU-a"] = 100
    assert gpus.take_joules() == 0
    nvml.millijoules["GPU-a"] = 600
    assert gpus.take_joules() == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("ids", "nvml"), [([], FakeNvml()), (["0"], FakeNvml(is_there=False)), (["7"], FakeNvml()), (["x"], FakeNvml())]
)
def test_where_nothing_is_known_there_is_no_counter(ids: list[str], nvml: FakeNvml) -> None:
    assert find_gpus(ids, nvml=nvml) is None
