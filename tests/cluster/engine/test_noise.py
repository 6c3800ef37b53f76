"""The noise is what it is defined to be, for ever, and random enough."""

import hashlib
import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
import torch
from scipy import stats

from cluster.engine import noise

VOCAB_SIZE = 49_152
MASK64 = (1 << 64) - 1
SEEDS = (0, 1, 42, 1 << 63, MASK64)


def uniforms(gumbel: torch.Tensor) -> npt.NDArray[np.float64]:
    """The uniform values behind Gumbel noise: its own distribution function."""
    return np.exp(-np.exp(-np.asarray(gumbel, dtype=np.float64)))


def bits_by_definition(seed: int, output_index: int, token_id: int) -> int:
    """The hash written with Python's unbounded integers."""

    def mix(value: int) -> int:
        value &= MASK64
        value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 & MASK64
        value = (value ^ (value >> 27)) * 0x94D049BB133111EB & MASK64
        return value ^ (value >> 31)

    key = mix(mix(seed + 0x9E3779B97F4A7C15) + (output_index + 1) * 0x9E3779B97F4A7C15)
    h = token_id ^ (key & 0xFFFFFFFF)
    h = (h ^ (h >> 16)) * 0x7FEB352D & 0xFFFFFFFF
    h = (h ^ (h >> 15)) * 0x846CA68B & 0xFFFFFFFF
    h = h ^ (h >> 16) ^ (key >> 32)
    h = (h ^ (h >> 16)) * 0x21F0AAAD & 0xFFFFFFFF
    h = (h ^ (h >> 15)) * 0xD35A2D97 & 0xFFFFFFFF
    return h ^ (h >> 15)


def log_by_definition(x: float) -> float:
    """The logarithm's series in Python floats, which never fuse or reorder operations."""
    mantissa, exponent = math.frexp(x)
    mantissa, exponent = mantissa * 2.0, exponent - 1
    if mantissa >= math.sqrt(2.0):
        mantissa, exponent = mantissa / 2.0, exponent + 1
    s = (mantissa - 1.0) / (mantissa + 1.0)
    z = s * s
    series = 0.0
    for denominator in (19.0, 17.0, 15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0):
        series = 1.0 / denominator + z * series
    return exponent * math.log(2.0) + (2.0 * s + 2.0 * s * (z * series))


def test_bits_never_change() -> None:
    digest = hashlib.sha256()
    for seed in SEEDS:
        for output_index in (0, 1, 1000):
            digest.update(noise.gumbel(seed, output_index, VOCAB_SIZE).numpy().tobytes())
    assert digest.hexdigest() == "b5e71cce7fde82afce4e641f3c31363e96e0b5744881326a81988ce37cec1f96"


def test_noise_equals_its_definition_bit_for_bit() -> None:
    for seed in SEEDS:
        values = noise.gumbel(seed, 17, 300).tolist()
        for token_id in range(300):
            w = (bits_by_definition(seed, 17, token_id) + 0.5) * 2.0**-32
            assert values[token_id] == np.float32(-log_by_definition(-log_by_definition(1.0 - w)))


def test_noise_is_the_gumbel_quantile_of_its_bits_to_float32_precision() -> None:
    extremes = [0, 1, 2, 3, 1 << 31, (1 << 32) - 2, (1 << 32) - 1]
    spread = [k * 4_294_967 for k in range(1000)]
    for bits in extremes + spread:
        exact = -math.log(-math.log1p(-(bits + 0.5) * 2.0**-32))
        assert float(noise.gumbel_from_bits(np.uint32(bits))) == pytest.approx(exact, rel=1.2e-7, abs=1e-9)


def test_neighbouring_bits_in_the_upper_tail_give_different_noise() -> None:
    tail = [float(noise.gumbel_from_bits(np.uint32(bits))) for bits in range(5000)]
    assert all(left > right for left, right in pairwise(tail))


@pytest.mark.parametrize("vocab_size", [1, 7, 63, 64, 65, 1000])
def test_a_tokens_noise_does_not_depend_on_vocabulary_size_batch_or_position_in_a_list(vocab_size: int) -> None:
    whole = noise.gumbel(5, 3, VOCAB_SIZE)
    assert torch.equal(noise.gumbel(5, 3, vocab_size), whole[:vocab_size])
    rows = noise.gumbel_rows([9, 5, 5], [3, 3, 4], vocab_size)
    assert torch.equal(rows[1], whole[:vocab_size])
    assert not torch.equal(rows[0], rows[1])
    assert not torch.equal(rows[2], rows[1])
    ids = [40_000, vocab_size - 1, 0, 40_000]
    assert torch.equal(noise.gumbel_at(5, 3, ids), whole[ids])


@pytest.mark.parametrize("seed", SEEDS)
def test_noise_is_uniform_over_tokens(seed: int) -> None:
    for output_index in (0, 1, 777):
        assert stats.kstest(uniforms(noise.gumbel(seed, output_index, VOCAB_SIZE)), "uniform").pvalue > 1e-3


