"""Between the forward pass and the commit: what the target draws for each sequence, and which drafts that keeps.

Legend: N rows of logits of one item, V vocabulary.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cluster.engine import token_tree
from cluster.engine.acceptance import Verdict, walk
from cluster.engine.batch import num_logit_rows, sampling_rows
from cluster.engine.model_runner import ModelRunner, TreeRunner
from cluster.engine.plan import ScheduledSequence
from cluster.engine.sampler import Sampler
from cluster.engine.sequence_blocks import slot_of
from cluster.types import TokenLogprobs

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What the target drew for one item.

    Attributes:
        verdict: the kept drafts, and the tokens to commit.
        entropy_bits: of the raw distribution, for each token to commit.
        logprobs: of each token to commit; None where not asked for.
    """

    verdict: Verdict
    entropy_bits: tuple[float, ...]
    logprobs: tuple[TokenLogprobs | None, ...]

    def first_logprobs(self, num_tokens: int) -> tuple[TokenLogprobs, ...]:
        """Those of the first tokens, where they are asked for."""
        return tuple(entry for entry in self.logprobs[:num_tokens] if entry is not None)


def verify(sampler: Sampler, item: ScheduledSequence, logits_NV: "torch.Tensor") -> Verified:
    """Draw along an item's draft; nothing is committed.

    Args:
        sampler: draws.
        item: one that samples.
        logits_NV: of its last rows: that of the last committed token, then one for each draft token.
    """
    drawn = sampler.sample(logits_NV, sampling_rows(item))
    verdict = walk(item.draft_token_ids, item.draft_parents, drawn.token_ids)
    rows = (0, *(node + 1 for node in verdict.nodes))
    return Verified(
        verdict=verdict,
        entropy_bits=tuple(drawn.entropy_bits[row] for row in rows),
        logprobs=tuple(drawn.logprobs[row] for row in rows),
    )


def split_rows(items: Seq[ScheduledSequence], logits_NV: "torch.Tensor") -> "list[torch.Tensor]":
    """The logits of each item's rows, as `build_model_input` asks for them."""
    rows = []
    start = 0
    for item in items:
        end = start + num_logit_rows(item)
        rows.append(logits_NV[start:end])
        start = end
    return rows


def keep_paths(
    items: Seq[ScheduledSequence], verified: Seq[Verified | None], runner: ModelRunner
) -> list[tuple[int, ...]]:
    """Let the KV of accepted drafts lie where that of committed tokens does.

    Args:
        items: of the round, their tokens not committed yet.
        verified: what was drawn for each; None for those that do not sample.
        runner: holds the KV; takes trees if there are any.

    Returns:
        For each item the indices of its accepted draft tokens.
    """
    paths = [() if drawn is None else drawn.verdict.nodes for drawn in verified]
    sources, destinations = kv_moves(items, paths, runner.block_size)
    if sources:
        assert isinstance(runner, TreeRunner), "nobody else is given trees"
        runner.move_kv(sources, destinations)
    return paths


def kv_moves(
    items: Seq[ScheduledSequence], paths: Seq[tuple[int, ...]], block_size: int
) -> tuple[list[int], list[int]]:
    """Slots from and to which KV must move so that accepted paths lie where committed tokens do.

    Args:
        items: of the round.
        paths: indices of the accepted nodes of each item's draft.
        block_size: tokens per KV block.

    Returns:
        Sources and destinations, each sequence's in rising order of position: moved one after the other, none
        overwrites what is moved later.
    """
    sources: list[int] = []
    destinations: list[int] = []
    for item, path in zip(items, paths, strict=True):
        if token_tree.is_prefix(path):
            continue
        table, first = item.sequence.block_table, item.start + item.num_tokens
        moved = [(node, place) for place, node in enumerate(path) if node != place]
        sources += [slot_of(table, first + node, block_size) for node, _ in moved]
        destinations += [slot_of(table, first + place, block_size) for _, place in moved]
    return sources, destinations
