"""Next-n modules against the same in plain torch, on random checkpoints in the published layout."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from cluster.engine.drafters import mtp as mtp_module
from cluster.engine.drafters.draft_job import DraftCapacityError, DraftLengthError
from cluster.engine.drafters.head import HeadRows
from cluster.engine.drafters.heads import head_target, load_heads
from cluster.engine.drafters.mtp import BLOCK_SIZE, MtpHead, MtpState, build_mtp
from cluster.engine.model_source import ModelSource
from cluster.errors import LoadError
from tests.cluster.engine.drafters.mtp_reference import CONFIGS, MAX_MODEL_LEN, Checkpoint, Reference, random_checkpoint
from tests.tiny import VOCAB_SIZE, build_config

HIDDEN, NUM_DRAFTS = 32, 4

both_families = pytest.mark.parametrize("family", CONFIGS)


@cache
def checkpoint(family: str) -> Checkpoint:
    return random_checkpoint(family)


@cache
def head(family: str) -> MtpHead:
    return build_mtp(checkpoint(family).target())


class Text:
    """A random sequence with the target's hidden states."""

    def __init__(self, seed: int, length: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.token_ids: list[int] = torch.randint(3, VOCAB_SIZE, (length + 1,), generator=generator).tolist()
        self.features_nH = torch.randn(length, HIDDEN, generator=generator)

    def rows(self, mtp: MtpHead, state: MtpState, start: int, end: int) -> HeadRows:
        mtp.reserve(state, end - start + NUM_DRAFTS, end + NUM_DRAFTS)
        return HeadRows(
            state=state,
            first_position=start,
            token_ids=self.token_ids[start + 1 : end + 1],
            features_nF=self.features_nH[start:end],
        )

    def wanted(self, family: str, positions: Sequence[int], drafts: Sequence[int]) -> list[Tensor]:
        places = list(positions)
        tokens = [self.token_ids[place + 1] for place in places]
        return Reference(checkpoint(family)).draft(self.features_nH[places], tokens, drafts, places)


def assert_same(found: object, wanted: Sequence[Tensor]) -> None:
    torch.testing.assert_close(torch.as_tensor(np.asarray(found)), torch.stack(list(wanted)), atol=2e-4, rtol=1e-3)


@both_families
def test_a_draft_has_the_logits_of_the_module_written_out(family: str) -> None:
    text, drafts = Text(1, 7), [11, 12, 13]
    mtp = head(family)
    state = mtp.open()
    found = [mtp.begin([text.rows(mtp, state, 0, 7)])[0], *(mtp.step([state], [token])[0] for token in drafts)]
    assert_same(found, text.wanted(family, range(7), drafts))
    mtp.close(state)


@both_families
def test_rows_read_in_parts_give_the_logits_of_all_rows_and_drafts_are_forgotten(family: str) -> None:
    text = Text(2, 9)
    mtp = head(family)
    state = mtp.open()
    for start, end in ((0, 4), (4, 5), (5, 9)):
        found = [mtp.begin([text.rows(mtp, state, start, end)])[0], *(mtp.step([state], [t])[0] for t in (7, 8))]
        assert_same(found, text.wanted(family, range(end), [7, 8]))
    mtp.close(state)


@both_families
def test_sequences_of_one_batch_do_not_see_each_other(family: str) -> None:
    texts, drafts = [Text(seed, length) for seed, length in ((3, 40), (4, 1), (5, 6))], [21, 22]
    mtp = head(family)
    states = [mtp.open() for _ in texts]
    ends = [len(text.features_nH) for text in texts]
    found = [mtp.begin([text.rows(mtp, state, 0, end) for text, state, end in zip(texts, states, ends, strict=True)])]
    found += [mtp.step(states[::-1], [token] * 3)[::-1] for token in drafts]
    for place, (text, end) in enumerate(zip(texts, ends, strict=True)):
        assert_same([part[place] for part in found], text.wanted(family, range(end), drafts))
    for state in states:
        mtp.close(state)


def test_long_prompts_are_read_in_several_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mtp_module, "MAX_ROWS", 7)
    texts, mtp = [Text(10, 9), Text(11, 3), Text(12, 12)], head("glm4_moe")
    states = [mtp.open() for _ in texts]
    ends = [len(text.features_nH) for text in texts]
    found = [mtp.begin([text.rows(mtp, state, 0, end) for text, state, end in zip(texts, states, ends, strict=True)])]
    found.append(mtp.step(states, [9, 9, 9]))
    for place, (text, end) in enumerate(zip(texts, ends, strict=True)):
        assert_same([part[place] for part in found], text.wanted("glm4_moe", range(end), [9]))
    for state in states:
        mtp.close(state)


