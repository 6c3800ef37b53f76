"""Asks a drafter for a round's drafts, and lets nothing through that the target could trip over. Pure; no torch."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cluster.engine.drafters.base import Drafter
from cluster.engine.sequence import Sequence
from cluster.types import SpeculationMode

DRAFTER_OFF = "off"
"""Name by which a request asks for no drafter."""

Drafts = Mapping[str, tuple[int, ...]]
"""Draft token ids by request id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftLimits:
    """What bounds every draft.

    Attributes:
        num_speculative_tokens: most draft tokens of one sequence in a round.
        vocab_size: ids of the target are below this.
    """

    num_speculative_tokens: int
    vocab_size: int


def collect_drafts(drafter: Drafter, sequences: Iterable[Sequence], limits: DraftLimits) -> Drafts:
    """A draft for each decoding sequence that has one; the others decode plainly."""
    drafts = {}
    for sequence in sequences:
        max_tokens = _max_draft_tokens(sequence, limits.num_speculative_tokens)
        if max_tokens <= 0:
            continue
        draft = _valid_part(drafter.propose(sequence, max_tokens)[:max_tokens], limits.vocab_size)
        if draft:
            drafts[sequence.request_id] = draft
    return drafts


def _max_draft_tokens(sequence: Sequence, limit: int) -> int:
    request = sequence.request
    if request.speculation.mode is SpeculationMode.OFF or request.speculation.drafter == DRAFTER_OFF:
        return 0
    if request.speculation.num_speculative_tokens is not None:
        limit = min(limit, request.speculation.num_speculative_tokens)
    # The round emits one token more than it accepts.
    return min(limit, request.sampling.max_tokens - sequence.num_output_tokens - 1)


def _valid_part(draft: tuple[int, ...], vocab_size: int) -> tuple[int, ...]:
    """Cut a draft before the first id that is no token: a wrong drafter must never reach the embedding."""
    if draft and (min(draft) < 0 or max(draft) >= vocab_size):
        bad = next(index for index, token_id in enumerate(draft) if not 0 <= token_id < vocab_size)
        return draft[:bad]
    return draft
