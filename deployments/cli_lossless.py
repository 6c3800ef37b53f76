"""`outrider verify-lossless`: proof on this machine that speculation changes no token."""

import argparse
import json
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from cluster.config import Acceptance, DraftConfig, Dtype, EngineConfig, Numerics, draft_model_for
from cluster.errors import ConfigError
from deployments.lossless_help import DESCRIPTION

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from cluster.engine.lossless.check import LosslessCheck
    from cluster.engine.lossless.report import Difference, Report

ALL, INTERRUPTED = "all", 130
OWN_DRAFTS = ("ngram", "grammar", "replay", "trees")
"""Sources of drafts that need nothing from outside."""

WEAK = 3
_KV_CACHE_TOKENS = 32_768


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the subcommand."""
    parser = subparsers.add_parser(
        "verify-lossless",
        help="prove that speculation changes no token",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    defaults = EngineConfig()
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    parser.add_argument(
        "--prompts",
        type=Path,
        metavar="FILE",
        help="your prompts, taken first: one per line, or .jsonl with strings or objects with `prompt` or `messages`",
    )
    parser.add_argument("--num-prompts", type=_positive, default=200, metavar="N", help="default: %(default)s")
    parser.add_argument(
        "--max-tokens", type=_positive, default=24, metavar="N", help="per request; default: %(default)s"
    )
    parser.add_argument("--num-alone", type=int, default=100, metavar="N", help="see above; default: %(default)s")
    parser.add_argument(
        "--drafter", default=ALL, metavar="NAME",
        help="check this source of drafts alone: ngram, grammar, replay, trees, drafter_actor, draft_model, or the "
        "kind of a --head; default: all",
    )  # fmt: skip
    parser.add_argument("--thorough", action="store_true", help="see above; takes about three times as long")
    parser.add_argument("--model", default=defaults.model, help="as in `outrider serve`; default: %(default)s")
    parser.add_argument("--revision", help="commit of a hub model")
    parser.add_argument(
        "--draft-model",
        metavar="VALUE",
        help='"bundled" or a folder; default: the bundled one, if there is one, beside the bundled model, else none',
    )
    parser.add_argument(
        "--head",
        action="append",
        default=[],
        metavar="VALUE",
        help='folder of a draft head, or "mtp"; may be given several times',
    )
    parser.add_argument("--dtype", choices=get_args(Dtype), default=defaults.dtype)
    parser.add_argument("--numerics", choices=get_args(Numerics), default=defaults.numerics)
    parser.add_argument("--acceptance", choices=get_args(Acceptance), default=defaults.acceptance, help="see above")
    parser.add_argument("--num-threads", type=int, default=defaults.num_threads, help="default: one per core")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the check and print what it found; returns the exit status.

    Raises:
        ConfigError: an argument is wrong.
        LoadError: the model is refused or damaged.
    """
    from rich.console import Console

    from cluster.engine.lossless.check import LosslessCheck
    from cluster.engine.lossless.prompts import collect_prompts
    from cluster.engine.startup import load_parts
    from deployments.lossless_sources import draft_memory, draft_sources

    config, draft = _engine_config(args), _draft_config(args)
    prompts = collect_prompts(args.prompts, args.num_prompts)
    progress_console = Console(stderr=True)
    if draft is None or draft.model is None:
        progress_console.print("no draft model: drafter actor and draft model are left out (--draft-model)")
    with ExitStack() as stack:  # unwound in reverse: the drafter's process is gone before the target is
        with progress_console.status(f"loading {args.model}"):
            parts = load_parts(config, draft_memory(draft))
            stack.callback(parts.runner.close)
            sources = stack.enter_context(draft_sources(parts, config, draft))
        if args.max_tokens >= parts.runner.max_model_len:
            raise ConfigError(
                field="--max-tokens", value=args.max_tokens, allowed=f"less than {parts.runner.max_model_len}"
            )
        check = LosslessCheck(
            parts,
            config,
            prompts,
            max_tokens=args.max_tokens,
            thorough=args.thorough,
            num_alone=args.num_alone,
            sources=sources,
            drafts=None if args.drafter == ALL else _drafts_of(args.drafter, sources),
        )
        _run_with_progress(check, progress_console)
    if args.json:
        print(json.dumps(check.report.as_json()))
    else:
        _print_report(check.report, Console())
    return _status(check.report)


def _drafts_of(name: str, sources: Collection[str]) -> str:
    """The source of drafts of that name, as scenarios know it.

    Raises:
        ConfigError: there is none.
    """
    known = {source.removeprefix("head ").replace(" ", "_"): source for source in (*OWN_DRAFTS, *sources)}
    if name not in known:
        raise ConfigError(field="--drafter", value=name, allowed=f"one of {', '.join((ALL, *known))}")
    return known[name]


