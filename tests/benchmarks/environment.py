"""What a number depends on besides the code: commit, versions, machine."""

import os
import platform
import subprocess
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("torch", "transformers", "numpy", "numba", "llvmlite", "ray")
ISA_FLAGS = ("avx2", "avx512f", "avx512_bf16", "avx512_fp16", "avx512_vnni", "amx_tile", "amx_bf16", "amx_int8")
IDLE_LOAD = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Attributes of one run.

    Attributes:
        commit: what is checked out, with "-dirty" when files differ from it; "unknown" outside a repository.
        versions: Python and the packages that do the work.
        cpu: the processor's name.
        isa: the vector extensions that matter here and are present.
        num_cores: cores that this process may use.
        load_before: load average of one minute at the start.
        load_after: the same at the end. The run itself adds to it.
    """

    commit: str
    versions: dict[str, str]
    cpu: str
    isa: tuple[str, ...]
    num_cores: int
    load_before: float
    load_after: float

    @property
    def was_idle(self) -> bool:
        """False when other work ran at the start: the numbers cannot be trusted."""
        return self.load_before <= IDLE_LOAD


def read_environment(load_before: float) -> Environment:
    """The environment at the end of a run that began under `load_before`."""
    cpu, isa = _cpu()
    return Environment(
        commit=_commit(),
        versions={"python": platform.python_version(), **{name: _version(name) for name in PACKAGES}},
        cpu=cpu,
        isa=isa,
        num_cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        load_before=load_before,
        load_after=load_average(),
    )


def load_average() -> float:
    """Runnable tasks, averaged over the last minute."""
    return os.getloadavg()[0]


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "missing"


def _commit() -> str:
    command = ("git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def _cpu() -> tuple[str, tuple[str, ...]]:
    path = Path("/proc/cpuinfo")
    if not path.exists():
        return platform.processor() or platform.machine(), ()
    fields = dict(line.split(":", 1) for line in path.read_text(encoding="utf-8").split("\n\n")[0].splitlines())
    fields = {name.strip(): value.strip() for name, value in fields.items()}
    flags = set(fields.get("flags", "").split())
    name = f"{fields.get('model name', 'unknown')} (family {fields.get('cpu family')}, model {fields.get('model')})"
    return name, tuple(flag for flag in ISA_FLAGS if flag in flags)
