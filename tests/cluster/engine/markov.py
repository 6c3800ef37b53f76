"""Targets and drafters whose next token depends on the last one alone: engines with known distributions, in no time."""

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cluster.engine.budget import DraftCost
from cluster.engine.drafters.base import Draft, Drafter, Wanted
from cluster.engine.drafters.draft_ahead import DraftModel
from cluster.engine.drafters.draft_model import DraftModelDrafter
from cluster.engine.drafters.head import HeadRows, Int32
from cluster.engine.drafters.head_drafter import HeadDrafter
from cluster.engine.drafters.ngram import NgramDrafter
from cluster.engine.model_input import ModelInput
from cluster.engine.noise import FloatArray, gumbel
from cluster.engine.plan import ScheduledSequence
from cluster.engine.sequence import Sequence
from tests.cluster.engine.engine_harness import BLOCK_SIZE, MAX_MODEL_LEN
from tests.cluster.engine.sampling_toys import exact_distribution
from tests.tiny import VOCAB_SIZE

WORDS = range(40, 46)
"""Tokens that are ever drawn."""

PROMPT = tuple(WORDS[i] for a in range(6) for b in range(a, 6) for i in (a, b))
"""Every word after nearly every other one, so that prompt lookup always finds something."""


def _uneven(seed: int, scale: float) -> npt.NDArray[np.float64]:
    """Random numbers [V, W], mostly the same behind every token: so what goes wrong behind all does not average out."""
    generator = np.random.default_rng(seed)
    common_1W = generator.normal(0.0, scale, (1, len(WORDS)))
    return common_1W + generator.normal(0.0, scale / 3, (VOCAB_SIZE, len(WORDS)))


@cache
def target_table() -> Tensor:
    """Logits [V, V] behind each token."""
    table = torch.full((VOCAB_SIZE, VOCAB_SIZE), -torch.inf)
    table[:, WORDS.start : WORDS.stop] = torch.from_numpy(_uneven(11, 0.9)).float()
    return table


@cache
def draft_table() -> Tensor:
    """The target's, rather wrong."""
    table = target_table().clone()
    table[:, WORDS.start : WORDS.stop] += torch.from_numpy(_uneven(26, 1.6)).float()
    return table


class MarkovRunner:
    """A target, or a draft model, that looks up its logits."""

    vocab_size, block_size, max_model_len = VOCAB_SIZE, BLOCK_SIZE, MAX_MODEL_LEN
    dtype, numerics = "float32", "invariant"
    hidden_size = num_layers = 1

    def __init__(self, table: Tensor, *, num_kv_blocks: int = 1024, broken: int | None = None) -> None:
        self._table, self.num_kv_blocks, self._num_rows, self._broken = table, num_kv_blocks, 0, broken

    def forward(self, batch: ModelInput) -> Tensor:
        self._num_rows = len(batch.token_ids)
        logits_NV = self._table[torch.from_numpy(batch.token_ids[batch.logit_rows]).long()]
        if self._broken is not None:
            logits_NV[torch.from_numpy(batch.positions[batch.logit_rows] == self._broken)] = torch.nan
        return logits_NV

    def copy_kv_blocks(self, sources: Seq[int], destinations: Seq[int]) -> None:
        """There is none."""

    def capture(self, layers: tuple[int, ...]) -> None:
        """Hidden states say nothing."""

    @property
    def features(self) -> Any:
        return self

    def of(self, layers: tuple[int, ...]) -> Tensor:
        return torch.zeros(self._num_rows, 1)

    def close(self) -> None:
        """Nothing to release."""


class MarkovHead:
    """A head that looks up its logits, and knows all words but the last."""

    name, max_draft_tokens = "eagle3", 8
    feature_layers: tuple[int, ...] = (0,)
    max_branches, reads_tokens = 1, True
    num_columns = len(WORDS) - 1
    target_ids: Int32 | None = np.array(WORDS[:-1], np.int32)

    def open(self) -> Any:
        return object()

    def close(self, state: Any) -> None:
        """Nothing is kept."""

    def reserve(self, state: Any, num_rows: int, end_position: int) -> None:
        """There is always room."""

    def begin(self, rows: Seq[HeadRows]) -> FloatArray:
        return self._logits([each.token_ids[-1] for each in rows])

    def step(self, states: Seq[Any], token_ids: Seq[int], parents: Seq[int] | None = None) -> FloatArray:
        return self._logits(token_ids)

    def shutdown(self) -> None:
        """Nothing to release."""

    def _logits(self, token_ids: Seq[int]) -> FloatArray:
        logits: FloatArray = draft_table()[list(token_ids)][:, WORDS.start : WORDS.stop - 1].numpy()
        return logits


class PlainDrafter:
    """The parts of a drafter that do not matter here."""

    name = "draft_model"

    def begin_round(self, items: Seq[ScheduledSequence]) -> None:
        """Nothing to note."""

    def observe(self, sequence: Sequence, draft: Draft, num_accepted: int) -> None:
        """Nothing to learn."""

    def forget(self, request_id: str) -> None:
        """Nothing is kept."""

    def close(self) -> None:
        """Nothing to release."""


class AheadDrafter(PlainDrafter):
    """Draws with the target's noise of the coupled rule and does not say from what, as a draft model that ran ahead."""

    def propose(self, wanted: Seq[Wanted]) -> Mapping[str, Draft]:
        return {want.sequence.request_id: self._draft(want) for want in wanted}

    def _draft(self, want: Wanted) -> Draft:
        sampling, token_ids = want.sequence.request.sampling, [want.sequence.token_ids[-1]]
        for i in range(min(3, want.max_tokens)):
            noise_V = gumbel(sampling.seed, want.sequence.num_output_tokens + i, VOCAB_SIZE)
            token_ids.append(int((draft_table()[token_ids[-1]] / sampling.temperature + noise_V).argmax()))
        return Draft(token_ids=tuple(token_ids[1:]), source=self.name)


def draft_model(**settings: Any) -> DraftModelDrafter:
    """A local draft model that says what it draws from."""
    model = DraftModel(MarkovRunner(draft_table()))
    settings = {"max_draft_tokens": 3, "cost": DraftCost.free(), "has_own_noise": True, **settings}
    return DraftModelDrafter(model, **settings)


def head(**settings: Any) -> HeadDrafter:
    """A head that says what it draws from."""
    settings = {"max_draft_tokens": 3, "cost": DraftCost.free(), "has_own_noise": True, **settings}
    return HeadDrafter(MarkovHead(), **settings)


DRAFTERS: dict[str, Callable[[], Drafter]] = {
    "draft model": draft_model,
    "head": head,
    "n-gram": lambda: NgramDrafter(max_draft_tokens=3),
    "ran ahead": AheadDrafter,
}


def exact_texts(first: int, num_tokens: int, *, allowed: Seq[int] = WORDS, **sampling: Any) -> npt.NDArray[np.float64]:
    """Chance of each text of words behind a token, as an array with one axis for each token."""
    masked = target_table().clone()
    masked[:, [word for word in WORDS if word not in allowed]] = -torch.inf
    words = slice(WORDS.start, WORDS.stop)
    rows_WW = np.array([exact_distribution(masked[word], (), **sampling)[words] for word in WORDS])
    joint = exact_distribution(masked[first], (), **sampling)[words]
    for _ in range(num_tokens - 1):
        joint = joint[..., None] * rows_WW
    return joint
