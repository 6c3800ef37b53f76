"""A plan as a Serve configuration that can be pasted: settings of the application, and bundles of each verifier."""

from typing import Any

import yaml  # type: ignore[import-untyped]

from deployments.bindings import VERIFIER_NAME
from deployments.gpu_plan import GpuPlan
from deployments.placement import ACCELERATOR_LABEL, VerifierPlacement, verifier_options

_PREFILL_SHARE = 4
"""Prompts come in chunks of this part of a round at most, so that one prompt does not fill it."""


def serve_config(plan: GpuPlan, *, target: str, draft: str | None, verifier_cpus: float = 1.0) -> dict[str, Any]:
    """The file that `serve deploy` takes.

    Args:
        plan: what to serve on.
        target: the model as the user names it.
        draft: the draft model as the user names it; None for none.
        verifier_cpus: CPUs of a verifier's rank 0.
    """
    options = verifier_options(placement_of(plan, verifier_cpus))
    arguments = _arguments(plan, target, draft) | {"verifier_cpus": verifier_cpus}
    return {
        "applications": [
            {
                "name": "outrider",
                "route_prefix": "/",
                "import_path": "deployments.app:build_app",
                "args": arguments,
                "deployments": [{"name": VERIFIER_NAME, **options}],
            }
        ]
    }


def as_yaml(config: dict[str, Any]) -> str:
    """The text of a configuration."""
    text: str = yaml.safe_dump(config, sort_keys=False, default_flow_style=None, width=100)
    return text


def placement_of(plan: GpuPlan, verifier_cpus: float) -> VerifierPlacement:
    """Where one verifier of a plan goes."""
    request = plan.request
    return VerifierPlacement(
        num_ranks=request.num_ranks,
        gpus_per_node=request.gpus_per_node,
        num_cpus=verifier_cpus,
        accelerator_type=request.gpu_kind,
        drafter_gpu_ratio=plan.drafter_gpu_ratio,
    )


def _arguments(plan: GpuPlan, target: str, draft: str | None) -> dict[str, Any]:
    request, seats = plan.request, plan.request.seats
    rows = request.max_num_batched_tokens
    engine: dict[str, Any] = {
        "model": target,
        "max_model_len": plan.max_model_len,
        "kv_cache_tokens": plan.memory.kv_cache_tokens,
        "max_num_seqs": seats.speculative,
        "max_num_batched_tokens": rows,
        "prefill_chunk_tokens": max(16, rows // _PREFILL_SHARE),
        "num_speculative_tokens": request.num_speculative_tokens,
    }
    if request.dtype == "bf16":
        engine["dtype"] = "bfloat16"
    roles = {"speculative_max_num_seqs": seats.speculative, "batch_max_num_seqs": seats.batch}
    return {"engine": engine, "num_verifiers": plan.num_verifiers, "pools": roles, **_drafting(plan, draft)}


def _drafting(plan: GpuPlan, draft: str | None) -> dict[str, Any]:
    request = plan.request
    if request.uses_mtp:
        kv = {"kv_cache_tokens": request.draft_kv_tokens} if request.draft_kv_tokens else {}
        return {"drafter": "ngram", "draft": {"heads": ["mtp"], **kv}}
    memory = plan.memory.draft or plan.drafter
    if memory is None:
        return {"drafter": "ngram"}
    model = {"model": draft, "kv_cache_tokens": memory.kv_cache_tokens}
    if request.drafter_place == "local":
        return {"drafter": "local", "draft": model}
    return {
        "drafter": "actor",
        "draft": model,
        "num_drafters": plan.num_verifiers if plan.drafter_gpu_ratio else 1,
        "drafter_gpus": plan.drafter_gpu_ratio or 1,
        "drafter_placement": {"kind": "labels", "node_labels": {ACCELERATOR_LABEL: request.gpu_kind}},
    }
