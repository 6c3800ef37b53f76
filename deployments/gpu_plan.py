"""What one verifier takes of its GPUs, worked out before there is one: the arithmetic behind `outrider plan`. Pure.

Rank 0 is the fullest: it has its share of the target like every other rank, and a draft model where that lives there.
What it has left for KV therefore holds for all ranks.

| part | bytes on rank 0 |
| --- | --- |
| weights | the rank's share, see `cluster.engine.shapes` |
| draft | a draft model whole, with its KV and its passes; a next-n module divided like the target |
| workspace | activations of the largest round in bf16; its logits once in bf16, three times in float32 |
| context and graphs | assumed: `reserve_bytes`, and `SECOND_PROCESS_BYTES` for a drafter beside it |
| KV | all that is left, in whole blocks |

Memory of GPUs is that of their data sheets, which drivers exceed by a few per cent.
"""

from bisect import bisect_left
from dataclasses import dataclass, replace

from autoscaling.simulation.hardware import GPUS
from cluster.config import EngineConfig
from cluster.engine.memory_plan import DraftMemory, MemoryPlan, kv_tax_tokens
from cluster.engine.shapes import BF16_BYTES, ModelShape
from cluster.errors import ConfigError
from cluster.types import Role
from deployments.placement import MAX_RANKS
from deployments.plan_request import GIB, PlanRequest

SECOND_PROCESS_BYTES = GIB
"""Assumed for the context of a second process on a GPU. Not measured."""

LOGIT_BYTES = BF16_BYTES + 3 * 4
"""Of one logit while rows are drawn: as computed, processed, with noise, and as logarithms."""

BLOCK_SIZE = EngineConfig().block_size
_DRAFT_ROWS = 256
_SHARE_STEPS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPlan:
    """A plan that fits.

    Attributes:
        request: what was planned for.
        num_verifiers: that the GPUs suffice for.
        memory: of rank 0, the fullest.
        max_model_len: longest sequence in tokens.
        drafter: memory of a drafter on a GPU of its own; None where there is none.
        drafter_gpu_ratio: share of rank 0's GPU that a drafter beside it takes.
    """

    request: PlanRequest
    num_verifiers: int
    memory: MemoryPlan
    max_model_len: int
    drafter: DraftMemory | None = None
    drafter_gpu_ratio: float = 0.0

    @property
    def kv_tax_tokens(self) -> int:
        """What role speculative takes of the KV cache, as verifiers reckon it."""
        return _kv_tax_tokens(self.request, self.memory)

    @property
    def sequence_tokens(self) -> int:
        """Length at which sequences are counted."""
        return min(self.request.sequence_tokens, self.max_model_len)

    def fitting_sequences(self, role: Role) -> int:
        """Sequences of `sequence_tokens` whose KV fits, whatever the seats."""
        tax = self.kv_tax_tokens if role is Role.SPECULATIVE else 0
        return max(0, self.memory.kv_cache_tokens - tax) // self.sequence_tokens

    def max_sequences(self, role: Role) -> int:
        """Sequences of that length that run at once."""
        return min(self.request.seats.of(role), self.fitting_sequences(role))

    @property
    def is_tight(self) -> bool:
        """Whether KV, and not the seats, limits a role."""
        return any(self.fitting_sequences(role) < self.request.seats.of(role) for role in Role)


