"""Prompt lookup: what followed the last tokens the last time they occurred in prompt or output.

After prompt lookup decoding (Saxena, 2023) and vLLM's n-gram proposer, with an index instead of a search, so that a
round costs the same however long the text is, and with an estimate of how good each sequence's matches are.
"""

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from itertools import cycle, islice

from cluster.engine.drafters.base import Draft, Wanted
from cluster.engine.plan import ScheduledSequence
from cluster.engine.sequence import Sequence
from cluster.engine.sequence_budget import Adaptation, LearnedPriors, Prior, SequenceBudget

MIN_NGRAM = 2
MAX_NGRAM = 5
# Longest match that is told apart, as a sign of how far a copy will go on.
MAX_MATCH = 8
# Tokens indexed in one call (0.3 to 0.5 ms); a longer backlog, such as a long prompt, takes several rounds.
MAX_BACKLOG_TOKENS = 512
# Tokens indexed for one sequence (about 6 MB); beyond it the older half is dropped.
MAX_INDEXED_TOKENS = 16_384
# Bits of a token id in a packed n-gram. Ids are packed as id + 1, so an n-gram cut off by the start equals no other.
_ID_BITS = 24
_KEY_MASKS = tuple((1 << _ID_BITS * n) - 1 for n in range(MIN_NGRAM, MAX_NGRAM + 1))
# Class of a draft by the length of its match: 2, 3, 4, 5..7, at least 8 tokens.
_CLASS_OF_MATCH = (0, 0, 0, 1, 2, 3, 3, 3, 4)
_PRIORS = (
    Prior(first=0.15, next=0.5),
    Prior(first=0.3, next=0.6),
    Prior(first=0.4, next=0.7),
    Prior(first=0.6, next=0.8),
    Prior(first=0.8, next=0.9),
)


class NgramIndex:
    """Where each n-gram of one token list ended last, for n in 2..5. The list may only grow."""

    __slots__ = ("_end", "_key", "_latest")

    def __init__(self) -> None:
        # One table for each n: packed n-gram -> index of its last token.
        self._latest: tuple[dict[int, int], ...] = tuple({} for _ in _KEY_MASKS)
        self._end = self._key = 0

    @property
    def end(self) -> int:
        """Number of leading tokens that were indexed."""
        return self._end

    def extend(self, token_ids: Seq[int]) -> None:
        """Index new tokens, all but the last, which ends the n-gram to look up. At most `MAX_BACKLOG_TOKENS` a call."""
        if len(self._latest[-1]) >= MAX_INDEXED_TOKENS:
            self._drop_older_half()
        end = min(len(token_ids) - 1, self._end + MAX_BACKLOG_TOKENS)
        key = self._key
        tables = tuple(zip(self._latest, _KEY_MASKS, strict=True))
        for position in range(self._end, end):
            key = (key << _ID_BITS | token_ids[position] + 1) & _KEY_MASKS[-1]
            for latest, mask in tables:
                latest[key & mask] = position
        self._key, self._end = key, max(self._end, end)

    def find(self, token_ids: Seq[int]) -> tuple[int, int] | None:
        """The latest earlier place where the longest end of `token_ids`, of 5 down to 2 tokens, occurred.

        Returns:
            Index of the last matching token, and the length of the match (at most `MAX_MATCH`); None without a match.
        """
        key = 0
        for token_id in token_ids[-MAX_NGRAM:]:
            key = key << _ID_BITS | token_id + 1
        for n in range(MAX_NGRAM, MIN_NGRAM - 1, -1):
            position = self._latest[n - MIN_NGRAM].get(key & _KEY_MASKS[n - MIN_NGRAM])
            if position is not None:
                return position, n if n < MAX_NGRAM else _match_length(token_ids, position)
        return None

    def _drop_older_half(self) -> None:
        """Start again from the middle; the next calls index the newer half once more."""
        self._latest = tuple({} for _ in _KEY_MASKS)
        self._end, self._key = max(0, self._end - MAX_INDEXED_TOKENS // 2), 0


class NgramDrafter:
    """Drafts the continuation of the longest, then latest, match of the last 2..5 tokens.

    A match that overlaps the end of the text is continued periodically: after "a b a b" comes "a b a b ...".

    Args:
        max_draft_tokens: most tokens of one draft, at least 1.
        adaptation: how quickly confidences follow the acceptance.
    """

    name = "ngram"

    def __init__(self, *, max_draft_tokens: int, adaptation: Adaptation | None = None) -> None:
        self._max_draft_tokens = max_draft_tokens
        self._adaptation = adaptation or Adaptation()
        self._priors = LearnedPriors(_PRIORS, self._adaptation)
        self._states: dict[str, _State] = {}

    @property
    def num_sequences(self) -> int:
        """Sequences that state is kept for."""
        return len(self._states)

    def propose(self, wanted: Seq[Wanted]) -> Mapping[str, Draft]:
        """Drafts of the sequences with a match: how much of them is verified is decided elsewhere."""
        drafts = {}
        for want in wanted:
            if draft := self._guess(want.sequence, min(want.max_tokens, self._max_draft_tokens)):
                drafts[want.sequence.request_id] = draft
        return drafts

    def begin_round(self, items: Seq[ScheduledSequence]) -> None:
        """Nothing to note."""

    def observe(self, sequence: Sequence, draft: Draft, num_accepted: int) -> None:
        """Learn from the verdict on the sequence's last proposal."""
        state = self._states.get(sequence.request_id)
        if draft.source != self.name or state is None or state.draft_class is None or not draft.token_ids:
            return
        state.budget.observe(state.draft_class, len(draft.token_ids), num_accepted)
        state.draft_class = None

    def forget(self, request_id: str) -> None:
        """Free the index and the estimates of a finished sequence."""
        self._states.pop(request_id, None)

    def close(self) -> None:
        """Drop everything."""
        self._states.clear()

    def _guess(self, sequence: Sequence, num_tokens: int) -> Draft | None:
        token_ids = sequence.token_ids
        state = self._state(sequence)
        state.index.extend(token_ids)
        found = state.index.find(token_ids)
        if found is None:
            state.draft_class = None
            return None
        position, length = found
        state.draft_class = _CLASS_OF_MATCH[length]
        continuation = token_ids[position + 1 : position + 1 + num_tokens]
        return Draft(
            token_ids=tuple(islice(cycle(continuation), num_tokens)),
            source=self.name,
            confidences=state.budget.confidences(state.draft_class, num_tokens),
        )

    def _state(self, sequence: Sequence) -> "_State":
        state = self._states.get(sequence.request_id)
        # Tokens of one sequence never shrink: fewer mean that the id was given to another request.
        if state is None or state.index.end >= sequence.num_tokens:
            state = self._states[sequence.request_id] = _State(SequenceBudget(self._priors, self._adaptation))
        return state


class _State:
    """What the drafter keeps for one sequence; `draft_class` belongs to the proposal without a verdict yet."""

    __slots__ = ("budget", "draft_class", "index")

    def __init__(self, budget: SequenceBudget) -> None:
        self.index = NgramIndex()
        self.budget = budget
        self.draft_class: int | None = None


def _match_length(token_ids: Seq[int], position: int) -> int:
    """How many tokens up to `position` equal the end of `token_ids`, given that `MAX_NGRAM` do."""
    last = len(token_ids) - 1
    length = MAX_NGRAM
    while length < MAX_MATCH and position >= length and token_ids[position - length] == token_ids[last - length]:
        length += 1
    return length
