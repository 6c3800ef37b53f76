"""Compile kernels.ll for this machine and hand out its functions as ctypes callables (which release the GIL).

Compiling takes two to three seconds, so the machine code is kept in the user's cache folder. The file name covers the
IR, the CPU and the compiler; a damaged file is compiled anew.
"""

import ctypes
import hashlib
import logging
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding as llvm

from cluster.engine.cache_dir import cache_root

_IR = Path(__file__).parent / "kernels.ll"
_DIGEST_BYTES = 32
_logger = logging.getLogger(__name__)


class Kernels:
    """The compiled functions.

    Args:
        cache_dir: where machine code is kept.

    Attributes:
        forward: (model *, batch *, thread) -> None; one thread's share of a forward pass.
        head_forward: (model *, head *, batch *, thread) -> None; the same for an EAGLE-3 head.
        move_kv: (model *, sources *, destinations *, count) -> None; copies the KV of single slots.
        wait: (ticket *, seen, timeout_us) -> new ticket value, or `seen` after the timeout.
        signal: (ticket *) -> None; adds one to the ticket.
    """

    def __init__(self, cache_dir: Path) -> None:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        machine = _target_machine()
        object_code = _load_or_compile(machine, cache_dir)
        # The engine owns the machine code: it lives as long as this object.
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(object_code))
        self._engine.finalize_object()
        self.forward = self._function("outrider_forward", None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32)
        pointer, int32 = ctypes.c_void_p, ctypes.c_int32
        self.head_forward = self._function("outrider_head_forward", None, pointer, pointer, pointer, int32)
        self.move_kv = self._function("outrider_move_kv", None, pointer, pointer, pointer, int32)
        self.wait = self._function("outrider_wait", ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32)
        self.signal = self._function("outrider_signal", None, ctypes.c_void_p)

    def _function(self, name: str, result: Any, *arguments: Any) -> Any:
        address = self._engine.get_function_address(name)
        return ctypes.CFUNCTYPE(result, *arguments)(address)


@cache
def load_kernels() -> Kernels:
    """The kernels of this process."""
    return Kernels(cache_root() / "kernels")


def _target_machine() -> llvm.TargetMachine:
    target = llvm.Target.from_default_triple()
    features = llvm.get_host_cpu_features().flatten()
    return target.create_target_machine(cpu=llvm.get_host_cpu_name(), features=features, opt=3, jit=True)


def _load_or_compile(machine: llvm.TargetMachine, cache_dir: Path) -> bytes:
    ir = _IR.read_text()
    features = llvm.get_host_cpu_features().flatten()
    identity = "\n".join((llvmlite.__version__, machine.triple, llvm.get_host_cpu_name(), features, ir))
    path = cache_dir / f"{hashlib.sha256(identity.encode()).hexdigest()[:32]}.o"
    if (object_code := _read(path)) is not None:
        return object_code
    object_code = _compile(ir, machine)
    try:
        _write(path, object_code)
    except OSError as error:  # A read-only home costs time at each start, nothing else.
        _logger.info("machine code is not kept: %s", error)
    return object_code


def _compile(ir: str, machine: llvm.TargetMachine) -> bytes:
    module = llvm.parse_assembly(ir)
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=3))
    builder.getModulePassManager().run(module, builder)
    return bytes(machine.emit_object(module))


def _read(path: Path) -> bytes | None:
    """The object code in `path` if it is there and whole."""
    if not path.exists():
        return None
    content = path.read_bytes()
    digest, object_code = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
    return object_code if hashlib.sha256(object_code).digest() == digest else None


def _write(path: Path, object_code: bytes) -> None:
    """Replace `path` in one step, so that processes that start together never read half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(hashlib.sha256(object_code).digest() + object_code)
    Path(file.name).replace(path)
