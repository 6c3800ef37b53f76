import json
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import BatchEncoding

from cluster.engine.model_loader import (
    ModelSource,
    eos_token_ids,
    load_config,
    load_reference_model,
    load_tokenizer,
    load_weights,
)
from cluster.errors import LoadError
from tests.tiny import EOS_TOKEN_ID, VOCAB_SIZE, save_tiny_model


@pytest.fixture
def copy_source(tiny_model_dir: Path, tmp_path: Path) -> ModelSource:
    """A copy of the tiny model that the test may break."""
    return ModelSource(folder=Path(shutil.copytree(tiny_model_dir, tmp_path / "model")), model_id="tiny")


def edit_json(source: ModelSource, name: str, **fields: Any) -> None:
    path = source.folder / name
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def edit_weights(source: ModelSource, edit: Callable[[dict[str, torch.Tensor]], object]) -> None:
    weights = load_file(source.folder / "model.safetensors")
    edit(weights)
    save_file(weights, source.folder / "model.safetensors", metadata={"format": "pt"})


class TestWeights:
    def test_weights_are_those_of_the_transformers_model(self, tiny_source: ModelSource) -> None:
        reference = load_reference_model(tiny_source, torch.float32).state_dict()
        weights = load_weights(tiny_source, torch.float32)
        assert weights.keys() == reference.keys()
        assert all(torch.equal(weights[name], reference[name]) for name in reference)

    def test_floating_point_weights_are_cast_to_the_asked_type(self, tiny_source: ModelSource) -> None:
        exact = load_weights(tiny_source, torch.float32)
        cast = load_weights(tiny_source, torch.bfloat16)
        assert {tensor.dtype for tensor in cast.values()} == {torch.bfloat16}
        assert all(torch.equal(cast[name], exact[name].bfloat16()) for name in exact)

    def test_a_tied_head_is_present_and_shares_memory_with_the_embedding(self, tmp_path: Path) -> None:
        source = ModelSource(folder=save_tiny_model(tmp_path / "tied", tie_word_embeddings=True), model_id="tied")
        assert "lm_head.weight" not in load_file(source.folder / "model.safetensors")
        weights = load_weights(source, torch.bfloat16)
        assert weights["lm_head.weight"].data_ptr() == weights["model.embed_tokens.weight"].data_ptr()

    def test_an_untied_head_that_is_absent_is_an_error_and_not_the_embedding(self, copy_source: ModelSource) -> None:
        edit_weights(copy_source, lambda weights: weights.pop("lm_head.weight"))
        with pytest.raises(LoadError, match=r"1 tensors are missing .*lm_head\.weight"):
            load_weights(copy_source, torch.float32)

    def test_shards_load_as_one_model(self, tiny_source: ModelSource, tmp_path: Path) -> None:
        sharded = ModelSource(folder=save_tiny_model(tmp_path / "sharded", max_shard_size="300KB"), model_id="tiny")
        assert len(list(sharded.folder.glob("*.safetensors"))) > 1
        weights = load_weights(sharded, torch.float32)
        whole = load_weights(tiny_source, torch.float32)
        assert weights.keys() == whole.keys()
        assert all(torch.equal(weights[name], whole[name]) for name in whole)

    def test_a_missing_shard_is_named(self, tmp_path: Path) -> None:
        source = ModelSource(folder=save_tiny_model(tmp_path / "sharded", max_shard_size="300KB"), model_id="tiny")
        last = sorted(source.folder.glob("*.safetensors"))[-1]
        last.unlink()
        with pytest.raises(LoadError, match=f"{last.name} is missing"):
            load_weights(source, torch.float32)

    def test_a_shard_outside_the_folder_is_refused(self, copy_source: ModelSource) -> None:
        (copy_source.folder / "model.safetensors").rename(copy_source.folder.parent / "outside.safetensors")
        index = {"weight_map": {"lm_head.weight": "../outside.safetensors"}}
        (copy_source.folder / "model.safetensors.index.json").write_text(json.dumps(index))
        with pytest.raises(LoadError, match="not a safetensors file of this folder"):
            load_weights(copy_source, torch.float32)

    def test_a_wrong_shape_is_named_with_both_shapes(self, copy_source: ModelSource) -> None:
        edit_weights(copy_source, lambda weights: weights.update({"model.norm.weight": torch.ones(65)}))
        with pytest.raises(LoadError, match=r"model\.norm\.weight has shape \(65,\), config\.json implies \(64,\)"):
            load_weights(copy_source, torch.float32)

    def test_tensors_without_a_place_in_the_model_are_left_out(self, copy_source: ModelSource) -> None:
        edit_weights(copy_source, lambda weights: weights.update({"rotary_emb.inv_freq": torch.ones(8)}))
        assert "rotary_emb.inv_freq" not in load_weights(copy_source, torch.float32)

    def test_a_truncated_file_is_an_error_that_names_it(self, copy_source: ModelSource) -> None:
        path = copy_source.folder / "model.safetensors"
        path.write_bytes(path.read_bytes()[:-100])
        with pytest.raises(LoadError, match=r"model\.safetensors is damaged"):
            load_weights(copy_source, torch.float32)


