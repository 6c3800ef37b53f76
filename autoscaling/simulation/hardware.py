"""What accelerators can do, from the manufacturer's public data sheets.

NVIDIA prints tensor-core figures "with sparsity", twice of what dense matrices reach; language models are dense, so
dense figures stand here. Prices are assumptions of the size that clouds asked for in public, not quotes: name your own.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProfile:
    """One accelerator.

    Attributes:
        name: how reports call it.
        source: where the figures stand.
        memory_bytes: of its high-bandwidth memory.
        bandwidth_bytes_per_s: of that memory.
        dense_flops: matrix arithmetic by dtype, without sparsity, in operations per second.
        link_bytes_per_s: to the other GPUs of its node, one direction.
        power_w: its limit.
        price_per_hour: assumed, in dollars.
    """

    name: str
    source: str
    memory_bytes: float
    bandwidth_bytes_per_s: float
    dense_flops: dict[str, float]
    link_bytes_per_s: float
    power_w: float
    price_per_hour: float


SPARSITY_FACTOR = 2.0
"""Data sheets' figures with sparsity are this many times the dense ones."""

H100 = GpuProfile(
    name="H100 SXM",
    source="NVIDIA H100 Tensor Core GPU data sheet: 1,979 TFLOPS BF16 and 3,958 FP8 with sparsity",
    memory_bytes=80e9,
    bandwidth_bytes_per_s=3.35e12,
    dense_flops={"bf16": 989.5e12, "fp8": 1979e12},
    link_bytes_per_s=450e9,
    power_w=700.0,
    price_per_hour=3.0,
)
H200 = GpuProfile(
    name="H200 SXM",
    source="NVIDIA H200 Tensor Core GPU data sheet: 1,979 TFLOPS BF16 and 3,958 FP8 with sparsity",
    memory_bytes=141e9,
    bandwidth_bytes_per_s=4.8e12,
    dense_flops={"bf16": 989.5e12, "fp8": 1979e12},
    link_bytes_per_s=450e9,
    power_w=700.0,
    price_per_hour=3.8,
)
B200 = GpuProfile(
    name="B200",
    source="NVIDIA DGX B200 data sheet, an eighth of it: 1,440 GB, 64 TB/s, 72 PFLOPS FP8 with sparsity",
    memory_bytes=180e9,
    bandwidth_bytes_per_s=8.0e12,
    dense_flops={"bf16": 2250e12, "fp8": 4500e12},
    link_bytes_per_s=900e9,
    power_w=1000.0,
    price_per_hour=6.0,
)

GPUS: dict[str, GpuProfile] = {"h100": H100, "h200": H200, "b200": B200}
"""By the name in scenario files."""
