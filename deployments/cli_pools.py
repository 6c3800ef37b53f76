"""`outrider pools`: what the controller of a running application knows and decided, and an operator's word to it."""

import argparse
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Set
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.errors import ConfigError
from deployments.cli_serve import BEFORE_RAY
from deployments.controller import CONTROLLER_NAME

if TYPE_CHECKING:
    from rich.console import Group

ANSWER_TIMEOUT_S = 15.0
NUM_SHOWN_DECISIONS = 8
_FILE_WIDTH = 160

Call = Callable[..., dict[str, Any]]
"""Calls a method of the controller."""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the subcommand."""
    parser = subparsers.add_parser("pools", help="show and steer the pools of a running application")
    actions = parser.add_subparsers(title="actions", required=True, metavar="ACTION")
    status = actions.add_parser("status", help="show pools, replicas and the last decisions")
    status.add_argument("--watch", action="store_true", help="show it anew every second, until Ctrl-C")
    pin = actions.add_parser("pin", help="fix the number of speculative replicas for a time")
    pin.add_argument("num_speculative", type=int, metavar="N", help="replicas of role speculative")
    pin.add_argument("--seconds", type=float, required=True, metavar="S", help="how long; then the load decides again")
    unpin = actions.add_parser("unpin", help="let the load decide again")
    shift = actions.add_parser("shift", help="move to N speculative replicas now; the load decides again soon after")
    shift.add_argument("num_speculative", type=int, metavar="N", help="replicas of role speculative")
    shift.add_argument("--dry-run", action="store_true", help="only tell which replicas would change their role")
    for action, run_action in ((status, _status), (pin, _pin), (unpin, _unpin), (shift, _shift)):
        action.add_argument("--json", action="store_true", help="one JSON line instead of tables")
        action.add_argument("--app", metavar="NAME", help="the Serve application (default: the one with a controller)")
        action.add_argument("--address", default="auto", help="of the Ray cluster (default: %(default)s)")
        action.set_defaults(run=run, run_action=run_action)


def run(args: argparse.Namespace) -> int:
    """Connect and do what is asked.

    Raises:
        ConfigError: there is no such cluster or application, or an argument is out of range.
    """
    _connect(args.address)
    import ray

    try:
        call = _controller(args.app)
        status: int = args.run_action(args, call)
    except KeyboardInterrupt:
        return 0
    finally:
        ray.shutdown()
    return status


def _status(args: argparse.Namespace, call: Call) -> int:
    if not args.watch:
        _show(args, call("status"), render_status)
        return 0
    if args.json:
        while True:
            _show(args, call("status"), render_status)
            sys.stdout.flush()
            time.sleep(1)
    from rich.live import Live

    with Live(render_status(call("status")), screen=False) as live:
        while True:
            time.sleep(1)
            live.update(render_status(call("status")))


def _pin(args: argparse.Namespace, call: Call) -> int:
    _show(args, call("pin", args.num_speculative, args.seconds), render_status)
    return 0


def _unpin(args: argparse.Namespace, call: Call) -> int:
    _show(args, call("unpin"), render_status)
    return 0


def _shift(args: argparse.Namespace, call: Call) -> int:
    _show(args, call("shift", args.num_speculative, args.dry_run), render_shift)
    return 0


def _connect(asked: str) -> None:
    address = address_here(gcs_addresses()) if asked == "auto" else asked
    # A cluster started on this machine asks for the token in this file. Ray reads the mode when it is imported.
    if (Path.home() / ".ray" / "auth_token").exists():
        os.environ.setdefault("RAY_AUTH_MODE", "token")
    if is_on_loopback(address):
        os.environ |= {name: os.environ.get(name, value) for name, value in BEFORE_RAY.items()}
    import ray

    for name in ("ray", "ray.serve"):
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, ValueError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ConfigError(field="--address", value=asked, allowed=f"a running Ray cluster ({reason})") from None


def gcs_addresses() -> set[str]:
    """Addresses of the Ray clusters that this machine is part of, as their raylets were told them.

    Ray's own way to find them puts this machine's name in the place of 127.0.0.1, where nothing listens.
    """
    found = set()
    for cmdline in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = cmdline.read_bytes().decode(errors="replace").split("\0")
            if Path(words[0]).name == "raylet":
                found |= {word.partition("=")[2] for word in words if word.startswith("--gcs-address=")}
    return found


def address_here(found: Set[str]) -> str:
    """The one that is meant by "auto"; Ray decides where none was found, or a variable names one.

    Raises:
        ConfigError: there are several.
    """
    if len(found) > 1 and "RAY_ADDRESS" not in os.environ:
        raise ConfigError(field="--address", value="auto", allowed=f"one of {', '.join(sorted(found))}")
    return "auto" if "RAY_ADDRESS" in os.environ or not found else next(iter(found))


def is_on_loopback(address: str) -> bool:
    """True for a Ray that `outrider serve` has started here: it knows this machine as 127.0.0.1."""
    return address.startswith("127.")


def _controller(app: str | None) -> Call:
    """How to call the controller of an application.

    Raises:
        ConfigError: there is none.
    """
    from ray import serve

    applications = serve.status().applications
    with_pools = [name for name, each in applications.items() if CONTROLLER_NAME in each.deployments]
    if app is None and len(with_pools) == 1:
        (app,) = with_pools
    if app not in with_pools:
        names = ", ".join(with_pools) or f"none here: of {len(applications)} applications none has pools"
        raise ConfigError(field="--app", value=app, allowed=f"an application with pools ({names})")
    handle: Any = serve.get_deployment_handle(CONTROLLER_NAME, app_name=app)

    def call(method: str, *arguments: object) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = (
                handle.options(method_name=method).remote(*arguments).result(timeout_s=ANSWER_TIMEOUT_S)
            )
        except TimeoutError:
            allowed = f"a controller that answers within {ANSWER_TIMEOUT_S:g} s; it may be starting again"
            raise ConfigError(field="--app", value=app, allowed=allowed) from None
        if (error := answer.get("error")) is not None:
            raise ConfigError(field=error["field"], value=error["value"], allowed=error["allowed"])
        return answer

    return call


def _show(args: argparse.Namespace, answer: dict[str, Any], render: "Callable[[dict[str, Any]], Group]") -> None:
    if args.json:
        print(json.dumps(answer))
        return
    from rich.console import Console

    console = Console()
    # Piped into a file, tables would be cut to the width of an old terminal.
    Console(width=console.width if console.is_terminal else _FILE_WIDTH).print(render(answer))


def render_status(status: dict[str, Any]) -> "Group":
    """A status as tables."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    config, decision, pinned = status["config"], status["decision"], status["pin"]
    head = Text.assemble(
        ("mode ", "dim"), config["mode"], ("  objectives ", "dim"),
        f"TTFT {config['ttft_slo_s']:g} s, TPOT {config['tpot_slo_s']:g} s",
        ("  now ", "dim"), (decision["reason"], "bold"),
        ("  wants ", "dim"), f"{decision['num_replicas']} replicas",
        "" if pinned is None else f"  pinned to {pinned['num_speculative']} for {pinned['seconds_left']:.0f} s more",
    )  # fmt: skip
    pools = Table(
        "pool", *map(_right, ("replicas", "running", "waiting", "tokens/s", "TPOT of one more")), title="Pools"
    )
    for role, load in sorted(status["pools"].items(), reverse=True):
        pools.add_row(
            role, str(load["num_replicas"]), str(load["num_running"]), str(load["num_waiting"]),
            f"{load['tokens_per_s']:.1f}", _seconds(load["tpot_s"]),
        )  # fmt: skip
    replicas = Table(
        "replica", "role", *map(_right, ("running", "waiting", "tokens/s", "accepted", "TTFT p95", "TPOT p95", "KV",
        "flip", "heard")), title="Replicas",
    )  # fmt: skip
    for each in status["replicas"]:
        replicas.add_row(*_replica_row(each))
    decisions = Table("ago", "decision", "move", title="Decisions that changed something")
    for each in _changes(status["decisions"])[-NUM_SHOWN_DECISIONS:]:
        move = each["move"]
        decisions.add_row(
            f"{each['age_s']:.1f} s", each["reason"], "" if move is None else f"{move['replica_id']} → {move['role']}"
        )
    return Group(head, pools, replicas, decisions)


