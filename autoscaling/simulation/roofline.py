"""The roofline model: a pass takes as long as its weights take to stream, or its arithmetic, whichever is longer.

    pass = max(weights / bandwidth, rows * flops_per_token / flops) + context * kv_bytes / bandwidth
           + layers * 2 * all_reduce(rows) + overhead

After Williams, Waterman and Patterson, "Roofline" (CACM 2009), with the terms of tensor parallelism. It is linear in
rows on either side of the ridge, so a table of three knots holds it exactly and the production budget runs on it as it
is.
"""

from dataclasses import dataclass, replace

from autoscaling.simulation.hardware import GpuProfile
from autoscaling.simulation.models import ModelShape
from cluster.engine.step_time import StepTimes
from cluster.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Efficiency:
    """How near to a data sheet real kernels come; 1 and 0 everywhere is the ideal machine.

    Attributes:
        bandwidth_ratio: reached share of the memory bandwidth.
        flops_ratio: reached share of the dense arithmetic.
        link_ratio: reached share of the link's bandwidth.
        all_reduce_s: of one all-reduce, beside its bytes.
        overhead_s: of a pass: launches, sampling, the host.
        sequence_s: for each sequence of a round: drawing and committing its token.
    """

    bandwidth_ratio: float = 0.8
    flops_ratio: float = 0.6
    link_ratio: float = 0.7
    all_reduce_s: float = 8e-6
    overhead_s: float = 1e-3
    sequence_s: float = 5e-6


IDEAL = Efficiency(
    bandwidth_ratio=1.0, flops_ratio=1.0, link_ratio=1.0, all_reduce_s=0.0, overhead_s=0.0, sequence_s=0.0
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """A model on one or more equal GPUs.

    Attributes:
        model: its shape.
        gpu: the accelerator.
        num_gpus: over which it is sharded by tensor parallelism.
        dtype: of weights and arithmetic; KV entries stay bf16.
        efficiency: of the kernels.
    """

    model: ModelShape
    gpu: GpuProfile
    num_gpus: int = 1
    dtype: str = "bf16"
    efficiency: Efficiency = Efficiency()

    @property
    def bandwidth_bytes_per_s(self) -> float:
        """Of all GPUs together, as reached."""
        return self.num_gpus * self.gpu.bandwidth_bytes_per_s * self.efficiency.bandwidth_ratio

    @property
    def flops_per_s(self) -> float:
        """Of all GPUs together, as reached."""
        return self.num_gpus * self.gpu.dense_flops[self.dtype] * self.efficiency.flops_ratio

    @property
    def streaming_s(self) -> float:
        """Reading every weight once: the floor of a pass."""
        return self.model.weight_bytes(self.dtype) / self.bandwidth_bytes_per_s

    @property
    def row_flops_s(self) -> float:
        """Arithmetic of one row."""
        return self.model.flops_per_token / self.flops_per_s

    @property
    def ridge_rows(self) -> float:
        """Rows from which on arithmetic takes longer than streaming."""
        return self.streaming_s / self.row_flops_s

    @property
    def utilisation_of_one_row(self) -> float:
        """Arithmetic done over arithmetic possible in a pass of one row."""
        return self.model.flops_per_token / (self._fixed_s + self.streaming_s) / self._peak_flops_per_s

    @property
    def context_s(self) -> float:
        """Reading one KV entry."""
        return self.model.kv_bytes_per_token() / self.bandwidth_bytes_per_s

    def step_times(self) -> StepTimes:
        """The table that the production budget works on, without drafting."""
        ridge = max(self.ridge_rows, 1.0)
        rows = (1, round(ridge), 2 * round(ridge)) if ridge > 1.5 else (1, 2)
        knots = tuple((count, self._pass_s(count)) for count in rows)
        return StepTimes(knots=knots, context_s=self.context_s, sequence_s=self.efficiency.sequence_s)

    def kv_capacity_tokens(self, *, reserved_bytes: float = 0.0, memory_ratio: float = 0.9) -> int:
        """KV entries that fit beside the weights.

        Args:
            reserved_bytes: for draft weights and their cache, over all GPUs.
            memory_ratio: share of the memory that may be used; the rest is workspace.

        Raises:
            ConfigError: the weights alone do not fit.
        """
        free = self.num_gpus * self.gpu.memory_bytes * memory_ratio - self.weight_bytes - reserved_bytes
        if free <= 0:
            need = (self.weight_bytes + reserved_bytes) / (self.gpu.memory_bytes * memory_ratio)
            raise ConfigError(
                field="num_gpus",
                value=self.num_gpus,
                allowed=f"at least {int(need) + 1}: {self.weight_bytes / 1e9:.0f} GB of {self.model.name} weights do "
                f"not fit in {self.num_gpus} x {self.gpu.memory_bytes / 1e9:.0f} GB",
            )
        return int(free / self.model.kv_bytes_per_token())

    @property
    def weight_bytes(self) -> float:
        """Of all shards together."""
        return self.model.weight_bytes(self.dtype)

    def ideal(self) -> "Roofline":
        """The same on a machine that reaches its data sheet."""
        return replace(self, efficiency=IDEAL)

    @property
    def _peak_flops_per_s(self) -> float:
        return self.num_gpus * self.gpu.dense_flops[self.dtype]

    @property
    def _fixed_s(self) -> float:
        latency_s = 2 * self.model.num_layers * self.efficiency.all_reduce_s if self.num_gpus > 1 else 0.0
        return self.efficiency.overhead_s + latency_s

    @property
    def _link_row_s(self) -> float:
        """All-reduces of one row: each GPU sends and receives 2 (n - 1) / n of it, twice a layer, in bf16."""
        if self.num_gpus == 1:
            return 0.0
        reduced_bytes = 2 * self.model.num_layers * self.model.hidden_size * 2
        share = 2 * (self.num_gpus - 1) / self.num_gpus
        return share * reduced_bytes / (self.gpu.link_bytes_per_s * self.efficiency.link_ratio)

    def _pass_s(self, num_rows: int) -> float:
        return self._fixed_s + max(self.streaming_s, num_rows * self.row_flops_s) + num_rows * self._link_row_s
