"""Energy of the GPUs that a replica holds, by NVIDIA's library where it is installed and finds them. Never raises."""

import logging
from collections.abc import Sequence
from typing import Any, Protocol

_logger = logging.getLogger(__name__)

_MILLI = 1e-3


class Nvml(Protocol):
    """The few functions of the module `pynvml` (package nvidia-ml-py) that are used."""

    NVMLError: type[Exception]

    def nvmlInit(self) -> None:  # noqa: N802 -- NVIDIA's names
        """Load the driver's library."""
        ...

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any:  # noqa: N802
        """A GPU by its place on the bus."""
        ...

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> Any:  # noqa: N802
        """A GPU by its id."""
        ...

    def nvmlDeviceGetName(self, handle: Any) -> str | bytes:  # noqa: N802
        """Such as `NVIDIA H100 80GB HBM3`."""
        ...

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: Any) -> int:  # noqa: N802
        """Millijoules since the driver was loaded."""
        ...


class GpuEnergy:
    """The energy counters of a few GPUs. Not thread safe.

    Args:
        nvml: the library, loaded.
        handles: of the GPUs.
        share: of each that belongs to the replica, 0..1: a GPU may be shared.

    Attributes:
        names: of the GPUs.
    """

    def __init__(self, nvml: Nvml, handles: Sequence[Any], share: float = 1.0) -> None:
        self._nvml, self._handles, self._share = nvml, tuple(handles), share
        self.names = tuple(_text(nvml.nvmlDeviceGetName(handle)) for handle in handles)
        self._last_mj = [self._read_mj(handle) for handle in self._handles]

    def take_joules(self) -> float | None:
        """Energy since the last call, or since the start; None where no GPU counts it."""
        found = False
        total_mj = 0
        for index, handle in enumerate(self._handles):
            now_mj, last_mj = self._read_mj(handle), self._last_mj[index]
            if now_mj is None:
                continue  # A GPU that does not answer now may do so later; its counter goes on meanwhile.
            found = True
            # A counter below its last value began anew with the driver.
            total_mj += now_mj - last_mj if last_mj is not None and now_mj >= last_mj else 0
            self._last_mj[index] = now_mj
        return total_mj * _MILLI * self._share if found else None

    def _read_mj(self, handle: Any) -> int | None:
        try:
            return self._nvml.nvmlDeviceGetTotalEnergyConsumption(handle)
        except self._nvml.NVMLError as error:
            _logger.debug("a GPU's energy counter cannot be read: %s", error)
            return None


def find_gpus(ids: Sequence[str], *, share: float = 1.0, nvml: Nvml | None = None) -> GpuEnergy | None:
    """The GPUs with these ids; None without ids, without the library, or where it does not know them.

    Args:
        ids: places on the bus ("0") or ids ("GPU-..."), as in CUDA_VISIBLE_DEVICES.
        share: of each that belongs to the replica, 0..1.
        nvml: the library instead of `pynvml`.
    """
    if not ids:
        return None
    if nvml is None:
        try:
            import pynvml
        except ImportError:
            _logger.info("nvidia-ml-py is not installed: no energy of GPUs, and no prices by their names")
            return None
        nvml = pynvml
    try:
        nvml.nvmlInit()
        return GpuEnergy(nvml, [_handle(nvml, gpu) for gpu in ids], share)
    except nvml.NVMLError as error:
        _logger.info("no energy of GPUs, and no prices by their names: %s", error)
        return None


def _handle(nvml: Nvml, gpu: str) -> Any:
    return nvml.nvmlDeviceGetHandleByIndex(int(gpu)) if gpu.isdecimal() else nvml.nvmlDeviceGetHandleByUUID(gpu)


def _text(name: str | bytes) -> str:
    return name.decode(errors="replace") if isinstance(name, bytes) else name
