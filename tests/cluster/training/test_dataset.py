from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from cluster.errors import ConfigError, LoadError
from cluster.training.dataset import LabelledText, epoch_batches, head_vocabulary, read_texts
from cluster.training.prompts import INVENTED, Source, TrainingPrompt
from cluster.training.shards import NUM_LABELS, ShardWriter, SourceCount, Text, count_sources, shard_files
from tests.cluster.training.test_distill import target_config
from tests.cluster.training.training_harness import random_texts

REAL = Source(use="tasks on passages", name="a book", licence="public domain")
TEXTS = random_texts(50, target_config(), seed=4)


def written(index: int, num_prompt: int, num_tokens: int, source: Source = INVENTED) -> Text:
    prompt = TrainingPrompt(token_ids=tuple(range(num_prompt)), temperature=1.0, max_tokens=99, source=source)
    labels = [[100 * index + n] * NUM_LABELS for n in range(num_tokens)]
    logprobs = [[-1.0 - n] * NUM_LABELS for n in range(num_tokens)]
    return Text(index, prompt, [100 * index + n for n in range(num_tokens)], labels, logprobs)


def test_shards_give_back_what_was_written(tmp_path: Path) -> None:
    shards = ShardWriter(tmp_path, 2)
    shards.add(1, [written(1, 4, 3)])
    assert not shards.write_next()
    shards.add(0, [written(0, 2, 5), written(0, 3, 1, REAL)])
    assert shards.write_next()
    assert (shards.num_shards, shards.num_tokens, shards.first_index) == (1, 9, 2)
    texts = read_texts(shard_files(tmp_path), 100)
    assert [text.label_start for text in texts] == [2, 3, 4]
    assert texts[2].token_ids.tolist() == [0, 1, 2, 3, 100, 101, 102]
    assert texts[2].label_ids[:, 0].tolist() == [100, 101, 102]
    assert np.allclose(texts[2].label_probs[:, 0], np.exp([-1, -2, -3]), rtol=1e-3)


def test_a_writer_goes_on_behind_the_shards_that_are_there(tmp_path: Path) -> None:
    first = ShardWriter(tmp_path, 1)
    first.add(0, [written(0, 2, 5)])
    first.write_next()
    ShardWriter(tmp_path, 1, "others").add(0, [written(0, 2, 1)])
    again = ShardWriter(tmp_path, 1)
    assert (again.first_index, again.num_tokens) == (1, 5)
    again.add(1, [written(1, 1, 4)])
    assert again.write_next()
    assert [path.name for path in shard_files(tmp_path)] == ["shard-00000.safetensors", "shard-00001.safetensors"]


def test_a_shard_without_any_text_is_refused_instead_of_searching_for_ever(tmp_path: Path) -> None:
    shards = ShardWriter(tmp_path, 1)
    shards.add(0, [])
    with pytest.raises(ConfigError, match="has room for prompts"):
        shards.write_next()


def test_texts_and_tokens_are_counted_by_source(tmp_path: Path) -> None:
    shards = ShardWriter(tmp_path, 2)
    shards.add(0, [written(0, 2, 5), written(0, 3, 7)])
    shards.add(1, [written(1, 4, 3, REAL)])
    shards.write_next()
    assert count_sources(shard_files(tmp_path)) == [
        SourceCount(source=INVENTED, num_texts=2, num_tokens=12),
        SourceCount(source=REAL, num_texts=1, num_tokens=3),
    ]


def test_a_damaged_shard_is_named(tmp_path: Path) -> None:
    (tmp_path / "shard-00000.safetensors").write_bytes(b"broken")
    with pytest.raises(LoadError, match="shard-00000"):
        ShardWriter(tmp_path, 1)
    with pytest.raises(LoadError, match="shard-00000"):
        read_texts(shard_files(tmp_path), 100)


def test_long_texts_lose_the_front_of_their_prompt_and_keep_their_labels(tmp_path: Path) -> None:
    shards = ShardWriter(tmp_path, 1)
    shards.add(0, [written(0, 50, 5), written(0, 3, 12)])
    shards.write_next()
    (text,) = read_texts(shard_files(tmp_path), 10)
    assert text.token_ids.tolist() == [45, 46, 47, 48, 49, 0, 1, 2, 3, 4]
    assert text.label_start == 5
    assert text.label_ids[:, 0].tolist() == [0, 1, 2, 3, 4]


def test_the_head_covers_the_tokens_with_most_mass_in_rising_order() -> None:
    ids = np.array([[7, 3], [7, 90]], np.int32)
    probs = np.array([[0.5, 0.4], [0.6, 0.3]], np.float32)
    text = LabelledText(token_ids=np.zeros(3, np.int32), label_start=1, label_ids=ids, label_probs=probs)
    assert head_vocabulary([text], 1, 96).tolist() == [7]
    assert head_vocabulary([text], 2, 96).tolist() == [3, 7]
    assert head_vocabulary([text, text], 3, 96).tolist() == [3, 7, 90]
    assert head_vocabulary([text], 1000, 96).tolist() == list(range(96))


def contents(seed: int, texts: list[LabelledText] | None = None) -> list[tuple[int, ...]]:
    return [tuple(batch.label_ids.flatten().tolist()) for batch in epoch_batches(texts or TEXTS, 200, seed)]


def test_an_epoch_holds_every_label_once() -> None:
    found: Counter[tuple[int, ...]] = Counter()
    for batch in epoch_batches(TEXTS, 200, 0):
        found.update(map(tuple, batch.label_ids.tolist()))
    assert found == Counter(tuple(row) for text in TEXTS for row in text.label_ids.tolist())


def test_batches_keep_to_their_size_and_labels_stand_behind_the_token_before_them() -> None:
    by_label = {tuple(text.label_ids[0].tolist()): text for text in TEXTS}
    for batch in epoch_batches(TEXTS, 200, 0):
        assert batch.token_ids.numel() <= 200
        flat = batch.token_ids.flatten()
        starts = [n for n, row in enumerate(batch.label_ids.tolist()) if tuple(row) in by_label]
        assert len(starts) == len(batch.token_ids)
        for n in starts:
            text = by_label[tuple(batch.label_ids[n].tolist())]
            count = len(text.label_ids)
            rows = batch.rows[n : n + count]
            assert torch.equal(flat[rows], torch.from_numpy(text.token_ids[text.label_start - 1 : -1]).long())
            assert torch.equal(batch.label_probs[n : n + count], torch.from_numpy(text.label_probs.copy()))


def test_the_order_of_an_epoch_is_the_seeds() -> None:
    assert contents(3) == contents(3)
    assert contents(3) != contents(4)
    assert sorted(map(len, contents(3))) == sorted(map(len, contents(3)))
