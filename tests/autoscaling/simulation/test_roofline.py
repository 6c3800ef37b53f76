from dataclasses import replace

import pytest

from autoscaling.simulation.cost import from_roofline
from autoscaling.simulation.hardware import B200, GPUS, H100, H200, GpuProfile
from autoscaling.simulation.models import LLAMA_1B, LLAMA_8B, LLAMA_70B
from autoscaling.simulation.roofline import Efficiency, Roofline
from cluster.errors import ConfigError
from cluster.types import Role

NODE = Roofline(model=LLAMA_70B, gpu=H100, num_gpus=8)
WEIGHTS_70B = 2 * 70_553_706_496


def test_weights_of_70b_stream_in_42_ms_through_one_h100() -> None:
    single = Roofline(model=LLAMA_70B, gpu=H100).ideal()
    assert single.streaming_s == pytest.approx(WEIGHTS_70B / 3.35e12)
    assert single.row_flops_s == pytest.approx(WEIGHTS_70B / 989.5e12)
    assert single.ridge_rows == pytest.approx(989.5 / 3.35, rel=1e-3)


def test_kv_entry_of_llama_70b_is_320_kib() -> None:
    assert LLAMA_70B.kv_bytes_per_token() == 2 * 80 * 8 * 128 * 2 == 320 * 1024


def test_an_ideal_pass_takes_the_longer_of_streaming_and_arithmetic() -> None:
    times = Roofline(model=LLAMA_70B, gpu=H100).ideal().step_times()
    assert times.seconds(1) == pytest.approx(42.12e-3, rel=1e-3)
    assert times.seconds(200) == pytest.approx(times.seconds(1))
    assert times.seconds(1000) == pytest.approx(1000 * WEIGHTS_70B / 989.5e12, rel=1e-3)


def test_the_table_equals_the_formula_on_both_sides_of_the_ridge() -> None:
    times, e = NODE.step_times(), NODE.efficiency
    for rows in (1, 16, 100, 300, 1000):
        weights_s = WEIGHTS_70B / (8 * 3.35e12 * e.bandwidth_ratio)
        arithmetic_s = rows * WEIGHTS_70B / (8 * 989.5e12 * e.flops_ratio)
        reduced_bytes = 2 * 80 * 8192 * 2 * rows * 2 * 7 / 8
        link_s = 160 * e.all_reduce_s + reduced_bytes / (450e9 * e.link_ratio)
        assert times.forward_s(rows) == pytest.approx(max(weights_s, arithmetic_s) + link_s + e.overhead_s, rel=5e-3)


def test_context_is_read_at_the_bandwidth_of_all_gpus() -> None:
    added_s = NODE.step_times().seconds(8, 100_000) - NODE.step_times().seconds(8)
    assert added_s == pytest.approx(100_000 * 327_680 / (8 * 3.35e12 * 0.8))


def test_one_gpu_has_no_all_reduce() -> None:
    assert Roofline(model=LLAMA_8B, gpu=H100, efficiency=Efficiency(all_reduce_s=1.0)).step_times().seconds(1) < 0.1


def test_70b_in_bf16_does_not_fit_in_one_h100() -> None:
    with pytest.raises(ConfigError, match="at least 2: 141 GB") as caught:
        Roofline(model=LLAMA_70B, gpu=H100).kv_capacity_tokens()
    assert caught.value.field == "num_gpus"


def test_kv_capacity_is_what_weights_leave() -> None:
    assert NODE.kv_capacity_tokens() == int((8 * 80e9 * 0.9 - WEIGHTS_70B) / 327_680)


@pytest.mark.parametrize(("gpu", "faster"), [(H200, H100), (B200, H200)])
def test_later_gpus_stream_faster(gpu: GpuProfile, faster: GpuProfile) -> None:
    assert replace(NODE, gpu=gpu).streaming_s < replace(NODE, gpu=faster).streaming_s


def test_dense_flops_are_half_of_what_data_sheets_print() -> None:
    assert GPUS["h100"].dense_flops == {"bf16": 1979e12 / 2, "fp8": 3958e12 / 2}


def test_a_local_draft_model_takes_kv_from_role_speculative_only() -> None:
    cost = from_roofline(NODE, Roofline(model=LLAMA_1B, gpu=H100), draft_kv_sequences=16)
    assert cost.kv_capacity_tokens[Role.BATCH] == NODE.kv_capacity_tokens()
    draft_bytes = 2 * 1_235_814_400 + 16 * 4096 * LLAMA_1B.kv_bytes_per_token()
    assert cost.kv_tax_tokens == pytest.approx(draft_bytes / 327_680, abs=1)
    assert cost.price_per_hour == 24.0


def test_a_drafter_on_its_own_gpu_takes_no_time_and_no_kv_but_is_paid_for() -> None:
    cost = from_roofline(NODE, Roofline(model=LLAMA_1B, gpu=H100), is_draft_ahead=True)
    assert (cost.draft_s(16, 5), cost.kv_tax_tokens, cost.num_gpus, cost.price_per_hour) == (0.0, 0, 9.0, 27.0)


def test_drafting_costs_a_pass_for_each_token_of_the_longest_draft() -> None:
    draft = Roofline(model=LLAMA_1B, gpu=H100)
    cost = from_roofline(NODE, draft, draft_kv_sequences=16)
    assert cost.draft_s(16, 5) == pytest.approx(5 * draft.step_times().seconds(16))
    tilted = cost.times_at(16)
    with_drafts = tilted.seconds(16 * 6, num_sequences=16)
    assert with_drafts == pytest.approx(cost.times.seconds(96, num_sequences=16) + cost.draft_s(16, 5))


def test_energy_rises_from_idle_over_streaming_to_arithmetic() -> None:
    cost = from_roofline(NODE)
    idle = cost.energy_j(busy_s=0, idle_s=10, num_rows=0)
    streaming = cost.energy_j(busy_s=10, idle_s=0, num_rows=0)
    computing = cost.energy_j(busy_s=10, idle_s=0, num_rows=10 / cost.row_flops_s)
    assert idle < streaming < computing == pytest.approx(10 * 5600)
