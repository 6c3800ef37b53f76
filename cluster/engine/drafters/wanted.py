"""How long a draft a sequence can use, as its request says. Free of torch."""

from cluster.engine.drafters.base import Wanted
from cluster.engine.drafters.grammar import MAX_FORCED_TOKENS
from cluster.engine.sequence import Sequence
from cluster.types import SpeculationMode

DRAFTER_OFF = "off"
"""Name by which a request asks for no drafter."""


def max_draft_tokens(sequence: Sequence, limit: int) -> int:
    """Longest useful draft of a sequence in its next round; 0 or less for none.

    Args:
        sequence: as it is now.
        limit: the engine's own.
    """
    request = sequence.request
    if request.speculation.mode is SpeculationMode.OFF or request.speculation.drafter == DRAFTER_OFF:
        return 0
    if request.speculation.num_speculative_tokens is not None:
        limit = min(limit, request.speculation.num_speculative_tokens)
    # The round emits one token more than it accepts.
    return min(limit, request.sampling.max_tokens - sequence.num_output_tokens - 1)


def want_of(sequence: Sequence, max_tokens: int) -> Wanted:
    """A sequence that can use so long a draft; what its grammar forces may go on longer, unless the client says no."""
    if sequence.grammar is None or sequence.request.speculation.num_speculative_tokens is not None:
        return Wanted(sequence=sequence, max_tokens=max_tokens)
    return Wanted(
        sequence=sequence, max_tokens=max_tokens, max_forced_tokens=max_draft_tokens(sequence, MAX_FORCED_TOKENS)
    )
