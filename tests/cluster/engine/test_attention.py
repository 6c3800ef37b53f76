"""Paged attention against attention written out row by row in float64."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from cluster.engine import attention_tiles
from cluster.engine.attention import AttentionCall, PagedAttention, attention_forward
from cluster.engine.attention_tiles import output_order, plan_tiles
from cluster.engine.kv_cache import KVLayer, PagedKVCache
from cluster.engine.model_input import ModelInput
from cluster.errors import LoadError

BLOCK_SIZE = 4
NUM_BLOCKS = 64

# (cached positions before the rows, rows) of each sequence.
DECODES = ((5, 1), (11, 1), (7, 1), (30, 1))
VERIFICATIONS = ((3, 4), (20, 8), (17, 8))
PREFILLS = ((0, 40), (13, 25))
MIXED = (*DECODES, *PREFILLS, *VERIFICATIONS)


@dataclass(frozen=True)
class Scene:
    """A batch, its layer's new rows, and each sequence's whole keys and values, laid out plainly."""

    batch: ModelInput
    cache: PagedKVCache
    call: AttentionCall
    keys: list[torch.Tensor]
    values: list[torch.Tensor]

    def attend(self, call: AttentionCall | None = None) -> torch.Tensor:
        call = call or self.call
        paged = PagedAttention(cache=self.cache, layers={call.module: 0}, batch=self.batch, device=torch.device("cpu"))
        return paged.attend(call)


def make_batch(shapes: tuple[tuple[int, int], ...], generator: np.random.Generator) -> ModelInput:
    free = generator.permutation(NUM_BLOCKS).tolist()
    tables = [[free.pop() for _ in range(-(-(cached + rows) // BLOCK_SIZE))] for cached, rows in shapes]
    width = max(map(len, tables))
    rows = [(s, p) for s, (cached, num_rows) in enumerate(shapes) for p in range(cached, cached + num_rows)]
    return ModelInput(
        token_ids=np.zeros(len(rows), np.int32),
        positions=np.array([p for _, p in rows], np.int32),
        slot_mapping=np.array([tables[s][p // BLOCK_SIZE] * BLOCK_SIZE + p % BLOCK_SIZE for s, p in rows], np.int32),
        row_sequences=np.array([s for s, _ in rows], np.int32),
        block_tables=np.array([table + [0] * (width - len(table)) for table in tables], np.int32),
        logit_rows=np.zeros(0, np.int32),
    )


def make_scene(
    shapes: tuple[tuple[int, int], ...], *, heads: int = 6, kv_heads: int = 2, key_dim: int = 8, value_dim: int = 8
) -> Scene:
    batch = make_batch(shapes, np.random.default_rng(0))
    generator = torch.Generator().manual_seed(0)
    layer = KVLayer(num_kv_heads=kv_heads, key_dim=key_dim, value_dim=value_dim, dtype=torch.float32)
    cache = PagedKVCache(num_blocks=NUM_BLOCKS, block_size=BLOCK_SIZE, layers=[layer])
    # What lies in slots that nobody in this batch owns must not matter.
    everything = torch.full((NUM_BLOCKS * BLOCK_SIZE, kv_heads, key_dim), float("nan"))
    cache.write(0, everything, everything[..., :1].expand(-1, -1, value_dim), torch.arange(len(everything)))
    keys = [torch.randn(sum(shape), kv_heads, key_dim, generator=generator) for shape in shapes]
    values = [torch.randn(sum(shape), kv_heads, value_dim, generator=generator) for shape in shapes]
    for sequence, (cached, _) in enumerate(shapes):
        blocks = batch.block_tables[sequence].astype(np.int64)
        positions = np.arange(cached)
        slots = torch.from_numpy(blocks[positions // BLOCK_SIZE] * BLOCK_SIZE + positions % BLOCK_SIZE)
        cache.write(0, keys[sequence][:cached], values[sequence][:cached], slots)
    call = AttentionCall(
        module=nn.Identity(),
        query=torch.randn(len(batch.positions), heads, key_dim, generator=generator),
        key=torch.cat([key[cached:] for key, (cached, _) in zip(keys, shapes, strict=True)]),
        value=torch.cat([value[cached:] for value, (cached, _) in zip(values, shapes, strict=True)]),
    )
    return Scene(batch, cache, call, keys, values)


def plain_attention(scene: Scene, call: AttentionCall) -> torch.Tensor:
    rows = []
    for row, (sequence, position) in enumerate(zip(scene.batch.row_sequences, scene.batch.positions, strict=True)):
        first = 0 if call.sliding_window is None else max(0, position + 1 - call.sliding_window)
        groups = call.query.shape[1] // call.key.shape[1]
        key = scene.keys[sequence][first : position + 1].double().repeat_interleave(groups, dim=1)
        value = scene.values[sequence][first : position + 1].double().repeat_interleave(groups, dim=1)
        scores = torch.einsum("hd,lhd->hl", call.query[row].double(), key)
        scores = scores * (call.scaling if call.scaling is not None else key.shape[-1] ** -0.5)
        if call.softcap is not None:
            scores = call.softcap * torch.tanh(scores / call.softcap)
        if call.sinks is not None:
            scores = torch.cat([scores, call.sinks.double()[:, None]], dim=1)
        weights = scores.softmax(dim=1)[:, : len(key)]
        rows.append(torch.einsum("hl,lhd->hd", weights, value))
    return torch.stack(rows).float()


@pytest.mark.parametrize(
    "shapes", [DECODES, VERIFICATIONS, PREFILLS, MIXED], ids=["decode", "verify", "prefill", "mix"]
)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"scaling": 0.7},
        {"sliding_window": 5},
        {"softcap": 1.5},
        {"sinks": torch.linspace(-2, 2, 6)},
        {"softcap": 2.0, "sinks": torch.linspace(-2, 2, 6), "sliding_window": 3, "scaling": 0.5},
    ],
    ids=["plain", "scaled", "window", "softcap", "sinks", "all"],
)
def test_every_row_sees_its_own_sequence_up_to_itself(
    shapes: tuple[tuple[int, int], ...], options: dict[str, object]
) -> None:
    scene = make_scene(shapes)
    call = replace(scene.call, **options)  # type: ignore[arg-type]
    torch.testing.assert_close(scene.attend(call), plain_attention(scene, call), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (4, 1), (8, 2)])
def test_query_heads_share_key_heads_in_order(heads: int, kv_heads: int) -> None:
    scene = make_scene(MIXED, heads=heads, kv_heads=kv_heads)
    torch.testing.assert_close(scene.attend(), plain_attention(scene, scene.call), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("key_dim", "value_dim"), [(12, 5), (4, 16)])
def test_values_may_have_another_width_than_keys(key_dim: int, value_dim: int) -> None:
    scene = make_scene(MIXED, key_dim=key_dim, value_dim=value_dim)
    found = scene.attend()
    assert found.shape == (len(scene.batch.positions), 6, value_dim)
    torch.testing.assert_close(found, plain_attention(scene, scene.call), atol=1e-5, rtol=1e-5)


def test_a_prefill_has_one_mask_for_all_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = make_scene(((0, 40),), heads=8, kv_heads=2)
    masks: list[torch.Tensor] = []
    original = functional.scaled_dot_product_attention

    def spy(*args: Any, **options: Any) -> torch.Tensor:
        masks.append(options["attn_mask"])
        return original(*args, **options)

    monkeypatch.setattr(functional, "scaled_dot_product_attention", spy)
    scene.attend()
    assert [mask.numel() for mask in masks] == [40 * 40]


def test_decodes_of_similar_length_share_one_tile_and_prefills_stand_alone() -> None:
    batch = make_batch(((20, 1), (0, 40), (25, 1), (3, 1), (18, 8)), np.random.default_rng(1))
    tiles = plan_tiles(batch, BLOCK_SIZE)
    assert [tile.rows.shape for tile in tiles] == [(1, 40), (3, 8), (1, 1)]


@pytest.mark.parametrize("seed", range(20))
def test_each_row_has_exactly_one_place_in_the_output(seed: int) -> None:
    generator = np.random.default_rng(seed)
    shapes = tuple((int(generator.integers(0, 12)), int(generator.integers(1, 20))) for _ in range(7))
    batch = make_batch(shapes, generator)
    tiles = plan_tiles(batch, BLOCK_SIZE)
    places = np.concatenate([tile.rows.reshape(-1) for tile in tiles])
    np.testing.assert_array_equal(places[output_order(tiles, len(batch.positions))], np.arange(len(batch.positions)))


def test_shared_tiles_stay_within_their_slot_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_tiles, "MAX_SHARED_SLOTS", 50)
    batch = make_batch(((20, 1),) * 5, np.random.default_rng(1))
    assert [tile.slots.shape for tile in plan_tiles(batch, BLOCK_SIZE)] == [(2, 21), (2, 21), (1, 21)]


def test_padding_reads_only_slots_of_the_same_sequence() -> None:
    batch = make_batch(MIXED, np.random.default_rng(2))
    for tile in plan_tiles(batch, BLOCK_SIZE):
        for rows, slots in zip(tile.rows, tile.slots, strict=True):
            own = batch.block_tables[batch.row_sequences[rows[0]]]
            num_own = -(-(int(batch.positions[rows[-1]]) + 1) // BLOCK_SIZE)
            assert set(slots // BLOCK_SIZE) <= set(own[:num_own].tolist())


class Echo:
    """A backend that gives the values back."""

    def attend(self, call: AttentionCall) -> torch.Tensor:
        return call.value


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"paged": None}, "keyword arguments"),
        ({"attention_mask": torch.zeros(1, 1, 3, 3)}, "masks"),
        ({"position_bias": torch.zeros(1, 2, 3, 3)}, "position bias"),
        ({"is_causal": False}, "not causal"),
    ],
)
def test_what_paged_attention_does_not_do_is_refused_by_name(options: dict[str, object], reason: str) -> None:
    tensor = torch.zeros(1, 2, 3, 4)
    arguments: dict[str, object] = {"attention_mask": None, "paged": Echo(), **options}
    with pytest.raises(LoadError, match=f"Identity .*{reason}"):
        attention_forward(nn.Identity(), tensor, tensor, tensor, **arguments)  # type: ignore[arg-type]


def test_transformers_layout_goes_in_and_comes_out() -> None:
    value = torch.arange(24.0).reshape(1, 2, 3, 4)
    found, weights = attention_forward(nn.Identity(), value, value, value, None, paged=Echo())
    assert weights is None
    torch.testing.assert_close(found, value.transpose(1, 2))


def test_cache_size_counts_keys_and_values_of_all_layers() -> None:
    layers = [
        KVLayer(num_kv_heads=2, key_dim=8, value_dim=4, dtype=torch.bfloat16),
        KVLayer(num_kv_heads=1, key_dim=8, value_dim=8, dtype=torch.float32),
    ]
    cache = PagedKVCache(num_blocks=3, block_size=4, layers=layers)
    assert cache.num_bytes == 12 * (2 * 12 * 2 + 16 * 4)
