"""A drafter in a process of its own on this machine, without Ray: for checks and benchmarks of the real thing.

`python -m deployments.drafter_process` reads its settings as one JSON line, prints its `DrafterRecord` as one JSON line
once it listens, and ends when its standard input closes. `drafter_process` starts one.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.config import DraftConfig, EngineConfig
from cluster.errors import LoadError
from cluster.transport.zmq import ZmqListener
from deployments.discovery import DrafterRecord, record_from_json
from deployments.drafter import SWITCH_INTERVAL_S
from deployments.drafter_core import Ahead, DrafterCore
from deployments.drafter_model import DrafterModel

if TYPE_CHECKING:
    from cluster.engine.drafters.run_ahead import RunAhead

NODE_ID = "this machine"
_END_TIMEOUT_S = 10.0
_ROOT = Path(__file__).parents[1]


@dataclass(slots=True)
class DrafterProcess:
    """A drafter that was started.

    Attributes:
        record: where it listens, and for which target it drafts.
        process: the running one.
    """

    record: DrafterRecord
    process: "subprocess.Popen[str]"

    def stop(self) -> str:
        """Let it end by itself; returns what it printed since. May be called again."""
        assert self.process.stdin is not None and self.process.stdout is not None
        if self.process.stdin.closed:
            return ""
        self.process.stdin.close()
        printed = self.process.stdout.read()
        self.process.wait(_END_TIMEOUT_S)
        return printed


@contextmanager
def drafter_process(
    engine: EngineConfig, draft: DraftConfig, *, cores: Sequence[int] = (), module: str = __name__
) -> Iterator[DrafterProcess]:
    """A drafter that listens for the verifiers of this machine; it is gone at the end of the block.

    Args:
        engine: names the target.
        draft: the draft model; `draft.model` is not None.
        cores: where it may run; empty for all.
        module: whose `main` runs.

    Raises:
        LoadError: it did not come up; its own words stand on standard error.
    """
    # The socket's folder is this process's, so that nothing stays behind when the drafter is killed.
    folder = tempfile.TemporaryDirectory(prefix="outrider-")
    settings = {
        "model": engine.model,
        "revision": engine.revision,
        "draft": asdict(draft),
        "cores": list(cores),
        "ipc_dir": folder.name,
    }
    environment = os.environ | {"OMP_NUM_THREADS": str(draft.num_threads)}
    process = subprocess.Popen(
        [sys.executable, "-m", module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=_ROOT,
        env=environment,
        start_new_session=True,  # Ctrl-C is for the process that asked, which ends this one.
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        process.stdin.write(json.dumps(settings) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        record = record_from_json(json.loads(line)) if line else None
        if record is None:
            raise LoadError("the drafter's process did not start")
        yield DrafterProcess(record, process)
    finally:
        process.stdin.close()
        try:
            process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
        folder.cleanup()


def main(wrap: Callable[["RunAhead"], Ahead] = lambda ahead: ahead) -> Ahead:
    """Run a drafter until standard input closes.

    Args:
        wrap: puts something between channel and draft model.

    Returns:
        What `wrap` returned.
    """
    settings: dict[str, Any] = json.loads(sys.stdin.readline())
    if settings["cores"]:
        os.sched_setaffinity(0, set(settings["cores"]))
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    draft = DraftConfig(**settings["draft"])
    model = DrafterModel(EngineConfig(model=settings["model"], revision=settings["revision"]), draft, on_gpu=False)
    ahead = wrap(model.build())
    listener = ZmqListener(NODE_ID, host=None, ipc_dir=Path(settings["ipc_dir"]))
    core = DrafterCore(listener, lambda: ahead, release=model.release)
    core.start()
    record = model.record(replica=f"drafter-{os.getpid()}", node_id=NODE_ID, address=listener.address)
    sys.stdout.write(json.dumps(record.to_json()) + "\n")
    sys.stdout.flush()
    sys.stdin.read()
    core.stop()
    return ahead


if __name__ == "__main__":
    main()
