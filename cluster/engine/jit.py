"""The one way to compile a numeric kernel, so that every kernel keeps IEEE arithmetic and runs without the GIL.

Fast-math stays off: LLVM then neither fuses a multiplication with an addition nor reorders sums, and a kernel built
from +, -, *, / and integer operations gives the same bits on every machine.
"""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import numba

P = ParamSpec("P")
R = TypeVar("R")


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function with numba on its first call; the machine code is cached on disk where that is possible.

    Args:
        function: a kernel over numpy arrays and scalars.

    Returns:
        The compiled function, callable from Python and from other kernels.
    """
    kernel: Callable[P, R]
    try:
        kernel = numba.njit(cache=True, nogil=True, error_model="numpy")(function)
    except RuntimeError:  # no writable place for the cache, as in a read-only container
        kernel = numba.njit(nogil=True, error_model="numpy")(function)
    return kernel