class TestRefusals:
    @pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json"])
    @pytest.mark.parametrize(
        "fields", [{"auto_map": {"AutoModelForCausalLM": "evil.Model"}}, {"trust_remote_code": True}]
    )
    @pytest.mark.parametrize("load", [load_config, load_tokenizer])
    def test_code_in_the_folder_is_refused(
        self, copy_source: ModelSource, name: str, fields: dict[str, Any], load: Callable[[ModelSource], object]
    ) -> None:
        edit_json(copy_source, name, **fields)
        with pytest.raises(LoadError, match=f"{name}: {next(iter(fields))} asks for Python code"):
            load(copy_source)

    def test_code_named_in_a_nested_configuration_is_refused(self, copy_source: ModelSource) -> None:
        edit_json(copy_source, "config.json", sub_configs=[{"inner": {"auto_map": {"AutoConfig": "evil.Config"}}}])
        with pytest.raises(LoadError, match="auto_map"):
            load_config(copy_source)

    def test_a_kernel_from_the_hub_is_refused(self, copy_source: ModelSource) -> None:
        edit_json(copy_source, "config.json", attn_implementation="someone/fast-attention")
        with pytest.raises(LoadError, match="attn_implementation = 'someone/fast-attention'"):
            load_config(copy_source)

    @pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "consolidated.00.pth"])
    def test_weights_that_exist_only_as_pickle_are_refused(self, copy_source: ModelSource, name: str) -> None:
        (copy_source.folder / "model.safetensors").rename(copy_source.folder / name)
        for load in (load_config, lambda source: load_reference_model(source, torch.float32)):
            with pytest.raises(LoadError, match=rf"only as pickle \({name}\)"):
                load(copy_source)

    def test_a_pickle_beside_safetensors_is_left_alone(self, copy_source: ModelSource) -> None:
        (copy_source.folder / "pytorch_model.bin").write_bytes(b"not even a pickle")
        assert load_config(copy_source).model_type == "llama"

    def test_a_folder_without_weights_is_refused(self, copy_source: ModelSource) -> None:
        (copy_source.folder / "model.safetensors").unlink()
        with pytest.raises(LoadError, match=r"neither model\.safetensors nor"):
            load_config(copy_source)

    def test_a_folder_without_configuration_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(LoadError, match=r"config\.json is missing"):
            load_config(ModelSource(folder=tmp_path, model_id="empty"))

    @pytest.mark.parametrize("text", ["{", "[1, 2]", "[" * 100_000, "\x00\xff"])
    def test_a_configuration_that_is_no_json_object_is_refused(self, copy_source: ModelSource, text: str) -> None:
        (copy_source.folder / "config.json").write_text(text, encoding="latin-1")
        with pytest.raises(LoadError, match=r"config\.json"):
            load_config(copy_source)

    @pytest.mark.parametrize(
        ("fields", "reason"),
        [
            ({"is_encoder_decoder": True}, "is_encoder_decoder"),
            ({"architectures": ["T5ForConditionalGeneration"], "model_type": "t5"}, "not a causal language model"),
            ({"architectures": ["BertForMaskedLM"], "model_type": "bert"}, "not a causal language model"),
            ({"architectures": None, "model_type": "vit"}, "no causal language model"),
            ({"architectures": None, "model_type": ["llama"]}, "no causal language model"),
            ({"architectures": [["LlamaForCausalLM"]]}, "not a causal language model"),
            ({"architectures": "LlamaForCausalLM"}, "not a causal language model"),
        ],
    )
    def test_what_is_not_a_causal_decoder_is_refused(
        self, copy_source: ModelSource, fields: dict[str, Any], reason: str
    ) -> None:
        edit_json(copy_source, "config.json", **fields)
        with pytest.raises(LoadError, match=reason):
            load_config(copy_source)

    @pytest.mark.parametrize("method", ["gptq", "bitsandbytes", "fp8"])
    def test_quantized_weights_are_refused_by_method(self, copy_source: ModelSource, method: str) -> None:
        edit_json(copy_source, "config.json", quantization_config={"quant_method": method})
        with pytest.raises(LoadError, match=rf"quantization_config \({method}\)"):
            load_config(copy_source)

    def test_a_configuration_with_values_of_the_wrong_type_is_refused(self, copy_source: ModelSource) -> None:
        edit_json(copy_source, "config.json", hidden_size="many")
        with pytest.raises(LoadError, match="cannot read the configuration"):
            load_config(copy_source)


