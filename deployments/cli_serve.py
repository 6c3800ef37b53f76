"""`outrider serve`: Ray and Serve on this machine, one clear line when it is ready, nothing left after Ctrl-C."""

import argparse
import contextlib
import io
import logging
import os
import re
import socket
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from cluster.errors import ConfigError, LoadError, check_range
from deployments.auth import check_exposure, load_keys
from deployments.cli_app_args import add_app_arguments, read_app_args
from deployments.cli_stop import Stop, drain_gateways

if TYPE_CHECKING:
    from deployments.app import AppArgs

APP_NAME = "outrider"
MAX_GRACE_S = 86_400
INTERRUPTED = 130
"""Exit status after a second Ctrl-C, as shells have it."""

OBJECT_STORE_BYTES = 128 << 20

BEFORE_RAY = {
    # Lets Ray name this node 127.0.0.1, as it does by itself on other systems, and so listen there alone. Serve's
    # replicas listen on all addresses all the same, for calls among themselves, which need Ray's token.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    # Of the 30 s that Ray allows itself to start, a busy machine needs more.
    "RAY_raylet_start_wait_time_s": "180",
}
"""Environment that has to be there when Ray is imported, which reading the arguments does."""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the subcommand."""
    parser = subparsers.add_parser("serve", help="serve a model on this machine")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=8000, help="port to listen on (default: %(default)s)")
    add_app_arguments(parser)
    parser.add_argument(
        "--grace-s", type=float, default=30.0, metavar="S",
        help="how long open requests may go on after Ctrl-C or SIGTERM; again ends them at once (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--insecure", action="store_true", help="listen beyond this machine without API keys")
    parser.add_argument("--dashboard", action="store_true", help="start the Ray dashboard on 127.0.0.1 as well")
    parser.add_argument(
        "--ingress",
        choices=("direct", "proxy"),
        default="direct",
        help="let the gateway listen on the port itself, or Ray Serve's proxy (default: %(default)s)",
    )
    parser.add_argument("--startup-timeout-s", type=float, default=900.0, metavar="S", help=argparse.SUPPRESS)
    parser.add_argument("--verbose", action="store_true", help="show the logs of Ray and of the replicas")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Serve until interrupted.

    Raises:
        ConfigError: an argument is wrong, or the address cannot be used.
    """
    for name, value in BEFORE_RAY.items():
        os.environ.setdefault(name, value)
    check_range("--grace-s", args.grace_s, 0, MAX_GRACE_S, kind="seconds")
    check_exposure(args.host, load_keys(args.api_keys_file), insecure=args.insecure)
    _check_port(args.host, args.port)
    app_args = read_app_args(args)
    _check_ingress(args, app_args)
    stop = Stop()
    stdout = sys.stdout
    # Ray writes its own remarks to standard output; the one line there is ours.
    with contextlib.redirect_stdout(sys.stderr):
        try:
            return _serve(app_args, args, stop, stdout)
        except KeyboardInterrupt:
            return INTERRUPTED
        finally:
            _shut_down(stop, verbose=args.verbose)


def _serve(app_args: "AppArgs", args: argparse.Namespace, stop: Stop, stdout: TextIO) -> int:
    url = f"http://{_shown_host(args.host)}:{args.port}"
    with _progress("starting Ray", verbose=args.verbose) as say:
        _start_ray(args)
        stop.listen()
        say(f"loading the model {app_args.engine.model!r}")
        _deploy(app_args)
        say("waiting for the first round")
        _wait_healthy(url, args.startup_timeout_s)
    name = app_args.served_model_name or app_args.engine.model
    stop.wait_politely()
    print(f"Outrider is ready: {url}/v1 (model {name})", file=stdout, flush=True)
    stop.asked.wait()
    drain_gateways(APP_NAME, args.grace_s)
    return 0


def _check_ingress(args: argparse.Namespace, app_args: "AppArgs") -> None:
    """Several gateways cannot listen on one port: the proxy must."""
    if app_args.num_gateways > 1:
        args.ingress = "proxy"


def _check_port(host: str, port: int) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except (OSError, OverflowError) as error:
            raise ConfigError(field="host:port", value=f"{host}:{port}", allowed=f"a free address ({error})") from None


