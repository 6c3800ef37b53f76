"""The folder of a listener's unix socket: private, short enough for the kernel, swept after processes were killed."""

import os
import shutil
import socket
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from cluster.errors import ConfigError

_PREFIX = "outrider-"
_SOCKET_NAME = "s"
_MAX_PATH_BYTES = 107  # sockaddr_un
_MIN_AGE_S = 60.0
_PROTOCOL = "ipc://"


def make_socket_path(ipc_dir: Path) -> Path:
    """A path for a new socket, in a folder of its own that only this user may enter (0700).

    Raises:
        ConfigError: the folder cannot be made, or the path is too long for a unix socket.
    """
    sweep(ipc_dir)
    try:
        ipc_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=ipc_dir))
    except OSError as error:
        raise ConfigError(field="ipc_dir", value=str(ipc_dir), allowed=f"a folder to write in ({error})") from error
    path = folder / _SOCKET_NAME
    if len(os.fsencode(path)) > _MAX_PATH_BYTES:
        folder.rmdir()
        raise ConfigError(field="ipc_dir", value=str(ipc_dir), allowed=f"a path below {_MAX_PATH_BYTES - 20} bytes")
    return path


def remove_socket_path(path: Path) -> None:
    """Remove the socket and its folder."""
    shutil.rmtree(path.parent, ignore_errors=True)


def endpoint_of(path: Path) -> str:
    """The path as ZeroMQ writes it."""
    return f"{_PROTOCOL}{path}"


def path_of(endpoint: str) -> Path:
    """The path in an endpoint."""
    return Path(endpoint.removeprefix(_PROTOCOL))


def sweep(ipc_dir: Path) -> None:
    """Remove the folders of killed listeners. Asks the sockets: process ids of other containers mean nothing here."""
    with suppress(OSError):
        for path in ipc_dir.glob(f"{_PREFIX}*/{_SOCKET_NAME}"):
            if time.time() - path.stat().st_mtime > _MIN_AGE_S and _is_dead(path):
                remove_socket_path(path)


def _is_dead(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
    return False
