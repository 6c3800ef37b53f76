"""Compile kernels.c to portable LLVM IR: `python -m cluster.engine.native.make_ir`, needs clang 19.

The IR names no CPU: `jit.py` compiles it for the machine it runs on. Its first line holds the hash of the C source, so
a test can tell when the two drift apart.
"""

import hashlib
import re
import subprocess
from pathlib import Path

HERE = Path(__file__).parent
SOURCE, IR = HERE / "kernels.c", HERE / "kernels.ll"

# AVX-512 is named only so that vectors are passed by value; the features are stripped again below.
_CLANG = (
    "clang-19 --target=x86_64-unknown-linux-gnu -mavx512f -std=c11 -O2 -Xclang -disable-llvm-passes "
    "-fno-math-errno -ffp-contract=off -fno-unwind-tables -fno-asynchronous-unwind-tables -fno-stack-protector "
    "-Wall -Werror -S -emit-llvm"
)


def source_hash() -> str:
    """Hash of the C source as the IR's first line carries it."""
    return hashlib.sha256(SOURCE.read_bytes()).hexdigest()


def strip_target(ir: str) -> str:
    """Drop everything that ties the IR to the machine that wrote it."""
    ir = re.sub(r"^(target (datalayout|triple)|source_filename|!llvm\.ident|; ModuleID).*\n", "", ir, flags=re.M)
    ir = re.sub(
        r' "(target-cpu|target-features|tune-cpu|stack-protector-buffer-size|min-legal-vector-width)"="[^"]*"', "", ir
    )
    # Without these LLVM splits 512-bit vectors in two on some CPUs.
    return ir.replace(
        '"no-trapping-math"="true"',
        '"no-trapping-math"="true" "min-legal-vector-width"="512" "prefer-vector-width"="512"',
    )


def main() -> None:
    """Write kernels.ll."""
    ir = subprocess.run([*_CLANG.split(), "-o", "-", str(SOURCE)], check=True, capture_output=True, text=True).stdout
    IR.write_text(f"; kernels.c sha256 {source_hash()}\n{strip_target(ir)}")


if __name__ == "__main__":
    main()
