"""Plans against arithmetic that is written out here: sizes from the models' public configurations."""

from dataclasses import replace
from typing import Any

import pytest

from autoscaling.simulation.hardware import B200, H100, H200
from cluster.config import DraftConfig, EngineConfig
from cluster.engine.known_shapes import known_shape
from cluster.errors import ConfigError
from cluster.types import Role
from deployments.gpu_plan import GpuPlan, fitting_degrees, make_plan
from deployments.plan_request import GIB, PlanRequest
from deployments.verifier_config import RoleSeats

LLAMA_70B, LLAMA_1B = known_shape("Llama-3.3-70B"), known_shape("Llama-3.2-1B")
QWEN_32B, QWEN_SMALL = known_shape("Qwen3-32B"), known_shape("Qwen3-0.6B")
DEEPSEEK = known_shape("DeepSeek-V3")

# Llama-3.3-70B: 80 layers of width 8192, 64 heads and 8 key/value heads of 128, MLP of 28672, 128256 tokens.
MATRICES_70B = 80 * (2 * 8192 * 8192 + 2 * 8192 * 1024 + 3 * 8192 * 28_672)
VOCABULARY_70B = 2 * 128_256 * 8192
NORMS_70B = 161 * 8192
LOGIT_ROWS = 128 + 16 * 7  # seats of role batch, and lookahead of role speculative
LOGITS_70B = LOGIT_ROWS * 128_256 * 14
# Llama-3.2-1B: 16 layers of width 2048, 32 heads and 8 key/value heads of 64, MLP of 8192; its head is copied.
WEIGHTS_1B = 2 * (2 * 128_256 * 2048 + 16 * (2 * 2048 * 2048 + 2 * 2048 * 512 + 3 * 2048 * 8192) + 33 * 2048)
WORKSPACE_1B = 256 * (2 * (4 * 2048 + 2 * 2048 + 1024 + 3 * 8192) + 14 * 128_256)


def plan(target: Any = LLAMA_70B, gpu: Any = H100, num_gpus: int = 8, **settings: Any) -> GpuPlan:
    return make_plan(PlanRequest(target=target, gpu=gpu, num_gpus=num_gpus, **settings))


def whole_blocks(num_tokens: float) -> int:
    return int(num_tokens) // 32 * 32