class TestTokenizer:
    def test_it_round_trips_any_text_and_carries_the_chat_template(self, tiny_source: ModelSource) -> None:
        tokenizer = load_tokenizer(tiny_source)
        text = "naïve 👩‍👩‍👧 text\n\twith bytes \x01"
        assert tokenizer.decode(tokenizer(text).input_ids) == text
        messages = [{"role": "user", "content": "hi"}]
        prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        assert prompt == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"

    def test_loading_opens_no_network_connection(
        self, tiny_source: ModelSource, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        opened: list[object] = []

        def refuse(_: socket.socket, address: object) -> None:
            opened.append(address)
            raise OSError("no network in this test")

        monkeypatch.setattr(socket.socket, "connect", refuse)
        load_tokenizer(tiny_source)
        load_config(tiny_source)
        load_reference_model(tiny_source, torch.float32)
        assert opened == []

    def test_a_folder_without_tokenizer_is_refused(self, copy_source: ModelSource) -> None:
        (copy_source.folder / "tokenizer.json").unlink()
        with pytest.raises(LoadError, match="cannot load the tokenizer"):
            load_tokenizer(copy_source)


class TestEosTokenIds:
    @pytest.mark.parametrize(
        ("generation", "expected"),
        [
            ({"eos_token_id": EOS_TOKEN_ID}, {EOS_TOKEN_ID}),
            ({"eos_token_id": [7, 9]}, {EOS_TOKEN_ID, 7, 9}),
            ({"eos_token_id": None}, {EOS_TOKEN_ID}),
            ({"eos_token_id": [-1, VOCAB_SIZE, 5]}, {EOS_TOKEN_ID, 5}),
        ],
    )
    def test_all_three_places_count_and_impossible_ids_do_not(
        self, copy_source: ModelSource, generation: dict[str, Any], expected: set[int]
    ) -> None:
        edit_json(copy_source, "generation_config.json", **generation)
        ids = eos_token_ids(copy_source, load_config(copy_source), load_tokenizer(copy_source))
        assert ids == expected

    def test_configuration_and_tokenizer_suffice(self, copy_source: ModelSource) -> None:
        (copy_source.folder / "generation_config.json").unlink()
        edit_json(copy_source, "config.json", eos_token_id=[3, 4])
        ids = eos_token_ids(copy_source, load_config(copy_source), load_tokenizer(copy_source))
        assert ids == {EOS_TOKEN_ID, 3, 4}


@pytest.mark.engine
class TestBundledModel:
    def test_it_has_the_published_shape_and_answers_a_question(self, bundled_source: ModelSource) -> None:
        config, tokenizer = load_config(bundled_source), load_tokenizer(bundled_source)
        assert (config.num_hidden_layers, config.hidden_size, config.vocab_size) == (30, 576, 49_152)
        assert eos_token_ids(bundled_source, config, tokenizer) == {tokenizer.convert_tokens_to_ids("<|im_end|>")}
        messages = [{"role": "user", "content": "What is the capital of France?"}]
        prompt = tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
        model = load_reference_model(bundled_source, torch.float32)
        assert isinstance(prompt, BatchEncoding)
        output = model.generate(**prompt, max_new_tokens=10, do_sample=False)  # type: ignore[operator]
        assert "The capital of France is Paris." in tokenizer.decode(output[0], skip_special_tokens=True)
