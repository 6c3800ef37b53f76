"""What every source of drafts offers to the engine."""

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

from cluster.engine import token_tree
from cluster.engine.draft_probabilities import DraftProbabilities
from cluster.engine.plan import ScheduledSequence
from cluster.engine.sequence import Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """Tokens guessed to follow a sequence.

    Attributes:
        token_ids: the guess, a chain, or the nodes of a tree: in falling order of their chance to be accepted, so that
            any first part of them is the best tree of its size.
        source: name of the drafter that made it, for metrics.
        confidences: the drafter's estimate, for each token, that it is accepted once those before it were, in a tree
            once its parent was, 0..1; empty where it has none, and then the draft is verified whole.
        parents: of a tree, the index of the node before each, see `token_tree`; `()` for a chain.
        is_forced: nothing else may follow, so that it may be longer than guesses are.
        probabilities: what each token was drawn from, with `noise.Stream.DRAFT`, under the rules `rejection` and
            `block`; None for a fixed function of the committed tokens. With them, whether there is a token may depend
            on those before it only.

    Raises:
        ValueError: the parents make no tree.
    """

    token_ids: tuple[int, ...]
    source: str
    confidences: tuple[float, ...] = ()
    is_forced: bool = False
    parents: tuple[int, ...] = ()
    probabilities: DraftProbabilities | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        """Refuse parents that make no tree; those of a chain become `()`."""
        if self.parents:
            token_tree.check_tree(self.token_ids, self.parents)
            object.__setattr__(self, "parents", token_tree.normal(self.parents))

    @property
    def expected_tokens(self) -> float:
        """Tokens that are likely to be accepted; the longest path where the drafter does not say."""
        if not self.confidences:
            return float(token_tree.depth(len(self.token_ids), self.parents))
        return sum(token_tree.products(self.confidences, self.parents))

    def first(self, num_tokens: int) -> "Draft":
        """The draft's first tokens, at most so many."""
        if num_tokens >= len(self.token_ids):
            return self
        return replace(
            self,
            token_ids=self.token_ids[:num_tokens],
            confidences=self.confidences[:num_tokens],
            parents=token_tree.first(self.parents, num_tokens),
            probabilities=self.probabilities and self.probabilities.first(num_tokens),
        )

    def select(self, kept: Seq[int]) -> "Draft":
        """Some of the draft's nodes.

        Args:
            kept: their indices, rising; with each node its parent.
        """
        if len(kept) == len(self.token_ids):
            return self
        if not self.parents:
            return self.first(len(kept))
        return replace(
            self,
            token_ids=tuple(self.token_ids[node] for node in kept),
            confidences=tuple(self.confidences[node] for node in kept) if self.confidences else (),
            parents=token_tree.select(self.parents, kept),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A sequence that can use a draft in the next round.

    Attributes:
        sequence: its last token has no KV yet, everything before has.
        max_tokens: longest useful draft, >= 1; in a tree, longest path.
        max_forced_tokens: longest draft of tokens that its grammar forces; 0 stands for `max_tokens`.
    """

    sequence: Sequence
    max_tokens: int
    max_forced_tokens: int = 0

    def limit(self, draft: Draft) -> int:
        """Most tokens of a draft, or of a path."""
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
            num_accepted: how many of its tokens were accepted; which nodes of a tree, `token_tree.follow` finds with
                the tokens that were committed.
        """
        ...

    def forget(self, request_id: str) -> None:
        """Drop all state of a finished sequence; unknown ids are ignored."""
        ...

    def close(self) -> None:
        """Release what the drafter holds."""
        ...


@runtime_checkable
class ComputingDrafter(Drafter, Protocol):
    """A drafter whose drafts take passes of a model of its own in the verifier, so that there is time to hide."""

    def promise(self, want: Wanted) -> float:
        """Tokens of a draft that are likely to be accepted, if the sequence got one in the next round."""
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

    def take_features(self, items: Seq[ScheduledSequence], features: Features, accepted: Seq[tuple[int, ...]]) -> None:
        """The forward pass of `items` is over, its tokens not committed yet; between `begin_round` and `observe`.

        Args:
            items: their rows stand one after the other in `features`: those of committed tokens, then the draft's.
            features: valid until the next pass.
            accepted: for each item the indices of its draft's tokens that were accepted. Their rows, in this order,
                follow those of the committed tokens; the others are of no use.
        """
        ...
