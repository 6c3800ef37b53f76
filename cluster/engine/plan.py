"""The scheduler's values: the limits of a round, and the rows that it hands to the forward pass."""

from dataclasses import dataclass, field

from cluster.engine import token_tree
from cluster.engine.sequence import Sequence, SequenceStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig:
    """Limits of a round.

    Attributes:
        max_num_seqs: most running sequences.
        max_num_batched_tokens: most rows in a round, >= max_num_seqs.
        prefill_chunk_tokens: most prompt rows of one sequence in a round.
        max_model_len: longest prompt plus output.
        enable_prefix_cache: take up and publish full blocks.
        ageing_s: waiting time that is worth one priority step.
    """

    max_num_seqs: int
    max_num_batched_tokens: int
    prefill_chunk_tokens: int
    max_model_len: int
    enable_prefix_cache: bool = True
    ageing_s: float = 10.0

    def __post_init__(self) -> None:
        """Check what the engine's settings have promised already."""
        assert 1 <= self.max_num_seqs <= self.max_num_batched_tokens
        assert self.prefill_chunk_tokens >= 1
        assert self.ageing_s > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledSequence:
    """Rows of one sequence in a round: `token_ids[start : start + num_tokens]`, then the draft.

    Attributes:
        sequence: whose rows.
        start: position of the first row; everything before it has its KV written.
        num_tokens: committed tokens to compute.
        draft_token_ids: drafts to verify, at the positions after; only where the rows sample.
        draft_parents: where they are a tree, the index of the draft token before each, see `token_tree`; `()` for a
            chain.
        epoch: the sequence's epoch when this was planned.
        samples: the rows reach the last committed token, so the logits of its row (and of the drafts') are drawn from.
    """

    sequence: Sequence
    start: int
    num_tokens: int
    draft_token_ids: tuple[int, ...] = ()
    draft_parents: tuple[int, ...] = ()
    epoch: int
    # Kept as it was when planned: committing the round's tokens must not change the answer.
    samples: bool = field(init=False)

    def __post_init__(self) -> None:
        """Fix `samples`."""
        object.__setattr__(self, "samples", self.start + self.num_tokens == self.sequence.num_tokens)

    @classmethod
    def of(
        cls,
        sequence: Sequence,
        num_tokens: int,
        draft_token_ids: tuple[int, ...] = (),
        draft_parents: tuple[int, ...] = (),
    ) -> "ScheduledSequence":
        """The next rows of a sequence as it is now; of a draft's parents, those of its first tokens are taken."""
        return cls(
            sequence=sequence,
            start=sequence.num_computed_tokens,
            num_tokens=num_tokens,
            draft_token_ids=draft_token_ids,
            draft_parents=token_tree.first(draft_parents, len(draft_token_ids)),
            epoch=sequence.epoch,
        )

    @property
    def num_rows(self) -> int:
        """Rows in the forward pass."""
        return self.num_tokens + len(self.draft_token_ids)

    @property
    def draft_depth(self) -> int:
        """Most draft tokens that can be accepted."""
        return token_tree.depth(len(self.draft_token_ids), self.draft_parents)

    @property
    def draft_line(self) -> tuple[int, ...]:
        """The draft, or the likeliest path of a tree: for whoever guesses what comes of the round."""
        return token_tree.main_line(self.draft_token_ids, self.draft_parents)

    @property
    def is_stale(self) -> bool:
        """True when the sequence finished, was preempted or moved on since: its result must be dropped."""
        sequence = self.sequence
        return (
            sequence.status is not SequenceStatus.RUNNING
            or sequence.epoch != self.epoch
            or sequence.num_computed_tokens != self.start
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One round.

    Attributes:
        scheduled: rows by sequence, decodes first, each group by rank.
        preempted: sequences that lost their blocks in this call and wait again.
        num_cut_draft_tokens: drafts of decoding sequences that were offered and found no room.
    """

    scheduled: tuple[ScheduledSequence, ...] = ()
    preempted: tuple[Sequence, ...] = ()
    num_cut_draft_tokens: int = 0

    @property
    def num_rows(self) -> int:
        """Rows in the forward pass."""
        return sum(item.num_rows for item in self.scheduled)
