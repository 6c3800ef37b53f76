"""What `outrider plan` shows: lines of text for people, one object for programs. Pure."""

from dataclasses import replace
from typing import Any

from cluster.engine.shapes import LatentAttention
from cluster.types import Role
from deployments.gpu_plan import SECOND_PROCESS_BYTES, GpuPlan, fitting_degrees
from deployments.plan_request import GIB

_PLACES = {
    "own-gpu": "in an actor on a GPU of its own",
    "shared-gpu": "in an actor on the GPU of rank 0",
    "local": "in the verifier, on the GPU of rank 0",
}


def render(plan: GpuPlan) -> str:
    """The plan as text."""
    request, memory, target = plan.request, plan.memory, plan.request.target
    lines = [
        f"target     {target.name}: {target.num_parameters / 1e9:.2f} billion parameters, {request.dtype}",
        f"drafts     {_drafts(plan)}",
        f"GPUs       {request.num_gpus} x {request.gpu_kind}: {plan.num_verifiers} verifier(s) of {request.num_ranks}",
        f"KV         {memory.kv_cache_tokens:,} tokens a verifier, {memory.kv_token_bytes:,} bytes each on a rank",
        f"sequences  of at most {plan.max_model_len:,} tokens",
        "",
        "Memory of rank 0, the fullest, by the data sheet",
        memory.table(),
        "",
        f"Sequences of {plan.sequence_tokens:,} tokens in a verifier",
        f"{'role':<14}{'seats':>8}{'KV for':>10}{'at once':>10}",
        *(_role_line(plan, role) for role in Role),
        "",
        "Ranks of a verifier, and what else would fit",
        f"{'ranks':<14}{'verifiers':>10}{'KV tokens of each':>20}",
        *(_degree_line(plan, count, tokens) for count, tokens in _degrees(plan).items()),
    ]
    if plan.drafter is not None:
        lines += ["", f"Memory of the drafter, on one more {request.gpu_kind}"]
        lines.append(plan.drafter.table(int(request.gpu.memory_bytes) - request.reserve_bytes))
    return "\n".join([*lines, "", *(f"- {note}" for note in notes(plan))])


def as_json(plan: GpuPlan, config: dict[str, Any]) -> dict[str, Any]:
    """The plan as one object, with the Serve configuration; sizes in bytes, of rank 0 where they are by rank."""
    request, memory = plan.request, plan.memory
    drafter = plan.drafter or memory.draft
    return {
        "target": request.target.name,
        "num_parameters": request.target.num_parameters,
        "dtype": request.dtype,
        "gpu": request.gpu_kind,
        "num_gpus": request.num_gpus,
        "tensor_parallel": request.num_ranks,
        "num_verifiers": plan.num_verifiers,
        "memory": {
            "weights_bytes": memory.weights_bytes,
            "kv_bytes": memory.kv_bytes,
            "lookahead_bytes": memory.lookahead_tokens * memory.kv_token_bytes,
            "workspace_bytes": memory.workspace_bytes,
            "draft_bytes": (memory.draft.total_bytes if memory.draft else 0) + memory.heads_bytes,
            "reserve_bytes": memory.reserve_bytes,
            "total_bytes": memory.total_bytes,
            "available_bytes": memory.available_bytes,
        },
        "kv_cache_tokens": memory.kv_cache_tokens,
        "kv_token_bytes": memory.kv_token_bytes,
        "kv_tax_tokens": plan.kv_tax_tokens,
        "max_model_len": plan.max_model_len,
        "sequence_tokens": plan.sequence_tokens,
        "roles": {
            role.value: {
                "seats": request.seats.of(role),
                "fitting_sequences": plan.fitting_sequences(role),
                "max_sequences": plan.max_sequences(role),
            }
            for role in Role
        },
        "is_tight": plan.is_tight,
        "drafter": None if drafter is None else _drafter_json(plan),
        "degrees": {str(count): tokens for count, tokens in _degrees(plan).items()},
        "notes": notes(plan),
        "serve_config": config,
    }


def notes(plan: GpuPlan) -> list[str]:
    """What was assumed, and what to know before the plan is used."""
    request = plan.request
    found = [
        "Models in the configuration are written as they were given: verifiers and drafters take folders, or for the "
        "target a hub id with its commit (engine.revision).",
        f"Assumed, not measured: {request.reserve_bytes / GIB:g} GiB a GPU for CUDA's context, NCCL and graphs"
        + (f", and {SECOND_PROCESS_BYTES / GIB:g} GiB for the drafter's." if plan.drafter_gpu_ratio else "."),
    ]
    if plan.is_tight:
        more = "More GPUs, or --dtype fp8, leave" if request.dtype == "bf16" else "More GPUs leave"
        found.append(f"Tight: KV, not the seats, limits the sequences. {more} more of it.")
    if request.num_ranks > 1:
        found.append(
            "This version runs a target on one GPU: it does not start the ranks that these bundles have room for yet."
        )
    if request.dtype != "bf16":
        found.append(f"This version loads no {request.dtype} weights yet. Scales of {request.dtype} are not counted.")
    attention = request.target.attention
    if isinstance(attention, LatentAttention) and not attention.keeps_latent:
        latent = replace(request.target, attention=replace(attention, keeps_latent=True))
        found.append(
            "Keys and values are kept in full. Compressed, as kernels for latent attention keep them, a token takes "
            f"{latent.kv_token_bytes(request.num_ranks):,} bytes on a rank: see --latent-kv."
        )
    if isinstance(attention, LatentAttention) and attention.keeps_latent:
        found.append("This version keeps keys and values in full: the compressed KV counted here needs other kernels.")
    if plan.drafter_gpu_ratio:
        found.append("A drafter lands on rank 0's GPU only where verifiers take all GPUs of their nodes.")
    return found


def _drafts(plan: GpuPlan) -> str:
    request = plan.request
    if request.uses_mtp:
        return "from the target's next-n module, divided like the target"
    if request.draft is None:
        return "prompt lookup, which takes no memory of GPUs"
    share = f", {plan.drafter_gpu_ratio:g} of it" if plan.drafter_gpu_ratio else ""
    return f"{request.draft.name}, bf16, {_PLACES[request.drafter_place]}{share}"


def _role_line(plan: GpuPlan, role: Role) -> str:
    seats, fitting, most = plan.request.seats.of(role), plan.fitting_sequences(role), plan.max_sequences(role)
    return f"{role.value:<14}{seats:>8,}{fitting:>10,}{most:>10,}"


def _degree_line(plan: GpuPlan, count: int, tokens: int) -> str:
    mark = " <-" if count == plan.request.num_ranks else ""
    return f"{count:<14}{plan.request.num_gpus // count:>10}{tokens:>20,}{mark}"


def _degrees(plan: GpuPlan) -> dict[int, int]:
    return fitting_degrees(plan.request, plan.request.num_gpus)


def _drafter_json(plan: GpuPlan) -> dict[str, Any]:
    memory = plan.drafter or plan.memory.draft
    assert memory is not None and plan.request.draft is not None
    return {
        "model": plan.request.draft.name,
        "place": plan.request.drafter_place,
        "gpu_ratio": plan.drafter_gpu_ratio,
        "weights_bytes": memory.weights_bytes,
        "kv_cache_tokens": memory.kv_cache_tokens,
        "kv_token_bytes": memory.kv_token_bytes,
        "workspace_bytes": memory.workspace_bytes,
    }
