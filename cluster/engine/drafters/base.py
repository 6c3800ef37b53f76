"""What every source of drafts offers to the engine."""

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace
from itertools import accumulate
from operator import mul
from typing import Any, Protocol, runtime_checkable

from cluster.engine.plan import ScheduledSequence
from cluster.engine.sequence import Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """Tokens guessed to follow a sequence.

    Attributes:
        token_ids: the guess, a chain.
        source: name of the drafter that made it, for metrics.
        confidences: the drafter's estimate, for each token, that it is accepted once those before it were, 0..1; empty
            where it has none, and then the draft is verified whole.
        is_forced: nothing else may follow, so that it may be longer than guesses are.
    """

    token_ids: tuple[int, ...]
    source: str
    confidences: tuple[float, ...] = ()
    is_forced: bool = False

    @property
    def expected_tokens(self) -> float:
        """Tokens that are likely to be accepted; all of them where the drafter does not say."""
        return sum(accumulate(self.confidences, mul)) if self.confidences else float(len(self.token_ids))

    def first(self, num_tokens: int) -> "Draft":
        """The draft's first tokens, at most so many."""
        if num_tokens >= len(self.token_ids):
            return self
        return replace(self, token_ids=self.token_ids[:num_tokens], confidences=self.confidences[:num_tokens])


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A sequence that can use a draft in the next round.

    Attributes:
        sequence: its last token has no KV yet, everything before has.
        max_tokens: longest useful draft, >= 1.
        max_forced_tokens: longest draft of tokens that its grammar forces; 0 stands for `max_tokens`.
    """

    sequence: Sequence
    max_tokens: int
    max_forced_tokens: int = 0

    def limit(self, draft: Draft) -> int:
        """Most tokens of a draft."""
        return max(self.max_tokens, self.max_forced_tokens) if draft.is_forced else self.max_tokens


class Drafter(Protocol):
    """Guesses the next tokens of sequences. A wrong guess costs time, never a token. Never changes a sequence.

    Calls of one round, in order: `propose`, `begin_round`, `observe` for each draft that was verified.

    Attributes:
        name: the drafter's name in settings and metrics.
    """

    name: str

    def propose(self, wanted: Seq[Wanted]) -> Mapping[str, Draft]:
        """Drafts by request id, for those sequences where one would pay."""
        ...

    def begin_round(self, items: Seq[ScheduledSequence]) -> None:
        """The forward pass of `items` begins now; drafts in them may be cut or come from another drafter."""
        ...

    def observe(self, sequence: Sequence, draft: Draft, num_accepted: int) -> None:
        """Learn what became of a draft.

        Args:
            sequence: the sequence, the round's tokens committed.
            draft: what was verified, perhaps shorter than proposed; `draft.source` tells whose it was.
            num_accepted: how many of its tokens were accepted.
        """
        ...

    def forget(self, request_id: str) -> None:
        """Drop all state of a finished sequence; unknown ids are ignored."""
        ...

    def close(self) -> None:
        """Release what the drafter holds."""
        ...


class Features(Protocol):
    """The hidden states of a round's rows: `cluster.engine.features.RoundFeatures`, which reaches torch."""

    def of(self, layers: tuple[int, ...]) -> Any:
        """Those of these layers, float32 tensor [rows, layers * hidden size]."""
        ...


@runtime_checkable
class FeatureDrafter(Drafter, Protocol):
    """A drafter that reads the target's hidden states.

    Attributes:
        feature_layers: whose; never empty.
    """

    feature_layers: tuple[int, ...]

    def take_features(self, items: Seq[ScheduledSequence], features: Features) -> None:
        """The forward pass of `items` is over, its tokens not committed yet; between `begin_round` and `observe`.

        Args:
            items: their rows stand one after the other in `features`.
            features: valid until the next pass.
        """
        ...
