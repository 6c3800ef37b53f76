"""What `outrider plan` is asked: models, GPUs, and how they are to be used."""

from dataclasses import dataclass, field

from autoscaling.simulation.hardware import GpuProfile
from cluster.config import DraftConfig, EngineConfig
from cluster.engine.shapes import DTYPE_BYTES, ModelShape
from cluster.errors import ConfigError, check_range
from deployments.placement import MAX_RANKS
from deployments.verifier_config import RoleSeats

GIB = 1 << 30
RESERVE_BYTES = 3 * GIB
"""Assumed on each GPU: context of CUDA, buffers of NCCL, CUDA graphs, fragments. Not measured."""

GPUS_PER_NODE, SEQUENCE_TOKENS, ROWS = 8, 4096, 8192
"""Defaults: GPUs of a node, the length at which sequences are counted, rows of the largest round."""

PLACES = ("own-gpu", "shared-gpu", "local")
"""Of a draft model: a GPU of its own, a share of rank 0's GPU, or rank 0's process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """What is planned for.

    Attributes:
        target: the model that is served.
        gpu: the accelerators.
        num_gpus: of them, for all verifiers.
        gpus_per_node: of the nodes.
        draft: a draft model; None for none.
        uses_mtp: drafts come from the target's next-n module.
        drafter_place: of a draft model, one of `PLACES`.
        tensor_parallel: ranks of a verifier; 0 takes as many as one node has GPUs for, or more where that is too few.
        dtype: of the target's matrices, one of `DTYPE_BYTES`. A draft model is bf16.
        max_model_len: longest sequence in tokens; 0 takes what model and cache allow.
        sequence_tokens: length at which sequences are counted; less where the model does not go so far.
        seats: most sequences in each role.
        num_speculative_tokens: most draft tokens of a sequence and round.
        max_num_batched_tokens: rows of the largest round.
        draft_kv_tokens: KV capacity of a drafter; 0 takes the default, or what a GPU of its own allows.
        reserve_bytes: assumed on each GPU for what is not a tensor of ours.
    """

    target: ModelShape
    gpu: GpuProfile
    num_gpus: int
    gpus_per_node: int = GPUS_PER_NODE
    draft: ModelShape | None = None
    uses_mtp: bool = False
    drafter_place: str = "own-gpu"
    tensor_parallel: int = 0
    dtype: str = "bf16"
    max_model_len: int = 0
    sequence_tokens: int = SEQUENCE_TOKENS
    seats: RoleSeats = field(default_factory=RoleSeats)
    num_speculative_tokens: int = EngineConfig().num_speculative_tokens
    max_num_batched_tokens: int = ROWS
    draft_kv_tokens: int = 0
    reserve_bytes: int = RESERVE_BYTES

    def __post_init__(self) -> None:
        """Refuse values out of range, or that contradict each other."""
        for name, value, known in (
            ("--dtype", self.dtype, DTYPE_BYTES),
            ("--drafter-place", self.drafter_place, PLACES),
        ):
            if value not in known:
                raise ConfigError(field=name, value=value, allowed=f"one of {', '.join(known)}")
        check_range("--gpus", self.num_gpus, 1, MAX_RANKS)
        check_range("--gpus-per-node", self.gpus_per_node, 1, MAX_RANKS)
        check_range("--max-model-len", self.max_model_len, 0, self.target.max_model_len)
        check_range("--sequence-tokens", self.sequence_tokens, 1, 1 << 24)
        check_range("--num-speculative-tokens", self.num_speculative_tokens, 0, 64)
        check_range("--max-num-batched-tokens", self.max_num_batched_tokens, 16, 1 << 20)
        check_range("--draft-kv-tokens", self.draft_kv_tokens, 0, 1 << 32)
        check_range("--reserve-gib", self.reserve_bytes / GIB, 0, 1024, kind="a number")
        self.seats.check(self.max_num_batched_tokens)
        if self.uses_mtp and not self.target.num_mtp_layers:
            allowed = f"a draft model or nothing, since {self.target.name} has no next-n module"
            raise ConfigError(field="--draft", value="mtp", allowed=allowed)
        degrees = self.target.degrees(self.num_gpus)
        if self.tensor_parallel and self.tensor_parallel not in degrees:
            allowed = f"one of {', '.join(map(str, degrees))}, which share {self.target.name} evenly"
            raise ConfigError(field="--tp", value=self.tensor_parallel, allowed=allowed)

    @property
    def num_ranks(self) -> int:
        """Of one verifier: what was asked for, or what the GPUs, and those of a node, suffice for."""
        return self.tensor_parallel or self.target.degrees(min(self.num_gpus, self.gpus_per_node))[-1]

    @property
    def gpu_kind(self) -> str:
        """As Ray and the command line name it."""
        return self.gpu.name.partition(" ")[0]

    @property
    def num_lookahead_tokens(self) -> int:
        """Slots that drafts take at worst in role speculative."""
        return self.seats.speculative * self.num_speculative_tokens

    @property
    def rank_draft_kv_tokens(self) -> int:
        """KV capacity of a drafter that shares a GPU with rank 0."""
        return self.draft_kv_tokens or DraftConfig().kv_cache_tokens

    @property
    def least_tokens(self) -> int:
        """The longest sequence must fit, or where that is open one of the length at which they are counted."""
        return self.max_model_len or min(self.sequence_tokens, self.target.max_model_len)
