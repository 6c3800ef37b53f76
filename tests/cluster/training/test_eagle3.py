"""An EAGLE-3 head in training computes what decoding does, and is written as published."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from cluster.errors import LoadError
from cluster.training.dataset import LabelledText, make_batch
from cluster.training.draft_net import head_batch
from cluster.training.eagle3 import Eagle3Net, eagle3_config, eagle3_layers, eagle3_tensors
from cluster.training.student import student_config
from tests.cluster.training.heads_harness import HEAD_DIM, STEPS, TEXTS, Reader, eagle3
from tests.cluster.training.test_distill import TARGET_IDS, VOCAB, target_config, target_weights


class Decoder:
    """An EAGLE-3 head that decodes one text, written plainly: a cache that grows by one key and value at a time."""

    def __init__(self, tensors: dict[str, Tensor]) -> None:
        self.t = {name: tensor.float() for name, tensor in tensors.items()}
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []

    def norm(self, name: str, x: Tensor) -> Tensor:
        return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * self.t[f"{name}.weight"]

    def rotate(self, heads: Tensor, position: int) -> Tensor:
        half = HEAD_DIM // 2
        angles = torch.tensor([position / 10_000.0 ** (n / half) for n in range(half)])
        first, second = heads[:, :half], heads[:, half:]
        cos, sin = angles.cos(), angles.sin()
        return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)

    def __call__(self, embedded: Tensor, hidden: Tensor, position: int) -> Tensor:
        """The layer's output for the newest position; remembers its key and value."""
        parts = (self.norm("midlayer.input_layernorm", embedded), self.norm("midlayer.hidden_norm", hidden))
        wide = torch.cat(parts)
        q, k, v = (self.t[f"midlayer.self_attn.{name}_proj.weight"] @ wide for name in "qkv")
        self.keys.append(self.rotate(k.view(-1, HEAD_DIM), position))
        self.values.append(v.view(-1, HEAD_DIM))
        query = self.rotate(q.view(-1, HEAD_DIM), position)
        group = len(query) // len(self.keys[0])
        mixed = []
        for head in range(len(query)):
            keys = torch.stack([key[head // group] for key in self.keys])
            values = torch.stack([value[head // group] for value in self.values])
            mixed.append((keys @ query[head] / HEAD_DIM**0.5).softmax(0) @ values)
        hidden = hidden + self.t["midlayer.self_attn.o_proj.weight"] @ torch.cat(mixed)
        x = self.norm("midlayer.post_attention_layernorm", hidden)
        gate, up = (self.t[f"midlayer.mlp.{name}_proj.weight"] @ x for name in ("gate", "up"))
        return hidden + self.t["midlayer.mlp.down_proj.weight"] @ (functional.silu(gate) * up)

    def logits(self, hidden: Tensor) -> Tensor:
        return self.t["lm_head.weight"] @ self.norm("norm", hidden)


def decoded(tensors: dict[str, Tensor], text: LabelledText, features: Tensor, row: int) -> list[Tensor]:
    """Logits of a draft that starts behind position `row`, drafting the text's own tokens."""
    table = target_weights()["model.embed_tokens.weight"]
    embedding = [table[token] for token in text.token_ids.tolist()]
    decoder = Decoder(tensors)
    for position in range(row + 1):
        fused = decoder.t["fc.weight"] @ features[position].float()
        hidden = decoder(embedding[position + 1], fused, position)
    logits = [decoder.logits(hidden)]
    for step in range(1, STEPS):
        if row + 1 + step < len(embedding):
            hidden = decoder(embedding[row + 1 + step], hidden, row + step)
            logits.append(decoder.logits(hidden))
    return logits


def float_tensors(net: Eagle3Net) -> dict[str, Tensor]:
    return {name: weight.clone() for name, weight in net.trained().items()}


@torch.inference_mode()
def test_the_unrolled_steps_are_what_decoding_with_a_growing_cache_computes() -> None:
    net, indices = eagle3(), [index for index, text in enumerate(TEXTS) if len(text.label_ids) > 8][:3]
    batch = make_batch(TEXTS, indices)
    features = [Reader(3).read(TEXTS[index].token_ids) for index in indices]
    padded = torch.nn.utils.rnn.pad_sequence(features, batch_first=True).float()
    heads = head_batch(batch, padded)
    steps = [net.logits(hidden) for hidden in net.hidden_steps(heads)]
    num_compared = 0
    for number, (text, position) in enumerate(zip(heads.texts.tolist(), heads.positions.tolist(), strict=True)):
        expected = decoded(float_tensors(net), TEXTS[indices[text]], features[text], position)
        for step, logits in enumerate(expected[:STEPS]):
            if number in heads.labelled(step).tolist():
                torch.testing.assert_close(steps[step][number], logits, rtol=1e-3, atol=1e-3)
                num_compared += 1
    assert num_compared > 40


def test_a_head_starts_as_the_targets_last_layer_on_the_last_hidden_state() -> None:
    weights = target_weights()
    config = student_config(target_config(), 1)
    net = Eagle3Net(config, num_target_layers=4, weights=weights, target_ids=TARGET_IDS, num_steps=1).trained()
    last = "model.layers.3."
    features = torch.randn(5, 96)
    assert torch.equal(features @ net["fc.weight"].T, features[:, 64:])
    for name in ("q", "k", "v"):
        wide = net[f"midlayer.self_attn.{name}_proj.weight"]
        assert torch.equal(wide[:, 32:], weights[f"{last}self_attn.{name}_proj.weight"])
        assert wide[:, :32].std() > 0.01
    for own, source in (
        ("mlp.up_proj", "mlp.up_proj"),
        ("self_attn.o_proj", "self_attn.o_proj"),
        ("hidden_norm", "input_layernorm"),
    ):
        assert torch.equal(net[f"midlayer.{own}.weight"], weights[f"{last}{source}.weight"])
    assert torch.equal(net["lm_head.weight"], weights["lm_head.weight"][TARGET_IDS])


def test_what_of_the_target_does_not_fit_starts_at_random() -> None:
    config = student_config(target_config(num_attention_heads=4, num_key_value_heads=2, head_dim=HEAD_DIM), 1)
    weights = target_weights() | {"model.layers.3.mlp.up_proj.weight": torch.ones(7, 32)}
    net = Eagle3Net(config, num_target_layers=4, weights=weights, target_ids=TARGET_IDS, num_steps=1)
    assert net.midlayer.mlp.up_proj.weight.shape == (48, 32)


def test_a_written_eagle3_head_has_the_published_names_and_shapes() -> None:
    net = eagle3()
    tensors = eagle3_tensors(net, TARGET_IDS, VOCAB)
    columns = len(TARGET_IDS)
    assert {name: tuple(tensor.shape) for name, tensor in tensors.items()} == {
        "fc.weight": (32, 96),
        "midlayer.hidden_norm.weight": (32,),
        "midlayer.input_layernorm.weight": (32,),
        "midlayer.post_attention_layernorm.weight": (32,),
        "midlayer.self_attn.q_proj.weight": (32, 64),
        "midlayer.self_attn.k_proj.weight": (16, 64),
        "midlayer.self_attn.v_proj.weight": (16, 64),
        "midlayer.self_attn.o_proj.weight": (32, 32),
        "midlayer.mlp.gate_proj.weight": (48, 32),
        "midlayer.mlp.up_proj.weight": (48, 32),
        "midlayer.mlp.down_proj.weight": (32, 48),
        "norm.weight": (32,),
        "lm_head.weight": (columns, 32),
        "d2t": (columns,),
        "t2d": (VOCAB,),
    }
    assert (tensors["d2t"].dtype, tensors["t2d"].dtype) == (torch.int64, torch.bool)
    assert torch.equal(tensors["d2t"] + torch.arange(columns), TARGET_IDS)
    assert torch.equal(tensors["t2d"].nonzero().flatten(), TARGET_IDS)
    config = eagle3_config(student_config(target_config(), 1), net.feature_layers, columns)
    assert config["architectures"] == ["LlamaForCausalLMEagle3"]
    assert (config["draft_vocab_size"], config["vocab_size"], config["num_hidden_layers"]) == (columns, VOCAB, 1)
    assert config["rope_theta"] == 10000.0


@pytest.mark.parametrize(
    ("num_layers", "expected"),
    [
        (32, (2, 16, 29)),
        (30, (2, 15, 27)),
        (7, (2, 3, 4)),
        (6, (1, 3, 5)),
        (4, (1, 2, 3)),
        (2, (1, 1, 1)),
        (1, (0, 0, 0)),
    ],
)
def test_feature_layers_are_the_published_ones_where_the_target_has_enough(
    num_layers: int, expected: tuple[int, ...]
) -> None:
    assert eagle3_layers(num_layers) == expected


@pytest.mark.parametrize("name", ["model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"])
def test_targets_unlike_llama_are_refused(name: str) -> None:
    weights = target_weights()
    del weights[name]
    with pytest.raises(LoadError, match="relatives of Llama"):
        Eagle3Net(
            student_config(target_config(), 1), num_target_layers=4, weights=weights, target_ids=TARGET_IDS, num_steps=2
        )
