"""EAGLE-3 checkpoints for the tiny target in both published layouts, a reference, and a head that knows all."""

import json
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional

from cluster.engine.drafters.draft_job import DraftCapacityError, DraftLengthError
from cluster.engine.drafters.head import HeadRows, HeadTarget, Int32
from cluster.engine.engine import Engine
from cluster.engine.model_input import ModelInput
from cluster.engine.native.runner import NativeRunner
from cluster.engine.noise import FloatArray
from cluster.types import Request, Role, StepStats
from tests.cluster.engine.engine_harness import BLOCK_SIZE, MAX_MODEL_LEN, Result, drain, tiny_llama
from tests.tiny import VOCAB_SIZE, bf16_weights, native_runner

HIDDEN, INNER, HEADS, KV_HEADS, HEAD_DIM, THETA, EPS = 64, 96, 4, 2, 32, 5000.0, 1e-5
LAYERS = (0, 1, 2)
FIRST_TOKEN = 3
"""Every prompt for `KnowingHead` begins with it: no row tells a head the first token of a sequence."""

SIZES: dict[str, Any] = {
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD_DIM,
    "vocab_size": VOCAB_SIZE,
    "max_position_embeddings": MAX_MODEL_LEN,
    "rms_norm_eps": EPS,
    "rope_theta": THETA,
    "hidden_act": "silu",
    "num_hidden_layers": 1,
    "model_type": "llama",
}


def head_target(**changes: Any) -> HeadTarget:
    """The tiny target as heads see it."""
    weights = bf16_weights(tiny_llama())
    settings: dict[str, Any] = {
        "config": tiny_llama().config,
        "weight": weights.__getitem__,
        "device": "cpu",
        "dtype": torch.bfloat16,
        "max_model_len": MAX_MODEL_LEN,
        "max_sequences": 16,
        "num_threads": 1,
        "kv_cache_tokens": 4096,
    }
    return HeadTarget(**(settings | changes))


def head_tensors(*, columns: int = 200, seed: int = 0, layer: str = "midlayer.") -> dict[str, Tensor]:
    """Random tensors of a head over every other token or so."""
    generator = torch.Generator().manual_seed(seed)

    def matrix(*shape: int) -> Tensor:
        return (torch.randn(*shape, generator=generator) * 0.15).to(torch.bfloat16)

    def norm() -> Tensor:
        return (1.0 + 0.2 * torch.randn(HIDDEN, generator=generator)).to(torch.bfloat16)

    ids = torch.randperm(VOCAB_SIZE, generator=generator)[:columns].sort().values
    kept = torch.zeros(VOCAB_SIZE, dtype=torch.bool)
    kept[ids] = True
    return {
        "fc.weight": matrix(HIDDEN, len(LAYERS) * 64),
        "norm.weight": norm(),
        "lm_head.weight": matrix(columns, HIDDEN),
        "d2t": ids - torch.arange(columns),
        "t2d": kept,
        f"{layer}input_layernorm.weight": norm(),
        f"{layer}hidden_norm.weight": norm(),
        f"{layer}post_attention_layernorm.weight": norm(),
        f"{layer}self_attn.q_proj.weight": matrix(HEADS * HEAD_DIM, 2 * HIDDEN),
        f"{layer}self_attn.k_proj.weight": matrix(KV_HEADS * HEAD_DIM, 2 * HIDDEN),
        f"{layer}self_attn.v_proj.weight": matrix(KV_HEADS * HEAD_DIM, 2 * HIDDEN),
        f"{layer}self_attn.o_proj.weight": matrix(HIDDEN, HEADS * HEAD_DIM),
        f"{layer}mlp.gate_proj.weight": matrix(INNER, HIDDEN),
        f"{layer}mlp.up_proj.weight": matrix(INNER, HIDDEN),
        f"{layer}mlp.down_proj.weight": matrix(HIDDEN, INNER),
    }


def save_specforge(folder: Path, tensors: dict[str, Tensor] | None = None, **changes: Any) -> Path:
    """A head as SafeAILab and SpecForge publish them: layers are named by what leaves them."""
    about: dict[str, Any] = {
        **SIZES,
        "architectures": ["LlamaForCausalLMEagle3"],
        "draft_vocab_size": 200,
        "tie_word_embeddings": False,
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": [layer - 1 for layer in LAYERS]},
    }
    return _save(folder, tensors or head_tensors(), about | changes)


