"""`outrider plan`: what a model takes of GPUs, and how to place it, without a GPU or a network."""

import argparse
import json
import re
from dataclasses import replace

from autoscaling.simulation.hardware import GPUS
from cluster.config import TARGETS_OWN_HEAD, EngineConfig
from cluster.engine.known_shapes import KNOWN_CONFIGS, find_shape
from cluster.engine.shapes import DTYPE_BYTES, LatentAttention, ModelShape
from cluster.errors import ConfigError, check_range
from deployments.plan_request import GIB, GPUS_PER_NODE, PLACES, RESERVE_BYTES, ROWS, SEQUENCE_TOKENS, PlanRequest
from deployments.verifier_config import RoleSeats

_DESCRIPTION = f"""\
Work out what a target takes of GPUs, before there is one: ranks of a verifier, memory of each GPU, tokens of KV, how
many sequences run at once in each role, and a Serve configuration with the placement groups. What does not fit is
refused with the one setting to change (exit status 2).

MODEL is a folder with a config.json, or a well-known model, whose shape is built in, with or without its owner:
  {", ".join(KNOWN_CONFIGS)}

  outrider plan --target Llama-3.3-70B --draft Llama-3.2-1B --gpus 8xH100
  outrider plan --target DeepSeek-V3 --draft mtp --gpus 8xH200 --dtype fp8
  outrider plan --target ./my-model --gpus 2xB200 --yaml > serve.yaml

Figures of GPUs are those of the data sheets that `outrider simulate` uses too.
"""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the subcommand."""
    parser = subparsers.add_parser(
        "plan",
        help="work out memory and placement on GPUs that need not be there",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--target", required=True, metavar="MODEL")
    parser.add_argument("--gpus", required=True, metavar="NxKIND", help="GPUs of all verifiers, such as 8xH100")
    parser.add_argument("--draft", metavar="MODEL", help='a draft model, or "mtp" for the target\'s own next-n module')
    parser.add_argument(
        "--drafter-place", choices=PLACES, default="own-gpu",
        help="where a draft model runs: in an actor on one more GPU, in an actor on the GPU of rank 0, or in the "
        "verifier (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--tp", type=int, default=0, metavar="N", help="ranks of a verifier; default: those of a node")
    parser.add_argument(
        "--dtype", choices=tuple(DTYPE_BYTES), default="bf16", help="of the target (default: %(default)s)"
    )
    parser.add_argument("--latent-kv", action="store_true", help="count KV of latent attention in its compressed form")
    _add_sizes(parser)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one JSON object instead of text")
    form.add_argument("--yaml", action="store_true", help="the Serve configuration alone")
    parser.set_defaults(run=run)


def _add_sizes(parser: argparse.ArgumentParser) -> None:
    sizes = (
        ("--gpus-per-node", GPUS_PER_NODE, "GPUs of a node"),
        ("--max-model-len", 0, "longest sequence in tokens; default: what model and memory allow"),
        ("--sequence-tokens", SEQUENCE_TOKENS, "length at which sequences are counted"),
        ("--speculative-seqs", RoleSeats().speculative, "most sequences in role speculative"),
        ("--batch-seqs", RoleSeats().batch, "most sequences in role batch"),
        (
            "--num-speculative-tokens",
            EngineConfig().num_speculative_tokens,
            "most draft tokens of a sequence and round",
        ),
        ("--max-num-batched-tokens", ROWS, "rows of the largest round"),
        ("--draft-kv-tokens", 0, "KV capacity of the drafter; default: 65,536, or what a GPU of its own allows"),
    )
    for name, default, text in sizes:
        shown = f"{text} (default: %(default)s)" if default else text
        parser.add_argument(name, type=int, default=default, metavar="N", help=shown)
    parser.add_argument(
        "--reserve-gib", type=float, default=RESERVE_BYTES / GIB, metavar="GIB",
        help="assumed on each GPU for CUDA's context, NCCL and graphs (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--verifier-cpus",
        type=float,
        default=1.0,
        metavar="N",
        help="CPUs of a verifier's rank 0 (default: %(default)s)",
    )


def run(args: argparse.Namespace) -> int:
    """Plan and print.

    Raises:
        ConfigError: it does not fit, or an argument is wrong.
        LoadError: a `config.json` describes no model that is known.
    """
    from deployments.gpu_plan import make_plan
    from deployments.plan_report import as_json, render
    from deployments.plan_yaml import as_yaml, serve_config

    plan = make_plan(_request(args))
    draft = None if args.draft == TARGETS_OWN_HEAD else args.draft
    config = serve_config(plan, target=args.target, draft=draft, verifier_cpus=args.verifier_cpus)
    if args.json:
        print(json.dumps(as_json(plan, config)))
    elif args.yaml:
        print(as_yaml(config), end="")
    else:
        print(f"{render(plan)}\n\nServe configuration\n\n{as_yaml(config)}", end="")
    return 0


def _request(args: argparse.Namespace) -> PlanRequest:
    known = ", ".join(name.upper() for name in GPUS)
    match = re.fullmatch(r"(\d{1,4})x(\w+)", args.gpus)
    if match is None or match[2].lower() not in GPUS:
        raise ConfigError(field="--gpus", value=args.gpus, allowed=f"a number and a kind, as 8xH100; kinds are {known}")
    check_range("--tp", args.tp, 0, int(match[1]))
    check_range("--reserve-gib", args.reserve_gib, 0, 1024, kind="a number")
    uses_mtp = args.draft == TARGETS_OWN_HEAD
    return PlanRequest(
        target=_target(args),
        gpu=GPUS[match[2].lower()],
        num_gpus=int(match[1]),
        gpus_per_node=args.gpus_per_node,
        draft=find_shape(args.draft, field="--draft") if args.draft is not None and not uses_mtp else None,
        uses_mtp=uses_mtp,
        drafter_place=args.drafter_place,
        tensor_parallel=args.tp,
        dtype=args.dtype,
        max_model_len=args.max_model_len,
        sequence_tokens=args.sequence_tokens,
        seats=RoleSeats(speculative=args.speculative_seqs, batch=args.batch_seqs),
        num_speculative_tokens=args.num_speculative_tokens,
        max_num_batched_tokens=args.max_num_batched_tokens,
        draft_kv_tokens=args.draft_kv_tokens,
        reserve_bytes=int(args.reserve_gib * GIB),
    )


def _target(args: argparse.Namespace) -> ModelShape:
    target = find_shape(args.target, field="--target")
    if not args.latent_kv:
        return target
    if not isinstance(target.attention, LatentAttention):
        raise ConfigError(field="--latent-kv", value=True, allowed=f"nothing, as {target.name} has no latent attention")
    return replace(target, attention=replace(target.attention, keeps_latent=True))