def render_shift(answer: dict[str, Any]) -> "Group":
    """What a shift does, or would do, as a table."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    count = len(answer["moves"])
    what = "would change" if answer["dry_run"] else f"to change, and to stay for {answer['hold_s']:g} s"
    table = Table("replica", "new role")
    for move in answer["moves"]:
        table.add_row(move["replica_id"], move["role"])
    return Group(Text(f"{count} {'replica' if count == 1 else 'replicas'} {what}"), *([table] if count else []))


def _replica_row(replica: dict[str, Any]) -> tuple[str, ...]:
    role = (
        replica["role"]
        if replica["wanted_role"] == replica["role"]
        else f"{replica['role']} → {replica['wanted_role']}"
    )
    accepted, latency = replica["acceptance_rate"], replica["latency"]
    return (
        replica["replica_id"],
        f"{role} (leaving)" if replica["is_draining"] else role,
        str(replica["num_running"]),
        str(replica["num_waiting"]),
        f"{replica['tokens_per_s']:.1f}",
        "-" if accepted is None else f"{accepted:.0%}",
        _seconds(latency["ttft_p95_s"]),
        _seconds(latency["tpot_p95_s"]),
        f"{replica['kv_usage_ratio']:.0%}",
        _seconds(replica["flip_s"]),
        f"{replica['age_s']:.1f} s",
    )


def _changes(decisions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Decisions with a move, or with another reason than the one before."""
    before = [None, *(each["reason"] for each in decisions)]
    return [each for last, each in zip(before, decisions, strict=False) if each["move"] or each["reason"] != last]


def _right(name: str) -> Any:
    from rich.table import Column

    return Column(name, justify="right")


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g} s"