def save_speculators(folder: Path, tensors: dict[str, Tensor] | None = None, **changes: Any) -> Path:
    """The same as the library `speculators` writes it, with an embedding of its own."""
    about: dict[str, Any] = {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "draft_vocab_size": 200,
        "norm_before_residual": False,
        "eagle_aux_hidden_state_layer_ids": list(LAYERS),
        "transformer_layer_config": SIZES,
        "speculators_config": {"algorithm": "eagle3", "default_proposal_method": "greedy"},
    }
    if tensors is None:
        tensors = head_tensors(layer="layers.0.")
        tensors["embed_tokens.weight"] = head_target().weight("model.embed_tokens.weight").clone()
    return _save(folder, tensors, about | changes)


def _save(folder: Path, tensors: dict[str, Tensor], about: dict[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(about))
    return folder


class Reference:
    """An EAGLE-3 head in plain torch and float32, written from the paper and the layout alone; whole sequences at once.

    Args:
        tensors: from `head_tensors`, names with `midlayer.`.
        normed_residual: `norm_before_residual` of the configuration.
    """

    def __init__(self, tensors: dict[str, Tensor], *, normed_residual: bool = False) -> None:
        self._w = {name: tensor.float() for name, tensor in tensors.items()}
        self._embed = head_target().weight("model.embed_tokens.weight").float()
        self._normed_residual = normed_residual

    def logits(self, features: Tensor, tokens: Seq[int], positions: Seq[int], drafts: Seq[int] = ()) -> list[Tensor]:
        """Logits behind the rows, and behind each draft token after them.

        Args:
            features: [n, F].
            tokens: token after each row.
            positions: of the rows.
            drafts: tokens after the rows.
        """
        hidden = features.float() @ self._w["fc.weight"].T
        inputs, tokens, positions = hidden, list(tokens), list(positions)
        answers = []
        for draft in (*drafts, None):
            left = self._layer(inputs, tokens, positions)
            answers.append(self._norm(left[-1:], "norm.weight")[0] @ self._w["lm_head.weight"].T)
            if draft is not None:
                inputs = torch.cat((inputs, left[-1:]))
                tokens, positions = [*tokens, draft], [*positions, positions[-1] + 1]
        return answers

    def _norm(self, rows: Tensor, name: str) -> Tensor:
        return rows / torch.sqrt(rows.pow(2).mean(-1, keepdim=True) + EPS) * self._w[name]

    def _layer(self, hidden: Tensor, tokens: Seq[int], positions: Seq[int]) -> Tensor:
        w, count = self._w, len(tokens)
        normed = self._norm(hidden, "midlayer.hidden_norm.weight")
        residual = normed if self._normed_residual else hidden
        pair = torch.cat((self._norm(self._embed[list(tokens)], "midlayer.input_layernorm.weight"), normed), 1)
        q, k, v = (pair @ w[f"midlayer.self_attn.{name}_proj.weight"].T for name in "qkv")
        q, k, v = (x.view(count, -1, HEAD_DIM).transpose(0, 1) for x in (q, k, v))
        q, k = (self._rotate(x, positions) for x in (q, k))
        k, v = (x.repeat_interleave(HEADS // KV_HEADS, 0) for x in (k, v))
        scores = (q @ k.transpose(1, 2)) * HEAD_DIM**-0.5
        seen = torch.ones(count, count).tril().bool()
        attended = scores.masked_fill(~seen, -torch.inf).softmax(-1) @ v
        residual = residual + attended.transpose(0, 1).reshape(count, -1) @ w["midlayer.self_attn.o_proj.weight"].T
        normed = self._norm(residual, "midlayer.post_attention_layernorm.weight")
        gate = functional.silu(normed @ w["midlayer.mlp.gate_proj.weight"].T)
        inner = gate * (normed @ w["midlayer.mlp.up_proj.weight"].T)
        left: Tensor = residual + inner @ w["midlayer.mlp.down_proj.weight"].T
        return left

    @staticmethod
    def _rotate(x: Tensor, positions: Seq[int]) -> Tensor:
        half = HEAD_DIM // 2
        angles = torch.tensor(positions).float()[:, None] * THETA ** (-torch.arange(half).float() / half)
        a, b = x[..., :half], x[..., half:]
        return torch.cat((a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()), -1)


@dataclass
class KnownState:
    """Tokens of a sequence as far as rows have told them; the first is `FIRST_TOKEN`."""

    tokens: list[int] = field(default_factory=lambda: [FIRST_TOKEN])
    num_steps: int = 0


class KnowingHead:
    """Runs the target itself on the tokens that it is told, and checks every hidden state that it gets.

    Args:
        wrong_every: logits of every so manyth call are turned around; 0 for none.
        max_open: most sequences.
        max_len: longest sequence.
    """

    name, num_columns, max_draft_tokens = "knowing_head", VOCAB_SIZE, 8
    max_branches, reads_tokens = 1, True
    target_ids: Int32 | None = None

    def __init__(self, *, wrong_every: int = 0, max_open: int = 64, max_len: int = MAX_MODEL_LEN) -> None:
        self.feature_layers: tuple[int, ...] = LAYERS
        self._wrong_every, self._max_open, self._max_len = wrong_every, max_open, max_len
        self._runner = target_runner(num_blocks=MAX_MODEL_LEN // BLOCK_SIZE)
        self._runner.capture(LAYERS)
        self.open_states: list[KnownState] = []
        self.num_calls = self.num_rows = 0

    def open(self) -> KnownState:
        if len(self.open_states) == self._max_open:
            raise DraftCapacityError("full")
        self.open_states.append(KnownState())
        return self.open_states[-1]

    def close(self, state: KnownState) -> None:
        self.open_states = [other for other in self.open_states if other is not state]

    def reserve(self, state: KnownState, num_rows: int, end_position: int) -> None:
        if end_position > self._max_len:
            raise DraftLengthError("too long")

    def begin(self, rows: Seq[HeadRows]) -> FloatArray:
        return np.concatenate([self._read(each) for each in rows])

    def _read(self, rows: HeadRows) -> FloatArray:
        state: KnownState = rows.state
        state.tokens = state.tokens[: len(state.tokens) - state.num_steps]
        state.num_steps = 0
        assert rows.first_position == len(state.tokens) - 1, "a gap, or rows that were read before"
        state.tokens += rows.token_ids
        logits = self._logits(state)
        end = rows.first_position + len(rows.token_ids)
        expected = self._runner.features.of(LAYERS)[rows.first_position : end].bfloat16()
        assert torch.equal(rows.features_nF, expected), "hidden states of other rows"
        self.num_rows += len(rows.token_ids)
        return logits

    def step(self, states: Seq[KnownState], token_ids: Seq[int], parents: Seq[int] | None = None) -> FloatArray:
        for state, token_id in zip(states, token_ids, strict=True):
            state.tokens.append(token_id)
            state.num_steps += 1
        return np.concatenate([self._logits(state) for state in states])

    def shutdown(self) -> None:
        self._runner.close()

    def _logits(self, state: KnownState) -> FloatArray:
        self.num_calls += 1
        logits = self._runner.forward(whole_input(state.tokens))[-1:].numpy().copy()
        return -logits if self._wrong_every and self.num_calls % self._wrong_every == 0 else logits


def target_runner(num_blocks: int) -> NativeRunner:
    """The tiny target on the CPU kernels, one of its own."""
    return native_runner(
        tiny_llama().config,
        bf16_weights(tiny_llama()),
        num_blocks=num_blocks,
        block_size=BLOCK_SIZE,
        max_model_len=MAX_MODEL_LEN,
    )


def whole_input(tokens: Seq[int]) -> ModelInput:
    """All tokens of one sequence, each with logits."""
    places = np.arange(len(tokens), dtype=np.int32)
    return ModelInput(
        token_ids=np.array(tokens, np.int32),
        positions=places,
        slot_mapping=places,
        row_sequences=np.zeros(len(tokens), np.int32),
        block_tables=np.arange(-(-len(tokens) // BLOCK_SIZE), dtype=np.int32)[None],
        logit_rows=places,
    )


def disturbed_run(engine: Engine, requests: Seq[Request]) -> tuple[dict[str, Result], list[StepStats]]:
    """Serve requests through changes of role, and give the last one up on the way."""
    results: dict[str, Result] = {}
    steps: list[StepStats] = []
    for item in requests:
        engine.add(item)
    for number in range(30):
        if number % 10 == 5:
            engine.set_role(Role.BATCH if number == 15 else Role.SPECULATIVE, max_num_seqs=8)
        if number == 12:
            engine.abort(requests[-1].request_id)
        for output in engine.step():
            results.setdefault(output.request_id, Result()).take(output)
        steps.append(engine.last_step)
    drain(engine, results, steps)
    return results, steps