@both_families
def test_missing_rows_leave_the_others_at_their_positions(family: str) -> None:
    text = Text(6, 20)
    mtp = head(family)
    state = mtp.open()
    mtp.begin([text.rows(mtp, state, 3, 6)])
    found = [mtp.begin([text.rows(mtp, state, 15, 20)])[0], mtp.step([state], [30])[0]]
    assert_same(found, text.wanted(family, [*range(3, 6), *range(15, 20)], [30]))
    mtp.close(state)


def test_memory_is_bounded_and_given_back() -> None:
    mtp = build_mtp(checkpoint("glm4_moe").target(kv_cache_tokens=5 * BLOCK_SIZE))
    assert mtp.kv_cache_bytes == 5 * BLOCK_SIZE * 2 * (16 + 16) * 4
    first, second = mtp.open(), mtp.open()
    mtp.reserve(first, 3 * BLOCK_SIZE, 3 * BLOCK_SIZE)
    with pytest.raises(DraftCapacityError):
        mtp.reserve(second, 3 * BLOCK_SIZE, 3 * BLOCK_SIZE)
    with pytest.raises(DraftLengthError):
        mtp.reserve(second, 6 * BLOCK_SIZE, 6 * BLOCK_SIZE)
    mtp.close(first)
    mtp.reserve(second, 3 * BLOCK_SIZE, 3 * BLOCK_SIZE)


@both_families
def test_what_the_module_does_not_repeat_is_the_targets(family: str) -> None:
    text, mtp = Text(8, 5), build_mtp(random_checkpoint(family, repeats_target=False).target())
    assert_same(mtp.begin([text.rows(mtp, mtp.open(), 0, 5)]), text.wanted(family, range(5), []))


@both_families
def test_the_setting_mtp_loads_the_module_from_the_targets_folder(family: str, tmp_path: Path) -> None:
    source = ModelSource(folder=checkpoint(family).save(tmp_path), model_id="tiny")
    settings = {"max_model_len": MAX_MODEL_LEN, "max_sequences": 2, "num_threads": 1, "kv_cache_tokens": 1024}
    (mtp,) = load_heads(("mtp",), head_target(source, dtype=torch.float32, device="cpu", **settings))
    assert isinstance(mtp, MtpHead)
    text = Text(13, 5)
    assert_same(mtp.begin([text.rows(mtp, mtp.open(), 0, 5)]), text.wanted(family, range(5), []))


def test_bfloat16_stays_close() -> None:
    text, mtp = Text(9, 6), build_mtp(checkpoint("deepseek_v3").target(dtype=torch.bfloat16))
    found = torch.tensor(mtp.begin([text.rows(mtp, mtp.open(), 0, 6)]))
    wanted = torch.stack(text.wanted("deepseek_v3", range(6), []))
    assert torch.cosine_similarity(found, wanted).item() > 0.99


def test_the_head_says_what_it_is() -> None:
    mtp = head("deepseek_v3")
    assert (mtp.name, mtp.feature_layers, mtp.num_columns) == ("mtp", (2,), VOCAB_SIZE)
    assert mtp.target_ids is None


@pytest.mark.parametrize("name", ["eh_proj.weight", "enorm.weight", "shared_head.norm.weight"])
def test_a_checkpoint_without_the_module_is_refused_with_the_first_missing_tensor(name: str) -> None:
    complete = checkpoint("deepseek_v3")
    tensors = {key: tensor for key, tensor in complete.tensors.items() if key != complete.prefix + name}
    partial = Checkpoint(config=complete.config, tensors=tensors)
    with pytest.raises(LoadError, match=rf"draft\.heads .*model\.layers\.2\.{name}.*remove 'mtp'"):
        build_mtp(partial.target())


def test_an_expert_that_is_missing_is_named() -> None:
    complete = checkpoint("glm4_moe")
    name = complete.prefix + "mlp.experts.5.up_proj.weight"
    partial = Checkpoint(config=complete.config, tensors={k: v for k, v in complete.tensors.items() if k != name})
    with pytest.raises(LoadError, match=name):
        build_mtp(partial.target())


def test_a_tensor_of_another_shape_is_refused() -> None:
    complete = checkpoint("glm4_moe")
    tensors = complete.tensors | {complete.prefix + "self_attn.o_proj.weight": torch.zeros(3, 3)}
    with pytest.raises(LoadError, match=r"o_proj\.weight has shape \(3, 3\).*\(32, 64\)"):
        build_mtp(Checkpoint(config=complete.config, tensors=tensors).target())


def test_targets_of_other_families_are_refused_by_name() -> None:
    with pytest.raises(LoadError, match="type llama has no next-n module"):
        build_mtp(checkpoint("glm4_moe").target(config=build_config()))