def test_noise_is_uniform_over_output_indices() -> None:
    for token_id in (0, 1, 49_151):
        values = torch.cat([noise.gumbel_at(3, index, [token_id]) for index in range(5000)])
        assert stats.kstest(uniforms(values), "uniform").pvalue > 1e-3


def test_noise_is_uniform_over_neighbouring_seeds() -> None:
    for token_id in (0, 1, 49_151):
        values = torch.cat([noise.gumbel_at(seed, 0, [token_id]) for seed in range(5000)])
        assert stats.kstest(uniforms(values), "uniform").pvalue > 1e-3


def diagonal(shift: int) -> torch.Tensor:
    """Noise at (index, token) = (i + shift, i + j + shift)."""
    return torch.cat([noise.gumbel_at(8, i + shift, range(i + shift, i + shift + 200)) for i in range(200)])


NEIGHBOURS: dict[str, Callable[[], tuple[torch.Tensor, torch.Tensor]]] = {
    "next token": lambda: (noise.gumbel(11, 4, VOCAB_SIZE)[:-1], noise.gumbel(11, 4, VOCAB_SIZE)[1:]),
    "next index": lambda: (noise.gumbel(11, 4, VOCAB_SIZE), noise.gumbel(11, 5, VOCAB_SIZE)),
    "next seed": lambda: (noise.gumbel(11, 4, VOCAB_SIZE), noise.gumbel(12, 4, VOCAB_SIZE)),
    "seed and index swapped": lambda: (noise.gumbel(11, 4, VOCAB_SIZE), noise.gumbel(4, 11, VOCAB_SIZE)),
    "index and token together": lambda: (diagonal(0), diagonal(1)),
}


@pytest.mark.parametrize("neighbour", NEIGHBOURS)
def test_neighbours_are_independent(neighbour: str) -> None:
    left, right = (uniforms(values) for values in NEIGHBOURS[neighbour]())
    pairs, _, _ = np.histogram2d(left, right, bins=16, range=[[0, 1], [0, 1]])
    assert stats.chisquare(pairs.ravel()).pvalue > 1e-3
    assert stats.pearsonr(left, right).pvalue > 1e-3


def test_one_changed_input_bit_flips_half_of_the_output_bits() -> None:
    flips = []
    for n in range(200):
        base = bits_by_definition(n, n, n)
        changed = [(n ^ 1 << b, n, n) for b in range(64)]
        changed += [(n, n ^ 1 << b, n) for b in range(16)]
        changed += [(n, n, n ^ 1 << b) for b in range(17)]
        flips.append([(base ^ bits_by_definition(*inputs)).bit_count() for inputs in changed])
    per_input_bit = np.mean(flips, axis=0)
    assert np.all(np.abs(per_input_bit - 16.0) < 1.0)  # standard error 0.2


def test_keys_of_neighbouring_seeds_and_indices_never_collide() -> None:
    keys = {noise.row_key(seed, index) for seed in range(400) for index in range(400)}
    assert len(keys) == 160_000


def test_noise_of_neighbouring_seeds_is_not_a_shifted_copy() -> None:
    rows = [set(noise.gumbel(seed, index, 4096).tolist()) for seed in range(6) for index in range(6)]
    shared = [len(a & b) for i, a in enumerate(rows) for b in rows[:i]]
    assert max(shared) <= 30  # equal values by chance: float32 holds about 2^23 of them here


def test_seeds_are_taken_modulo_two_to_the_64() -> None:
    assert noise.row_key(-1, 0) == noise.row_key(MASK64, 0)
    assert noise.row_key(1 << 64, 0) == noise.row_key(0, 0)


def test_choices_of_a_request_get_different_seeds_and_the_first_keeps_the_requests() -> None:
    assert noise.derive_seed(42, 0) == 42
    seeds = {noise.derive_seed(seed, choice) for seed in range(100) for choice in range(16)}
    assert len(seeds) == 1600
    assert all(0 <= seed <= MASK64 for seed in seeds)


def test_streams_and_rounds_have_seeds_of_their_own() -> None:
    seeds = {noise.stream_seed(seed, stream, n) for seed in range(20) for stream in noise.Stream for n in range(20)}
    assert len(seeds | set(range(20))) == 20 * 3 * 20 + 20


def test_noise_of_two_streams_is_independent() -> None:
    streams = [[noise.uniform(noise.stream_seed(s, stream, 3), 2) for s in range(1500)] for stream in noise.Stream]
    rounds = [[noise.uniform(noise.stream_seed(s, noise.Stream.ACCEPT, n), 2) for s in range(1500)] for n in (4, 5)]
    coupled = [[noise.uniform(s, 2) for s in range(1500)]]
    assert np.abs(np.corrcoef([*streams, *rounds, *coupled]) - np.eye(6)).max() < 0.1


def test_uniform_numbers_are_uniform_and_never_0_or_1() -> None:
    drawn = np.array([noise.uniform(seed, index) for seed in range(80) for index in range(80)])
    assert drawn.min() > 0.0
    assert drawn.max() < 1.0
    assert stats.kstest(drawn, "uniform").pvalue > 1e-3
    assert noise.uniform(3, 5) == noise.uniform(3 + (1 << 64), 5)
