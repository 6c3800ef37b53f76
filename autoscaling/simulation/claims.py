"""Figures that were published about speculation on H100s, beside those that follow from the cost model.

Every figure of the model is computed when it is asked for; only the published ones are written down.
"""

from dataclasses import dataclass, replace
from typing import Literal

from autoscaling.simulation.cost import CostModel
from autoscaling.simulation.curves import (
    ALPHAS,
    MAX_SEQUENCES,
    alpha_for,
    budget_choice,
    cost_within,
    fixed_rate,
    inversion_point,
    least_alpha,
)
from autoscaling.simulation.hardware import SPARSITY_FACTOR
from autoscaling.simulation.models import EAGLE_70B, LLAMA_8B
from autoscaling.simulation.roofline import Roofline
from cluster.engine.budget import expected_tokens
from cluster.errors import ConfigError

Verdict = Literal["follows", "follows in part", "does not follow"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One figure.

    Attributes:
        topic: what it is about.
        published: the figure as it was published.
        computed: what follows from the model.
        verdict: whether the published one does.
        why: in a sentence or two.
    """

    topic: str
    published: str
    computed: str
    verdict: Verdict
    why: str


def claims_of(target: Roofline, cost: CostModel, *, num_tokens: int, draft: Roofline) -> tuple[Claim, ...]:
    """The published figures about a 70B target, checked against the model.

    Args:
        target: a replica, as it is served.
        cost: of that replica, drafting included.
        num_tokens: K.
        draft: the draft model on its GPUs.
    """
    single = Roofline(model=target.model, gpu=target.gpu, num_gpus=1).ideal()
    return (
        _streaming(single),
        _fits(single),
        _sparsity(single),
        _utilisation(single),
        _five_in_one(single, num_tokens),
        _tpot(single, cost, num_tokens),
        _acceptance_length(num_tokens),
        _two_alphas(num_tokens),
        _inversion(target, cost, num_tokens),
        _loss(cost, num_tokens),
        _guard(cost, num_tokens),
        _kv_tax(target, cost, draft),
        _head_size(target),
        _saving(cost, num_tokens),
    )


def _streaming(single: Roofline) -> Claim:
    return Claim(
        topic="streaming floor of one token",
        published="41.8 ms (140 GB at 3.35 TB/s)",
        computed=f"{single.streaming_s * 1e3:.1f} ms ({single.weight_bytes / 1e9:.1f} GB at 3.35 TB/s)",
        verdict="follows",
        why="Right for one GPU at its data sheet. Under tensor parallelism it is divided by the number of GPUs.",
    )


def _fits(single: Roofline) -> Claim:
    try:
        capacity = f"{single.kv_capacity_tokens()} KV tokens"
    except ConfigError as error:
        capacity = error.allowed
    return Claim(
        topic="70B in FP16 on one H100",
        published="the floor is given for one H100",
        computed=capacity,
        verdict="does not follow",
        why="The weights alone are larger than the memory of the GPU for which the time is given.",
    )


def _sparsity(single: Roofline) -> Claim:
    gpu = single.gpu
    dense, fp8 = gpu.dense_flops["bf16"] / 1e12, gpu.dense_flops["fp8"] / 1e12
    dense_ms = single.row_flops_s * 1e3
    return Claim(
        topic="arithmetic of one token",
        published="1,979 TFLOPS FP16, 3,350 TFLOPS FP8; 0.07 ms",
        computed=f"{dense:,.1f} TFLOPS FP16 and {fp8:,.0f} FP8 dense; {dense_ms:.3f} ms "
        f"({dense_ms / SPARSITY_FACTOR:.3f} with sparsity)",
        verdict="does not follow",
        why="1,979 is the FP16 figure with 2:4 sparsity, which dense models cannot use; 3,350 is not on the data sheet "
        "(3,958 with sparsity) and equals the bandwidth in GB/s. Arithmetic overtakes streaming at "
        f"{single.ridge_rows:.0f} rows dense, not at {SPARSITY_FACTOR * single.ridge_rows:.0f}.",
    )


def _utilisation(single: Roofline) -> Claim:
    ratio = single.utilisation_of_one_row
    return Claim(
        topic="utilisation at batch 1",
        published="under 1.5 %",
        computed=f"{ratio * 100:.2f} % of dense",
        verdict="follows",
        why="True, and modest: even the dense figure gives a fourth of it.",
    )


def _five_in_one(single: Roofline, num_tokens: int) -> Claim:
    all_kept = single.streaming_s / (num_tokens + 1)
    return Claim(
        topic=f"verifying K = {num_tokens} in the same window",
        published="under 10 ms a token if all are accepted",
        computed=f"{all_kept * 1e3:.1f} ms with free drafts",
        verdict="follows",
        why="But all are accepted in few rounds: with alpha 0.78 in "
        f"{0.78**num_tokens * 100:.0f} % of them, with 0.65 in {0.65**num_tokens * 100:.0f} %.",
    )


def _tpot(single: Roofline, cost: CostModel, num_tokens: int) -> Claim:
    need = 45.0 / 15.0
    free = CostModel(name="free drafts", times=single.step_times())
    ideal, real = alpha_for(free, num_tokens, need), alpha_for(cost, num_tokens, need)
    best = fixed_rate(cost, 0.78, num_tokens, 1) / fixed_rate(cost, 0.0, 0, 1)
    return Claim(
        topic="time per token 45 ms to under 15 ms",
        published="3.0x from speculation",
        computed=f"needs alpha {_share(ideal)} with free drafts, {_share(real)} with this draft model; "
        f"alpha 0.78 gives {best:.2f}x",
        verdict="follows in part",
        why="It takes guessable text and drafts that are nearly free (heads, or drafting ahead on another device): a "
        f"pass of this draft model takes {cost.draft_s(1, 1) / cost.times.seconds(1) * 100:.0f} % of a plain round.",
    )


def _acceptance_length(num_tokens: int) -> Claim:
    low = least_alpha(lambda alpha: expected_tokens(alpha, num_tokens) >= 2.8)
    high = least_alpha(lambda alpha: expected_tokens(alpha, num_tokens) >= 3.6)
    values = ", ".join(f"{alpha:g}: {expected_tokens(alpha, num_tokens):.2f}" for alpha in (0.65, 0.72, 0.78, 0.85))
    return Claim(
        topic="mean acceptance length",
        published="2.8-3.6 when well tuned",
        computed=f"alpha {low:.2f}-{high:.2f} at K = {num_tokens} ({values})",
        verdict="follows in part",
        why="Code and summaries fall in this range, JSON lies above. Chat (0.65) stays below it, creative text (0.38) "
        f"reaches {expected_tokens(0.38, num_tokens):.2f}.",
    )


def _two_alphas(num_tokens: int) -> Claim:
    rates = {alpha: (expected_tokens(alpha, num_tokens) - 1) / num_tokens for alpha in (0.65, 0.78, 0.85)}
    return Claim(
        topic="alpha: alarm under 0.60, target 0.65",
        published="accepted / drafted and sum of alpha^i, as if they were the same alpha",
        computed=", ".join(f"alpha {alpha:g} accepts {rate:.2f} of all drafted" for alpha, rate in rates.items()),
        verdict="does not follow",
        why="The formula's alpha is the chance after accepted tokens. As a share of all drafted tokens even code at "
        f"0.78 lies under the alarm at K = {num_tokens}.",
    )


def _inversion(target: Roofline, cost: CostModel, num_tokens: int) -> Claim:
    free = CostModel(name="free drafts", times=target.step_times())
    points = {alpha: (inversion_point(cost, alpha, num_tokens), inversion_point(free, alpha, num_tokens))
              for alpha in ALPHAS}  # fmt: skip
    text = "; ".join(f"alpha {alpha:g}: {_count(local)} ({_count(ahead)} with free drafts)"
                     for alpha, (local, ahead) in points.items())  # fmt: skip
    inside = [alpha for alpha, pair in points.items() if any(32 <= (point or 1 << 30) <= 64 for point in pair)]
    return Claim(
        topic="inversion of a fixed K",
        published="at batch 32-64",
        computed=text,
        verdict="follows in part" if inside else "does not follow",
        why=f"A pass turns from memory to arithmetic at {target.ridge_rows:.0f} rows, which is "
        f"{target.ridge_rows / (num_tokens + 1):.0f} sequences at K = {num_tokens}, but drafts pay until their rows "
        "cost more than they bring. The point moves with alpha, K, the cost of drafting and the context (read once for "
        "all rows of a sequence): no constant is right.",
    )


def _loss(cost: CostModel, num_tokens: int) -> Claim:
    losses = {n: fixed_rate(cost, 0.0, 0, n) / fixed_rate(cost, 0.5, num_tokens, n) for n in (32, 64, 128, 256)}
    inside = any(1.4 <= loss <= 1.8 for loss in losses.values())
    return Claim(
        topic="loss with acceptance under 0.5",
        published="1.4-1.8x",
        computed=", ".join(f"{n} sequences: {loss:.2f}x" for n, loss in losses.items()),
        verdict="follows" if inside else "follows in part",
        why="It goes on growing with the batch, towards rows per token kept: "
        f"{(num_tokens + 1) / expected_tokens(0.5, num_tokens):.1f}x at alpha 0.5.",
    )


def _guard(cost: CostModel, num_tokens: int) -> Claim:
    at = {alpha: (budget_choice(cost, alpha, num_tokens, 31), budget_choice(cost, alpha, num_tokens, 32))
          for alpha in (0.38, 0.85)}  # fmt: skip
    low = fixed_rate(cost, 0.38, num_tokens, 31) / at[0.38][0][1]
    high = fixed_rate(cost, 0.0, 0, 32) / at[0.85][1][1]
    return Claim(
        topic="guard: no drafts from 32 sequences on",
        published="one constant",
        computed=f"below it: {(1 - low) * 100:.0f} % lost at 31 sequences of alpha 0.38; "
        f"above it: {(1 - high) * 100:.0f} % lost at 32 sequences of alpha 0.85",
        verdict="does not follow",
        why=f"The budget takes K = {at[0.38][0][0]} for the first and K = {at[0.85][1][0]} for the second.",
    )


def _kv_tax(target: Roofline, cost: CostModel, draft: Roofline) -> Claim:
    large = Roofline(model=LLAMA_8B, gpu=target.gpu, num_gpus=target.num_gpus)
    cache = LLAMA_8B.kv_bytes_per_token() * 16 * 4096
    need = large.weight_bytes + cache
    here = _tax(target, need)
    tight = replace(target, num_gpus=_fewest_gpus(target, need))
    return Claim(
        topic="KV tax",
        published="KV pool smaller by 15-25 %, 16-24 GB for an 8B draft",
        computed=f"{cost.kv_tax_ratio * 100:.1f} % with {draft.model.name}, {here * 100:.1f} % with Llama-3.1-8B "
        f"({need / 1e9:.0f} GB with its cache) on {target.num_gpus} GPUs",
        verdict="follows" if here >= 0.15 else "follows in part",
        why="It depends on how much memory the target leaves free: the same 8B draft beside the target on "
        f"{tight.num_gpus} GPUs takes {_tax(tight, need) * 100:.0f} %.",
    )


def _head_size(target: Roofline) -> Claim:
    ratio = EAGLE_70B.num_parameters / target.model.num_parameters
    return Claim(
        topic="EAGLE-3 head",
        published="under 1 % of the target's memory",
        computed=f"{ratio * 100:.1f} %",
        verdict="does not follow",
        why="One layer of this width that reads three fused features, and an output head over 32,000 tokens.",
    )


def _saving(cost: CostModel, num_tokens: int) -> Claim:
    """Tokens for a dollar at the same time per token, which is how the saving would be used."""
    texts, savings = [], []
    for alpha in (0.65, 0.78):
        for tpot_ms in (10.0, 15.0, 25.0):
            saving = _saving_at(cost, alpha, num_tokens, tpot_ms / 1e3)
            if saving is not None:
                savings.append(saving)
                texts.append(f"alpha {alpha:g} within {tpot_ms:.0f} ms: {saving * 100:.0f} %")
    return Claim(
        topic="cost per million tokens",
        published="35-55 % less (A); 45 % less, 16 nodes to 9 (B)",
        computed="; ".join(texts),
        verdict="follows in part" if max(savings, default=0.0) >= 0.35 else "does not follow",
        why="It is whatever the objective makes of it. Where latency binds, speculation lets a replica take more "
        "sequences within the same time per token; where throughput binds it goes to zero, and below for a fixed K.",
    )


def _saving_at(cost: CostModel, alpha: float, num_tokens: int, tpot_s: float) -> float | None:
    plain = cost_within(cost, tpot_s, lambda count: fixed_rate(cost, 0.0, 0, count))
    drafted = cost_within(cost, tpot_s, lambda count: budget_choice(cost, alpha, num_tokens, count)[1])
    return None if plain is None or drafted is None else 1 - drafted[0] / plain[0]


def _fewest_gpus(target: Roofline, reserved_bytes: float) -> int:
    """The fewest GPUs, a power of two, that hold the target and its draft model."""
    count = 1
    while target.weight_bytes + reserved_bytes >= count * target.gpu.memory_bytes * 0.9:
        count *= 2
    return count


def _tax(target: Roofline, reserved_bytes: float) -> float:
    """Share of the KV entries that a draft model takes."""
    return 1 - target.kv_capacity_tokens(reserved_bytes=reserved_bytes) / target.kv_capacity_tokens()


def _share(alpha: float | None) -> str:
    return "more than 1" if alpha is None else f"{alpha:.2f}"


def _count(point: int | None) -> str:
    return f"none up to {MAX_SEQUENCES}" if point is None else str(point)