def make_plan(request: PlanRequest) -> GpuPlan:
    """Divide the memory of the GPUs.

    Raises:
        ConfigError: it does not fit; names the one setting to change, and shows the table.
    """
    request = _with_degree(request)
    memory = rank_memory(request)
    left_tokens = memory.kv_cache_tokens - _kv_tax_tokens(request, memory)
    if left_tokens < request.least_tokens:
        raise _refusal(request, memory, left_tokens)
    longest = request.max_model_len or min(request.target.max_model_len, left_tokens)
    draft, gpu_bytes = memory.draft, request.gpu.memory_bytes
    ratio = 0.0
    if draft is not None and request.drafter_place == "shared-gpu":
        ratio = -(-_SHARE_STEPS * (draft.total_bytes + SECOND_PROCESS_BYTES) // gpu_bytes) / _SHARE_STEPS
    return GpuPlan(
        request=request,
        num_verifiers=request.num_gpus // request.num_ranks,
        memory=memory,
        max_model_len=longest,
        drafter=_own_drafter(request, memory.kv_cache_tokens),
        drafter_gpu_ratio=ratio,
    )


def rank_memory(request: PlanRequest) -> MemoryPlan:
    """Memory of rank 0, with as much KV as there is room for: none where the rest alone does not fit."""
    target, num_ranks = request.target, request.num_ranks
    draft = None
    if request.draft is not None and request.drafter_place != "own-gpu":
        draft = draft_memory(request.draft, request.rank_draft_kv_tokens)
    is_second = draft is not None and request.drafter_place == "shared-gpu"
    memory = MemoryPlan(
        weights_bytes=target.weight_bytes(num_ranks, request.dtype),
        kv_token_bytes=target.kv_token_bytes(num_ranks),
        kv_cache_tokens=0,
        lookahead_tokens=request.num_lookahead_tokens,
        workspace_bytes=_workspace_bytes(request),
        available_bytes=int(request.gpu.memory_bytes),
        draft=draft,
        heads_bytes=_mtp_bytes(request) if request.uses_mtp else 0,
        reserve_bytes=request.reserve_bytes + is_second * SECOND_PROCESS_BYTES,
    )
    left_bytes = int(request.gpu.memory_bytes) - memory.total_bytes
    num_tokens = max(0, left_bytes) // memory.kv_token_bytes
    return replace(memory, kv_cache_tokens=num_tokens // BLOCK_SIZE * BLOCK_SIZE)


def draft_memory(draft: ModelShape, kv_cache_tokens: int) -> DraftMemory:
    """Memory of a draft model on one GPU, in bf16; its output head lies apart even where it is tied."""
    head = BF16_BYTES * draft.vocab * draft.hidden if draft.is_tied else 0
    return DraftMemory(
        weights_bytes=draft.weight_bytes() + head,
        kv_token_bytes=draft.kv_token_bytes(),
        kv_cache_tokens=kv_cache_tokens,
        workspace_bytes=_DRAFT_ROWS * (BF16_BYTES * draft.row_elements() + LOGIT_BYTES * draft.vocab),
    )


def fitting_degrees(request: PlanRequest, most: int) -> dict[int, int]:
    """KV tokens of a verifier by its number of ranks up to `most`, rising; only those that fit."""
    request = replace(request, num_gpus=max(most, request.num_gpus))
    plans = {count: rank_memory(replace(request, tensor_parallel=count)) for count in request.target.degrees(most)}
    return {
        count: memory.kv_cache_tokens
        for count, memory in plans.items()
        if memory.kv_cache_tokens - _kv_tax_tokens(request, memory) >= request.least_tokens
    }


def _with_degree(request: PlanRequest) -> PlanRequest:
    """Ranks within a node where they suffice, as links inside a node are quicker; else the fewest that do."""
    if request.tensor_parallel:
        return request
    fitting = fitting_degrees(request, request.num_gpus)
    wanted = request.num_ranks
    return replace(request, tensor_parallel=wanted if wanted in fitting or not fitting else min(fitting))


def _kv_tax_tokens(request: PlanRequest, memory: MemoryPlan) -> int:
    """Lookahead slots, and the KV of a draft model in the same process."""
    draft = memory.draft if request.drafter_place == "local" else None
    return kv_tax_tokens(
        lookahead_tokens=memory.lookahead_tokens,
        draft_kv_bytes=draft.kv_token_bytes * draft.kv_cache_tokens if draft else 0,
        kv_token_bytes=memory.kv_token_bytes,
    )


def _workspace_bytes(request: PlanRequest) -> int:
    """Right after a change of role as many as before still run, and as many as may have drafts do."""
    target, seats = request.target, request.seats
    num_logit_rows = max(seats.speculative, seats.batch) + request.num_lookahead_tokens
    activations = BF16_BYTES * request.max_num_batched_tokens * target.row_elements(request.num_ranks)
    return activations + LOGIT_BYTES * num_logit_rows * target.vocab


def _mtp_bytes(request: PlanRequest) -> int:
    """Of a next-n module with the KV of its one layer."""
    target, num_ranks = request.target, request.num_ranks
    kv_bytes = request.rank_draft_kv_tokens * target.kv_layer_bytes(num_ranks)
    return target.mtp_bytes(num_ranks, request.dtype) + kv_bytes


def _own_drafter(request: PlanRequest, target_kv_tokens: int) -> DraftMemory | None:
    """A drafter on a GPU of its own: KV for the target's, and as much again for branches, where it fits.

    Raises:
        ConfigError: it does not fit.
    """
    if request.draft is None or request.drafter_place != "own-gpu":
        return None
    available = int(request.gpu.memory_bytes) - request.reserve_bytes
    empty = draft_memory(request.draft, 0)
    fitting = max(0, available - empty.total_bytes) // empty.kv_token_bytes // BLOCK_SIZE * BLOCK_SIZE
    drafter = replace(empty, kv_cache_tokens=request.draft_kv_tokens or min(fitting, 2 * target_kv_tokens))
    if fitting < max(request.draft_kv_tokens, BLOCK_SIZE):
        field, value = ("--draft-kv-tokens", request.draft_kv_tokens) if fitting else ("--draft", request.draft.name)
        allowed = f"at most {fitting} on one GPU" if fitting else f"a draft model that fits on one {request.gpu_kind}"
        raise ConfigError(field=field, value=value, allowed=f"{allowed}\n{drafter.table(available)}")
    return drafter


def _refusal(request: PlanRequest, memory: MemoryPlan, left_tokens: int) -> ConfigError:
    """Names what to change: the longest sequence where only that was too much, else the degree, else the GPUs."""
    needed = request.least_tokens + _kv_tax_tokens(request, memory)
    table = replace(memory, kv_cache_tokens=needed).table()
    longest = request.max_model_len
    if longest and left_tokens >= min(request.sequence_tokens, longest):
        return ConfigError(field="--max-model-len", value=longest, allowed=f"at most {left_tokens} here\n{table}")
    most = _most_draft_kv_tokens(request)
    if most >= request.least_tokens:
        value = request.rank_draft_kv_tokens
        return ConfigError(field="--draft-kv-tokens", value=value, allowed=f"at most {most} here\n{table}")
    fewest = min(fitting_degrees(request, MAX_RANKS), default=None)
    if fewest is not None and fewest <= request.num_gpus:
        return ConfigError(field="--tp", value=request.num_ranks, allowed=f"at least {fewest}\n{table}")
    return ConfigError(field="--gpus", value=_gpus(request), allowed=f"{_what_fits(request, fewest)}\n{table}")


def _most_draft_kv_tokens(request: PlanRequest) -> int:
    """The most KV of a drafter on rank 0 with which the target fits, in whole blocks; 0 where none does."""

    def is_too_much(num_blocks: int) -> bool:
        trial = replace(request, draft_kv_tokens=num_blocks * BLOCK_SIZE)
        memory = rank_memory(trial)
        return memory.kv_cache_tokens - _kv_tax_tokens(trial, memory) < trial.least_tokens

    num_blocks = range(1, request.rank_draft_kv_tokens // BLOCK_SIZE + 1)
    return bisect_left(num_blocks, True, key=is_too_much) * BLOCK_SIZE


def _what_fits(request: PlanRequest, fewest: int | None) -> str:
    """More of these GPUs, as many of another kind, or smaller weights."""
    trials = [replace(request, gpu=gpu) for gpu in GPUS.values()]
    found = [] if fewest is None else [f"at least {_gpus(replace(request, num_gpus=fewest))}"]
    found += [_gpus(trial) for trial in trials if _fits(trial)]
    if request.dtype == "bf16" and _fits(replace(request, dtype="fp8")):
        found.append("--dtype fp8")
    return ", or ".join(found) or "GPUs with more memory"


def _fits(request: PlanRequest) -> bool:
    return bool(fitting_degrees(request, request.num_gpus))


def _gpus(request: PlanRequest) -> str:
    return f"{request.num_gpus}x{request.gpu_kind}"