def weights_70b(num_ranks: int) -> int:
    return 2 * ((MATRICES_70B + VOCABULARY_70B) // num_ranks + NORMS_70B)


def workspace_70b(num_ranks: int) -> int:
    heads = 2 * 8192 // num_ranks + 2 * 1024 // num_ranks
    return 8192 * 2 * (4 * 8192 + heads + 3 * 28_672 // num_ranks) + LOGITS_70B


@pytest.mark.parametrize(("gpu", "num_ranks"), [(H100, 8), (H200, 4), (H100, 2)])
def test_llama_70b_leaves_for_kv_what_weights_workspace_and_reserve_do_not_take(gpu: Any, num_ranks: int) -> None:
    found = plan(gpu=gpu, num_gpus=num_ranks, draft=LLAMA_1B)
    kv_token = 80 * 2 * (8 // num_ranks) * 128 * 2
    left = gpu.memory_bytes - weights_70b(num_ranks) - workspace_70b(num_ranks) - 3 * GIB
    assert found.memory.weights_bytes == weights_70b(num_ranks)
    assert found.memory.workspace_bytes == workspace_70b(num_ranks)
    assert found.memory.kv_token_bytes == kv_token
    assert found.memory.kv_cache_tokens == whole_blocks(left / kv_token)
    assert (found.request.num_ranks, found.num_verifiers) == (num_ranks, 1)
    assert found.memory.total_bytes <= gpu.memory_bytes < found.memory.total_bytes + 32 * kv_token


def test_llama_70b_on_8_h100_is_roomy_and_on_2_it_is_tight() -> None:
    roomy, tight = plan(num_gpus=8), plan(num_gpus=2)
    assert (roomy.memory.kv_cache_tokens, roomy.is_tight) == (1_414_944, False)
    assert [roomy.max_sequences(role) for role in Role] == [16, 128]
    assert (tight.memory.kv_cache_tokens, tight.is_tight) == (26_848, True)
    assert tight.max_model_len == 26_848 - 16 * 7
    assert [tight.max_sequences(role) for role in Role] == [26_736 // 4096, 26_848 // 4096] == [6, 6]


def test_llama_70b_does_not_fit_on_1_h100_and_what_would_fit_is_said() -> None:
    with pytest.raises(ConfigError) as caught:
        plan(num_gpus=1)
    error = caught.value
    assert (error.field, error.value) == ("--gpus", "1xH100")
    assert error.allowed.splitlines()[0] == "at least 2xH100, or 1xB200, or --dtype fp8"
    assert weights_70b(1) > 80e9
    assert "weights                                 134571 MiB" in error.allowed
    plan(num_gpus=2)
    plan(num_gpus=1, gpu=B200)
    plan(num_gpus=1, dtype="fp8")


def test_a_drafter_on_a_gpu_of_its_own_has_kv_for_branches_and_takes_nothing_from_the_target() -> None:
    found = plan(draft=LLAMA_1B)
    assert found.memory == plan().memory
    drafter = found.drafter
    assert drafter is not None
    assert (drafter.weights_bytes, drafter.kv_token_bytes) == (WEIGHTS_1B, 16 * 2 * 8 * 64 * 2)
    assert drafter.workspace_bytes == WORKSPACE_1B
    fitting = whole_blocks((80e9 - 3 * GIB - WEIGHTS_1B - WORKSPACE_1B) / 32_768)
    assert drafter.kv_cache_tokens == min(fitting, 2 * 1_414_944) == fitting
    small = plan(num_gpus=2, draft=LLAMA_1B).drafter
    assert small is not None and small.kv_cache_tokens == 2 * 26_848


def test_a_drafter_on_rank_0_takes_its_memory_there_and_a_share_of_that_gpu() -> None:
    found = plan(draft=LLAMA_1B, drafter_place="shared-gpu")
    taken = WEIGHTS_1B + WORKSPACE_1B + 65_536 * 32_768
    left = 80e9 - weights_70b(8) - workspace_70b(8) - 3 * GIB - taken - GIB
    assert found.memory.kv_cache_tokens == whole_blocks(left / 40_960)
    assert (taken + GIB) / 80e9 == pytest.approx(0.0834, abs=1e-3)
    assert found.drafter_gpu_ratio == 0.1
    assert found.drafter is None


def test_qwen_32b_with_a_local_draft_model_pays_the_kv_tax_of_its_cache() -> None:
    found = plan(QWEN_32B, num_gpus=2, draft=QWEN_SMALL, drafter_place="local")
    # 64 layers of width 5120, 64 heads and 8 key/value heads of 128 with norms, MLP of 25600, 151936 tokens.
    matrices = 64 * (2 * 5120 * 64 * 128 + 2 * 5120 * 8 * 128 + 3 * 5120 * 25_600)
    norms = 64 * (2 * 5120 + 2 * 128) + 5120
    weights = 2 * ((matrices + 2 * 151_936 * 5120) // 2 + norms)
    rows = 4 * 5120 + 64 * 128 + 8 * 128 + 3 * 25_600 // 2
    workspace = 8192 * 2 * rows + LOGIT_ROWS * 151_936 * 14
    # 28 layers of width 1024, 16 heads and 8 key/value heads of 128 with norms, MLP of 3072; its head is copied.
    draft_matrices = 28 * (2 * 1024 * 16 * 128 + 2 * 1024 * 8 * 128 + 3 * 1024 * 3072)
    draft_weights = 2 * (draft_matrices + 2 * 151_936 * 1024 + 28 * (2 * 1024 + 2 * 128) + 1024)
    draft_workspace = 256 * (2 * (4 * 1024 + 2 * 16 * 128 + 2 * 8 * 128 + 3 * 3072) + 14 * 151_936)
    draft_kv = 65_536 * 28 * 2 * 8 * 128 * 2
    kv_token = 64 * 2 * 4 * 128 * 2
    left = 80e9 - weights - workspace - draft_weights - draft_workspace - draft_kv - 3 * GIB
    assert found.memory.weights_bytes == weights
    assert found.memory.workspace_bytes == workspace
    assert found.memory.kv_cache_tokens == whole_blocks(left / kv_token)
    assert found.kv_tax_tokens == 16 * 7 + draft_kv // kv_token == 112 + 57_344
    assert found.fitting_sequences(Role.SPECULATIVE) == (found.memory.kv_cache_tokens - 57_456) // 4096
    assert found.max_model_len == 40_960


def test_deepseek_v3_in_fp8_on_8_h200_with_its_next_n_module() -> None:
    found = plan(DEEPSEEK, H200, 8, dtype="fp8", uses_mtp=True)
    # 61 layers of width 7168 and 128 heads; queries compressed to 1536, keys and values to 512 and 64 rotary.
    by_head = 1536 * 128 * 192 + 512 * 128 * 256 + 7168 * 128 * 128
    compressing = 7168 * (1536 + 512 + 64)
    dense, sparse = 3 * 7168 * 18_432, 3 * 7168 * 2048 * 257
    attention, norms = by_head // 8 + compressing, 1536 + 512 + 2 * 7168
    router, vocabulary = 256 * (7168 + 1), 2 * 129_280 * 7168
    in_fp8 = 61 * attention + (3 * dense + 58 * sparse) // 8
    in_bf16 = vocabulary // 8 + 58 * router + 61 * norms + 7168
    assert found.memory.weights_bytes == in_fp8 + 2 * in_bf16
    module = attention + sparse // 8 + 2 * (vocabulary // 8 + router + norms + 2 * 7168 * 7168 + 3 * 7168)
    kv_layer = 16 * (192 + 128) * 2
    assert found.memory.heads_bytes == module + 65_536 * kv_layer
    active = 3 * max(18_432, 9 * 2048) // 8
    rows = 4 * 7168 + 16 * (2 * 192 + 2 * 128) + 1536 + 512 + 64 + active
    workspace = 8192 * 2 * rows + LOGIT_ROWS * 129_280 * 14
    left = 141e9 - found.memory.weights_bytes - found.memory.heads_bytes - workspace - 3 * GIB
    assert found.memory.kv_cache_tokens == whole_blocks(left / (61 * kv_layer)) == 77_856
    assert found.max_model_len == 77_856 - 112


def test_compressed_kv_of_deepseek_v3_holds_many_more_tokens() -> None:
    latent = replace(DEEPSEEK, attention=replace(DEEPSEEK.attention, keeps_latent=True))  # type: ignore[type-var]
    full, small = (plan(shape, H200, 8, dtype="fp8").memory for shape in (DEEPSEEK, latent))
    assert small.kv_token_bytes == 70_272
    assert small.kv_cache_tokens == pytest.approx(full.kv_bytes / 70_272, abs=32 * 624_640 / 70_272)


def test_deepseek_v3_in_bf16_needs_two_nodes() -> None:
    with pytest.raises(ConfigError, match=r"--gpus = '8xH200' .* at least 16xH200, or 8xB200, or --dtype fp8"):
        plan(DEEPSEEK, H200, 8)
    assert plan(DEEPSEEK, H200, 16).request.num_ranks == 16


def test_a_verifier_stays_within_a_node_where_it_fits() -> None:
    found = plan(num_gpus=16)
    assert (found.request.num_ranks, found.num_verifiers) == (8, 2)
    assert plan(num_gpus=16, tensor_parallel=16).num_verifiers == 1
    assert plan(num_gpus=8, tensor_parallel=4).num_verifiers == 2
    assert plan(known_shape("SmolLM2-135M"), num_gpus=8).request.num_ranks == 3


def test_degrees_are_those_that_fit_with_the_kv_that_each_leaves() -> None:
    request = PlanRequest(target=LLAMA_70B, gpu=H100, num_gpus=8)
    assert list(fitting_degrees(request, 8)) == [2, 4, 8]
    assert fitting_degrees(request, 8)[2] == plan(num_gpus=2).memory.kv_cache_tokens


@pytest.mark.parametrize(
    ("settings", "field", "words"),
    [
        ({"tensor_parallel": 3}, "--tp", "one of 1, 2, 4, 8, which share Llama-3.3-70B evenly"),
        ({"tensor_parallel": 1}, "--tp", "at least 2"),
        ({"num_gpus": 2, "max_model_len": 30_000}, "--max-model-len", "at most 26736 here"),
        ({"max_model_len": 131_073}, "--max-model-len", "from 0 to 131072"),
        ({"num_gpus": 0}, "--gpus", "from 1 to 1024"),
        ({"uses_mtp": True}, "--draft", "Llama-3.3-70B has no next-n module"),
        ({"draft": LLAMA_70B}, "--draft", "a draft model that fits on one H100"),
        ({"draft": LLAMA_1B, "draft_kv_tokens": 4_000_000}, "--draft-kv-tokens", "at most 2236992 on one GPU"),
        ({"dtype": "int4"}, "--dtype", "one of bf16, fp8"),
        ({"drafter_place": "moon"}, "--drafter-place", "own-gpu, shared-gpu, local"),
        ({"reserve_bytes": 70 * GIB}, "--gpus", "at least 64xH100, or 8xH200"),
        ({"seats": RoleSeats(batch=4096), "max_num_batched_tokens": 2048}, "engine.max_num_batched_tokens", "4096"),
    ],
)
def test_what_does_not_fit_names_the_one_setting_to_change(settings: dict[str, Any], field: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        plan(**settings)
    assert caught.value.field == field
    assert words in caught.value.allowed


def test_the_longest_sequence_that_a_refusal_names_fits() -> None:
    assert plan(num_gpus=2, max_model_len=26_736).max_model_len == 26_736


@pytest.mark.parametrize("place", ["local", "shared-gpu"])
def test_where_the_cache_of_a_drafter_on_rank_0_is_too_large_its_most_is_named(place: str) -> None:
    settings: dict[str, Any] = {"num_gpus": 4, "draft": LLAMA_1B, "drafter_place": place}
    with pytest.raises(ConfigError) as caught:
        plan(**settings, draft_kv_tokens=2_000_000)
    assert caught.value.field == "--draft-kv-tokens"
    most = int(caught.value.allowed.split()[2])
    assert plan(**settings, draft_kv_tokens=most).max_sequences(Role.SPECULATIVE) == 1
    with pytest.raises(ConfigError, match="--draft-kv-tokens"):
        plan(**settings, draft_kv_tokens=most + 32)
    assert (most < 1_000_000) == (place == "local")  # There its KV counts twice: as memory, and as tax.


def test_defaults_are_those_of_the_application() -> None:
    request = PlanRequest(target=LLAMA_70B, gpu=H100, num_gpus=8)
    assert request.num_speculative_tokens == EngineConfig().num_speculative_tokens
    local = plan(draft=LLAMA_1B, drafter_place="local").memory.draft
    assert local is not None and local.kv_cache_tokens == DraftConfig().kv_cache_tokens
