"""What a replica costs and how long its rounds take: from a roofline, or from a calibration of a real machine."""

from dataclasses import dataclass, field, replace

from autoscaling.simulation.roofline import Roofline
from cluster.engine.step_time import StepTimes
from cluster.types import Role

_IDLE_POWER_RATIO = 0.15
_STREAMING_POWER_RATIO = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class CostModel:
    """One replica.

    Attributes:
        name: how reports call it.
        times: of its rounds, drafting left out.
        draft_times: of a pass of the draft model that runs between rounds; None where drafting costs nothing (a drafter
            that drafts ahead on a device of its own, or prompt lookup).
        kv_capacity_tokens: KV entries by role; role speculative has less where drafts need memory.
        num_gpus: of a replica, those of its drafter included.
        price_per_hour: of all of them, in dollars.
        power_w: of all of them at their limit.
        row_flops_s: time of one row's arithmetic at the data sheet's dense figure; 0 where it is unknown.
        notes: where the figures come from, and what is assumed.
    """

    name: str
    times: StepTimes
    draft_times: StepTimes | None = None
    kv_capacity_tokens: dict[Role, int] = field(default_factory=lambda: dict.fromkeys(Role, 1 << 40))
    num_gpus: float = 0.0
    price_per_hour: float = 0.0
    power_w: float = 0.0
    row_flops_s: float = 0.0
    notes: tuple[str, ...] = ()

    def draft_s(self, num_sequences: int, num_tokens: float) -> float:
        """Drafting so many tokens for each sequence, one pass after the other."""
        if self.draft_times is None or not num_tokens:
            return 0.0
        return num_tokens * self.draft_times.seconds(max(1, num_sequences))

    def times_at(self, num_sequences: int) -> StepTimes:
        """The table with the drafting of so many sequences in it, spread over their draft tokens.

        Exact where all draft equally long, since K passes then make K tokens for each sequence.
        """
        count = max(1, num_sequences)
        return replace(self.times, draft_row_s=self.times.draft_row_s + self.draft_s(count, 1.0) / count)

    @property
    def kv_tax_tokens(self) -> int:
        """KV entries that role speculative lacks."""
        return self.kv_capacity_tokens[Role.BATCH] - self.kv_capacity_tokens[Role.SPECULATIVE]

    @property
    def kv_tax_ratio(self) -> float:
        """The same as a share."""
        return self.kv_tax_tokens / self.kv_capacity_tokens[Role.BATCH]

    def energy_j(self, *, busy_s: float, idle_s: float, num_rows: float) -> float:
        """Assumed: 15 % of the limit when idle, half of it while weights stream, up to all of it with arithmetic."""
        arithmetic_s = min(busy_s, num_rows * self.row_flops_s)
        shares_s = idle_s * _IDLE_POWER_RATIO + busy_s * _STREAMING_POWER_RATIO
        return self.power_w * (shares_s + arithmetic_s * (1 - _STREAMING_POWER_RATIO))


def from_roofline(
    target: Roofline,
    draft: Roofline | None = None,
    *,
    draft_kv_sequences: int = 0,
    draft_context_tokens: int = 4096,
    is_draft_ahead: bool = False,
) -> CostModel:
    """A replica of a target, with or without a draft model.

    Args:
        target: the target on its GPUs.
        draft: the draft model; on the target's GPUs unless `is_draft_ahead`.
        draft_kv_sequences: sequences whose draft KV is kept.
        draft_context_tokens: of each of them.
        is_draft_ahead: the draft model runs on GPUs of its own meanwhile: no time, no KV of the target, but its price.

    Raises:
        ConfigError: the weights do not fit.
    """
    capacity = target.kv_capacity_tokens()
    speculative, gpu = capacity, target.gpu
    num_gpus = float(target.num_gpus)
    if draft is not None and is_draft_ahead:
        num_gpus += draft.num_gpus
    elif draft is not None:
        cache = draft.model.kv_bytes_per_token() * draft_kv_sequences * draft_context_tokens
        speculative = target.kv_capacity_tokens(reserved_bytes=draft.weight_bytes + cache)
    return CostModel(
        name=f"{target.model.name} {target.dtype} on {target.num_gpus} x {gpu.name}",
        times=target.step_times(),
        draft_times=draft.step_times() if draft is not None and not is_draft_ahead else None,
        kv_capacity_tokens={Role.BATCH: capacity, Role.SPECULATIVE: speculative},
        num_gpus=num_gpus,
        price_per_hour=num_gpus * gpu.price_per_hour,
        power_w=num_gpus * gpu.power_w,
        row_flops_s=target.ideal().row_flops_s,
        notes=_notes(target, draft, is_draft_ahead=is_draft_ahead),
    )


def _notes(target: Roofline, draft: Roofline | None, *, is_draft_ahead: bool) -> tuple[str, ...]:
    gpu, efficiency = target.gpu, target.efficiency
    drafting = "Drafts cost nothing."
    if draft is not None:
        where = "on a GPU of its own, ahead of the verdict" if is_draft_ahead else "between the rounds of the target"
        drafting = f"{draft.model.name} drafts {where}."
    return (
        f"{gpu.name}: {gpu.bandwidth_bytes_per_s / 1e12:g} TB/s, "
        f"{gpu.dense_flops[target.dtype] / 1e12:,.0f} TFLOPS {target.dtype} dense, {gpu.memory_bytes / 1e9:g} GB. "
        f"Source: {gpu.source}.",
        f"Assumed of kernels: {efficiency.bandwidth_ratio:.0%} of the bandwidth, {efficiency.flops_ratio:.0%} of the "
        f"arithmetic, {efficiency.overhead_s * 1e3:g} ms a pass, {efficiency.all_reduce_s * 1e6:g} us an all-reduce.",
        f"Assumed price: {gpu.price_per_hour:g} dollars for a GPU and hour.",
        drafting,
    )
