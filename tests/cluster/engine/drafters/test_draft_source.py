"""Draft model folders: what loads, what is refused, and that the loaded model drafts."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from cluster.config import DraftConfig
from cluster.engine.drafters.draft_build import build_draft_model
from cluster.engine.drafters.draft_source import DraftWeights, draft_memory_bytes, load_draft_model
from cluster.engine.drafters.vocab_check import vocabulary_hash
from cluster.engine.model_source import ModelSource
from cluster.engine.native.weights import build_native_model
from cluster.errors import ConfigError, LoadError
from cluster.types import SamplingParams
from tests.cluster.engine.toy_tokenizers import byte_level
from tests.tiny import VOCAB_SIZE, build_tokenizer, save_tiny_model

TARGET_IDS = torch.arange(0, VOCAB_SIZE, 4, dtype=torch.int32)
CONFIG = DraftConfig(kv_cache_tokens=1024)
GREEDY = SamplingParams(max_tokens=100, seed=1, temperature=0.0)
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"


@pytest.fixture(scope="module", params=[False, True], ids=["untied_target", "tied_target"])
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ModelSource:
    folder = save_tiny_model(tmp_path_factory.mktemp("target"), tie_word_embeddings=request.param)
    return ModelSource(folder=folder, model_id="tiny-target")


def tiny_draft(**fields: Any) -> LlamaForCausalLM:
    config = LlamaConfig(
        **{
            "vocab_size": VOCAB_SIZE,
            "hidden_size": 64,
            "intermediate_size": 64,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "head_dim": 32,
            "max_position_embeddings": 128,
            "initializer_range": 0.2,
            "tie_word_embeddings": False,
            "dtype": "bfloat16",
            **fields,
        }
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return LlamaForCausalLM(config)


def save_draft(folder: Path, target: ModelSource, *, part: bool = True, **about: Any) -> Path:
    """A folder as training writes it."""
    model = tiny_draft()
    model.config.save_pretrained(folder)
    tensors = {name: tensor.to(torch.bfloat16) for name, tensor in model.state_dict().items()}
    about = {
        "format": 1,
        "target": target.model_id,
        "tokenizer_hash": vocabulary_hash(build_tokenizer()),
        "embeddings": "target",
        "head": "target",
        **about,
    }
    if about["embeddings"] == "target":
        del tensors[EMBEDDING]
    if about["head"] == "target":
        del tensors[HEAD]
    elif part:
        tensors[HEAD] = tensors[HEAD][TARGET_IDS.long()].contiguous()
    if part:
        tensors["target_ids"] = TARGET_IDS
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "architectures": ["LlamaForCausalLM"]}))
    save_file(tensors, folder / "model.safetensors")
    (folder / "outrider_draft.json").write_text(json.dumps(about))
    return folder


def drafted(loaded: DraftWeights, device: str | None = None) -> tuple[int, ...]:
    model = build_draft_model(loaded, CONFIG, eos_token_ids=frozenset(), device=device)
    job = model.start(model.open([5, 6, 7], 3, GREEDY), (), 5, (1,))
    while not job.is_done:
        model.step([job])
    model.check_integrity()
    return job.entries[0].token_ids


@pytest.mark.parametrize("embeddings", ["target", "own"])
@pytest.mark.parametrize("head", ["target", "own"])
@pytest.mark.parametrize("part", [True, False])
def test_lent_and_own_weights_come_together(
    tmp_path: Path, target: ModelSource, embeddings: str, head: str, part: bool
) -> None:
    loaded = load_draft_model(save_draft(tmp_path, target, part=part, embeddings=embeddings, head=head), target)
    lent = load_file(target.folder / "model.safetensors")
    own = {name: tensor.to(torch.bfloat16) for name, tensor in tiny_draft().state_dict().items()}
    whole = lent.get(HEAD, lent[EMBEDDING]) if head == "target" else own[HEAD]
    embedding = lent[EMBEDDING] if embeddings == "target" else own[EMBEDDING]
    columns = TARGET_IDS.long() if part else torch.arange(VOCAB_SIZE)
    assert torch.equal(loaded.weights[EMBEDDING], embedding.to(torch.bfloat16))
    assert torch.equal(loaded.weights[HEAD], whole.to(torch.bfloat16)[columns])
    assert (loaded.target_ids is not None) == part
    tokens = drafted(loaded)
    assert len(tokens) == 6
    assert not part or all(token_id % 4 == 0 for token_id in tokens)


@pytest.mark.engine
def test_transformers_code_drafts_the_same_as_the_kernels(tmp_path: Path, target: ModelSource) -> None:
    folder = save_draft(tmp_path, target, head="own")
    kernels = drafted(load_draft_model(folder, target, dtype=torch.float32), device="cpu")
    reference = load_draft_model(folder, target, dtype=torch.float32)
    reference.config.architectures = ["SomeOtherForCausalLM"]
    assert drafted(reference, device="cpu") == kernels


def test_a_plain_model_needs_no_more_than_the_same_vocabulary(tmp_path: Path, target: ModelSource) -> None:
    tiny_draft().save_pretrained(tmp_path)
    build_tokenizer().save_pretrained(tmp_path)
    loaded = load_draft_model(tmp_path, target)
    assert loaded.target_ids is None
    assert len(drafted(loaded)) == 6


def test_a_padded_tail_is_never_drafted(tmp_path: Path, target: ModelSource) -> None:
    model = tiny_draft(vocab_size=VOCAB_SIZE + 40)
    with torch.no_grad():
        # The tail would win every draw.
        model.lm_head.weight[VOCAB_SIZE:] = 20 * model.lm_head.weight[:40]
    model.save_pretrained(tmp_path)
    build_tokenizer().save_pretrained(tmp_path)
    loaded = load_draft_model(tmp_path, target)
    assert loaded.target_ids is not None
    assert len(loaded.target_ids) == VOCAB_SIZE
    assert max(drafted(loaded)) < VOCAB_SIZE


def test_another_vocabulary_is_refused_with_the_first_difference(tmp_path: Path, target: ModelSource) -> None:
    other: PreTrainedTokenizerFast = byte_level()
    tiny_draft().save_pretrained(tmp_path)
    other.save_pretrained(tmp_path)
    with pytest.raises(
        LoadError, match=r"token 0 is '<\|endoftext\|>' in the target and '<\|im_start\|>' in the draft"
    ):
        load_draft_model(tmp_path, target)


def test_another_tokenizer_hash_is_refused_naming_both(tmp_path: Path, target: ModelSource) -> None:
    folder = save_draft(tmp_path, target, tokenizer_hash="feed")
    right = vocabulary_hash(build_tokenizer())
    with pytest.raises(LoadError, match=rf"tokenizer feed \(of tiny-target\); tiny-target has {right}"):
        load_draft_model(folder, target)


@pytest.mark.parametrize(
    ("about", "message"),
    [
        ({"format": 2}, "format 2 is unknown"),
        ({"head": "theirs"}, "head = 'theirs' is neither"),
        ({"shared_layers": 2}, "shared_layers = 2 is no number from 0 to 1"),
        ({"shared_layers": "all"}, "shared_layers = 'all' is no number"),
    ],
)
def test_unknown_contents_are_refused(tmp_path: Path, target: ModelSource, about: dict[str, Any], message: str) -> None:
    folder = save_draft(tmp_path, target)
    file = folder / "outrider_draft.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **about}))
    with pytest.raises(LoadError, match=message):
        load_draft_model(folder, target)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target_ids": torch.tensor([3, 2], dtype=torch.int32)}, "must rise"),
        ({"target_ids": torch.tensor([0, VOCAB_SIZE], dtype=torch.int32)}, f"at most {VOCAB_SIZE - 1}"),
        ({"target_ids": torch.tensor([-1, 4], dtype=torch.int32)}, "must rise, from 0"),
        ({"target_ids": torch.tensor([0, 1])}, "no list of int32"),
        ({HEAD: torch.zeros(7, 64)}, "has shape"),
        ({EMBEDDING: torch.zeros(VOCAB_SIZE, 32)}, "has shape"),
        ({HEAD: None, EMBEDDING: None}, "is missing where"),
    ],
)
def test_tensors_that_do_not_fit_are_refused(
    tmp_path: Path, target: ModelSource, change: dict[str, torch.Tensor | None], message: str
) -> None:
    file = save_draft(tmp_path, target, embeddings="own", head="own") / "model.safetensors"
    tensors = {**load_file(file), **change}
    save_file({name: tensor for name, tensor in tensors.items() if tensor is not None}, file)
    with pytest.raises(LoadError, match=message):
        load_draft_model(tmp_path, target)


def test_a_missing_layer_and_a_missing_folder_are_named(tmp_path: Path, target: ModelSource) -> None:
    file = save_draft(tmp_path, target) / "model.safetensors"
    tensors = load_file(file)
    del tensors["model.layers.0.mlp.down_proj.weight"]
    save_file(tensors, file)
    loaded = load_draft_model(tmp_path, target)
    with pytest.raises(LoadError, match=r"no tensor model.layers.0.mlp.down_proj.weight"):
        build_draft_model(loaded, CONFIG, eos_token_ids=frozenset(), device="cpu")
    with pytest.raises(LoadError, match="is not a folder"):
        load_draft_model(tmp_path / "nothing", target)


def test_a_damaged_file_is_named(tmp_path: Path, target: ModelSource) -> None:
    (save_draft(tmp_path, target) / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(LoadError, match=r"model\.safetensors is damaged"):
        load_draft_model(tmp_path, target)


def test_a_length_beyond_the_models_is_refused(tmp_path: Path, target: ModelSource) -> None:
    loaded = load_draft_model(save_draft(tmp_path, target), target)
    with pytest.raises(ConfigError, match=r"draft\.max_model_len = 200 .* at most 128"):
        build_draft_model(loaded, DraftConfig(max_model_len=200), eos_token_ids=frozenset(), device="cpu")


@pytest.mark.parametrize("part", [True, False])
def test_the_memory_plan_knows_what_is_really_allocated(tmp_path: Path, target: ModelSource, part: bool) -> None:
    """Case D3."""
    folder = save_draft(tmp_path, target, part=part)
    memory = draft_memory_bytes(folder, kv_cache_tokens=1024)
    assert memory is not None
    loaded = load_draft_model(folder, target)
    model = build_native_model(
        loaded.config,
        loaded.weights,
        num_kv_blocks=32,
        block_size=32,
        max_model_len=128,
        kv_dtype=torch.bfloat16,
    )
    small = 3 * 64 * 4 + 2 * 128 * 16 * 4  # Norms and rotation tables are not planned for.
    planned = memory.weights_bytes + memory.kv_token_bytes * memory.kv_cache_tokens
    assert model.arena.num_bytes == planned + small
    assert sum(cache.nbytes for cache in model.kv_caches) == memory.kv_token_bytes * 1024
    assert np.prod(model.kv_caches[0].shape) == 1024 * 32
    with pytest.raises(ConfigError, match=r"draft\.kv_cache_tokens"):
        memory.check(planned - 1)