def _engine_config(args: argparse.Namespace) -> EngineConfig:
    if args.acceptance != "coupled":
        raise ConfigError(
            field="--acceptance",
            value=args.acceptance,
            allowed="coupled: otherwise tokens depend on the drafts, and there is nothing to compare (see --help)",
        )
    return EngineConfig(
        model=_for_any_folder(args.model),
        revision=args.revision,
        dtype=args.dtype,
        numerics=args.numerics,
        num_threads=args.num_threads,
        kv_cache_tokens=_KV_CACHE_TOKENS,
    )


def _draft_config(args: argparse.Namespace) -> DraftConfig | None:
    """The draft model in force, as in `outrider serve`; it drafts as far as any request may ask."""
    from cluster.engine.lossless.cases import LOOKAHEADS

    name = draft_model_for(args.model, args.draft_model)
    if name is None and not args.head:
        return None
    return DraftConfig(
        model=None if name is None else _for_any_folder(name),
        heads=tuple(_for_any_folder(head) for head in args.head),
        num_speculative_tokens=max(LOOKAHEADS),
        kv_cache_tokens=_KV_CACHE_TOKENS,
    )


def _for_any_folder(name: str) -> str:
    """A name of a model that another process understands, which may run in another folder."""
    path = Path(name).expanduser()
    return str(path.resolve()) if path.is_dir() else name


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def _run_with_progress(check: "LosslessCheck", console: "Console") -> None:
    from rich import progress as bars

    text = bars.TextColumn("{task.description}")
    columns = (bars.BarColumn(), bars.MofNCompleteColumn(), bars.TimeElapsedColumn(), bars.TimeRemainingColumn(), text)
    with bars.Progress(*columns, console=console) as progress:
        task = progress.add_task("requests", total=check.num_requests)

        def on_phase(text: str) -> None:
            report = check.report
            progress.update(task, description=f"{text} [{report.num_compared - report.num_identical} differ]")

        try:
            check.run(on_phase, lambda: progress.advance(task))
        except KeyboardInterrupt:
            console.print("interrupted; what was compared so far:")


def _status(report: "Report") -> int:
    if report.num_identical < report.num_compared:
        return 1
    if not report.is_complete:
        return INTERRUPTED
    return WEAK if report.weaknesses else 0


def _print_report(report: "Report", console: "Console") -> None:
    for difference in report.differences:
        _print_difference(difference, console)
    console.print(_table(report))
    console.print(
        f"{_verdict(report)}: {report.num_prompts_done} of {report.num_prompts} prompts, "
        f"{report.max_tokens} tokens each, {report.model} in {report.dtype}, numerics {report.numerics}, "
        f"{report.duration_s:.0f} s"
    )


def _verdict(report: "Report") -> str:
    num_different = report.num_compared - report.num_identical
    if num_different:
        return f"{num_different} of {report.num_compared} requests differ"
    if not report.num_compared:
        return "nothing was compared"
    identical = f"{report.num_compared} of {report.num_compared} requests are identical (100 %)"
    if report.weaknesses:
        return f"{identical}, but that proves too little ({_reasons(report.weaknesses)})"
    return identical


def _reasons(weaknesses: Mapping[str, str]) -> str:
    """Scenarios by what is wrong with them; their names have commas."""
    names: dict[str, list[str]] = {}
    for name, reason in weaknesses.items():
        names.setdefault(reason, []).append(name)
    return "; ".join(f"{reason} in {' / '.join(those)}" for reason, those in names.items())


def _print_difference(difference: "Difference", console: "Console") -> None:
    console.print(
        f"{difference.prompt} ({difference.setting}), {difference.scenario}, K={difference.num_speculative_tokens}: "
        f"token {difference.position} differs\n  expected {list(difference.expected)}\n  got      "
        f"{list(difference.actual)}\n  sampling {difference.sampling}",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )


def _table(report: "Report") -> "Table":
    from rich.table import Table

    from cluster.engine.lossless.cases import SETTINGS

    table = Table(title="requests identical / compared; draft tokens accepted / drafted")
    table.add_column("scenario", no_wrap=True)
    for heading in (*SETTINGS, "accepted", "preempted", "cached"):
        table.add_column(heading, justify="right")
    for name, result in report.scenarios.items():
        counts = [result.counts.get(setting) for setting in SETTINGS]
        table.add_row(
            name,
            *(f"{count.num_identical}/{count.num_compared}" if count else "-" for count in counts),
            f"{result.num_accepted_tokens}/{result.num_draft_tokens}" if result.must_draft else "-",
            str(result.num_preempted),
            str(result.num_cached_tokens),
        )
    return table