def _start_ray(args: argparse.Namespace) -> None:
    # Ray reads these when it is imported, here and in every process that it starts. What the user has set stays.
    for name, value in _environment(args).items():
        os.environ.setdefault(name, value)
    import ray
    from ray import serve

    level = logging.INFO if args.verbose else logging.ERROR
    logging.getLogger("ray.serve").setLevel(level)
    ray.init(
        address="local",
        num_cpus=max(2, os.cpu_count() or 1),
        object_store_memory=OBJECT_STORE_BYTES,
        include_dashboard=args.dashboard,
        dashboard_host="127.0.0.1",
        log_to_driver=args.verbose,
        logging_level=level,
    )
    serve.start(
        proxy_location="HeadOnly",
        http_options={"host": args.host, "port": args.port if args.ingress == "proxy" else _free_port()},
        logging_config={"log_level": logging.getLevelName(level), "enable_access_log": False},
    )


def _environment(args: argparse.Namespace) -> dict[str, str]:
    """Environment of a local Ray: quiet, quick to stop, and (direct) the gateway itself on the port.

    Without a proxy process in between, the time to the first token is 7 ms shorter. HAProxy, Serve's third way, is not
    offered: it does not pass on that a client hung up before its answer began, so the engine would work for nobody.
    """
    values = {
        "RAY_SERVE_LOG_TO_STDERR": "1" if args.verbose else "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "0.5",
        "RAY_SERVE_PROXY_MIN_DRAINING_PERIOD_S": "0.5",
        "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH": "deployments.http_guard:install",
    }
    if args.ingress == "proxy":
        return values
    return values | {
        "RAY_SERVE_ENABLE_DIRECT_INGRESS": "1",
        "RAY_SERVE_DIRECT_INGRESS_MIN_HTTP_PORT": str(args.port),
        "RAY_SERVE_DIRECT_INGRESS_MAX_HTTP_PORT": str(args.port + 1),
    }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _deploy(app_args: "AppArgs") -> None:
    from ray import serve

    from deployments.app import build_app

    try:
        serve.run(build_app(app_args), name=APP_NAME, route_prefix="/")
    except RuntimeError as error:
        deployments = serve.status().applications[APP_NAME].deployments.values()
        raise LoadError(why_not([each.message for each in deployments]) or str(error)) from error


def why_not(messages: Sequence[str]) -> str:
    """Why an application does not start: the last error line in what its deployments say; empty where none says any."""
    lines = [line.strip() for message in messages for line in message.splitlines()]
    errors = [line for line in lines if re.match(r"[\w.]*Error: ", line)]
    return re.sub(r"^cluster\.errors\.\w+: ", "", errors[-1]) if errors else ""


def _wait_healthy(url: str, timeout_s: float) -> None:
    """Return once /health answers."""
    end_s = time.monotonic() + timeout_s
    while True:
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=30) as answer:
                if answer.status == 200:
                    return
        except OSError as error:
            if time.monotonic() > end_s:
                raise ConfigError(
                    field="--startup-timeout-s", value=timeout_s, allowed=f"enough time to start ({error})"
                ) from None
        time.sleep(0.2)


def _shut_down(stop: Stop, *, verbose: bool) -> None:
    import ray
    from ray import serve

    if not ray.is_initialized():
        stop.ignore()
        return
    print("stopping", file=sys.stderr, flush=True)
    # Ray reports the end of its own controller as an accident.
    with contextlib.ExitStack() as stack:
        if not verbose:
            stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
        if not stop.at_once:
            with contextlib.suppress(KeyboardInterrupt):
                serve.shutdown()  # type: ignore[no-untyped-call]
        stop.ignore()
        ray.shutdown()


def _shown_host(host: str) -> str:
    if host in ("0.0.0.0", "::"):
        return "127.0.0.1"
    return f"[{host}]" if ":" in host else host


@contextlib.contextmanager
def _progress(first: str, *, verbose: bool) -> Iterator[Any]:
    """Show what start-up is doing: a spinner on a terminal, a line per phase elsewhere."""
    from rich.console import Console

    console = Console(stderr=True)
    if verbose or not console.is_terminal:
        print(f"{first} ...", file=sys.stderr, flush=True)
        yield lambda text: print(f"{text} ...", file=sys.stderr, flush=True)
        return
    with console.status(f"{first} ...") as status:
        yield lambda text: status.update(f"{text} ...")
