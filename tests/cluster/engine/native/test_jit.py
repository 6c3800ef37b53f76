"""The shipped IR belongs to the C source, names no machine, and its machine code is cached safely."""

import ctypes
from pathlib import Path

from cluster.engine.native import jit, make_ir


def test_ir_was_made_from_the_current_source() -> None:
    assert make_ir.IR.read_text().splitlines()[0] == f"; kernels.c sha256 {make_ir.source_hash()}"


def test_ir_names_no_machine() -> None:
    ir = make_ir.IR.read_text()
    assert not [word for word in ("target triple", "target-cpu", "target-features", "avx") if word in ir]


def ticks(kernels: jit.Kernels) -> int:
    ticket = ctypes.c_int32(4)
    kernels.signal(ctypes.addressof(ticket))
    return ticket.value


def test_machine_code_is_kept_used_again_and_replaced_when_damaged(tmp_path: Path) -> None:
    assert ticks(jit.Kernels(tmp_path)) == 5
    (path,) = tmp_path.iterdir()
    written, content = path.stat().st_mtime_ns, path.read_bytes()
    assert ticks(jit.Kernels(tmp_path)) == 5
    assert path.stat().st_mtime_ns == written
    path.write_bytes(content[:-100])
    assert ticks(jit.Kernels(tmp_path)) == 5
    assert path.read_bytes() == content


def test_an_unwritable_cache_only_costs_time(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    assert ticks(jit.Kernels(blocked / "kernels")) == 5


def test_wait_times_out_when_nobody_signals() -> None:
    kernels = jit.load_kernels()
    ticket = ctypes.c_int32(7)
    assert kernels.wait(ctypes.addressof(ticket), 7, 200) == 7
    assert kernels.wait(ctypes.addressof(ticket), 6, 200) == 7
