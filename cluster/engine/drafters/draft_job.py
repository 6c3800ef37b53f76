"""What a draft model keeps for a followed sequence and for the work on it."""

from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

from cluster.engine.drafters.draft_branch import Branch
from cluster.engine.drafters.draft_sampling import DrawRow, DrawSettings
from cluster.engine.drafters.own_draws import OwnDraws
from cluster.errors import OutriderError
from cluster.messages import Entry
from cluster.types import SamplingParams


class DraftCapacityError(OutriderError):
    """Too few KV blocks are free for one more sequence; it may fit later."""


class DraftLengthError(OutriderError):
    """The sequence is longer than the draft model's limit; it will never fit."""


@dataclass(slots=True, eq=False)
class DraftSequence:
    """One followed sequence. Only `DraftModel` changes it.

    Attributes:
        token_ids: committed tokens, prompt included.
        num_prompt_tokens: leading tokens that are prompt; the next output index is len(token_ids) - num_prompt_tokens.
        sampling: how tokens are drawn; holds the seed.
        settings: the same in the columns of the draft model's head.
        num_computed: leading committed tokens whose KV is written.
        block_table: KV blocks in order.
        is_too_long: grew beyond the model's limit: it holds no blocks any more, and its jobs are done at once.
        job: its live job, if any; one at a time.
        tail: draft tokens whose KV is written behind all committed ones; it stays good for those that are accepted.
    """

    token_ids: list[int]
    num_prompt_tokens: int
    sampling: SamplingParams
    settings: DrawSettings
    num_computed: int = 0
    block_table: list[int] = field(default_factory=list)
    is_too_long: bool = False
    job: "DraftJob | None" = None
    tail: tuple[int, ...] = ()

    @property
    def output_index(self) -> int:
        """Index of the token that follows the committed ones, counted from the first generated one."""
        return len(self.token_ids) - self.num_prompt_tokens

    def num_places(self, max_model_len: int) -> int:
        """Numbers of further tokens k = 0, 1, .. behind which the text goes on, within both length limits."""
        if self.is_too_long:
            return 0
        # The token at the model's limit can be drawn, but not be computed.
        num_left = max_model_len + 1 - len(self.token_ids)
        return max(0, min(num_left, self.sampling.max_tokens - self.output_index - 1))

    def commit(self, token_ids: Seq[int]) -> None:
        """Append committed tokens; the KV of drafted ones that they confirm stays."""
        is_complete = self.num_computed == len(self.token_ids)
        self.token_ids += token_ids
        if is_complete:
            for drafted, committed in zip(self.tail, token_ids, strict=False):
                if drafted != committed:
                    break
                self.num_computed += 1
        self.tail = ()


@dataclass(slots=True, eq=False)
class DraftJob:
    """Work on one sequence: continuations of the outcomes of the round that verifies `draft_token_ids`.

    Attributes:
        sequence: whose.
        draft_token_ids: the draft in flight, maybe empty.
        num_tokens: tokens drafted behind each outcome's token, K >= 0.
        fan_out: outcomes to prepare for k = 0.. accepted tokens; ends where none are wanted or possible.
        is_done: nothing is left to do: finished, cancelled, or impossible.
        lacks_blocks: there are no entries because too few blocks were free. Fewer than asked for do not count.
        branches: outcomes, likeliest first; None until the draft in flight was computed.
        own: draws its tokens with noise of their own, for a draft of one outcome without one in flight; None draws with
            the noise that the target will use.
    """

    sequence: DraftSequence
    draft_token_ids: tuple[int, ...]
    num_tokens: int
    fan_out: tuple[int, ...]
    is_done: bool = False
    lacks_blocks: bool = False
    branches: list[Branch] | None = None
    own: OwnDraws | None = None

    @property
    def entries(self) -> tuple[Entry, ...]:
        """What was drafted so far, likeliest outcome first; also before the end (shorter drafts) and after `cancel`.

        Each is (k, (x, d1..dn)). At the end n = K, or less near a limit or behind a token that ends the text.
        """
        branches = self.branches or ()
        return tuple(Entry(num_accepted=branch.num_accepted, token_ids=tuple(branch.token_ids)) for branch in branches)

    @property
    def in_flight(self) -> tuple[int, ...]:
        """The part of the draft in flight behind which outcomes are prepared."""
        return self.draft_token_ids[: max(0, len(self.fan_out) - 1)]

    @property
    def places(self) -> list[int]:
        """Numbers of accepted tokens for which outcomes are wanted, rising."""
        return [num_accepted for num_accepted, wanted in enumerate(self.fan_out) if wanted]

    @property
    def num_trunk_rows(self) -> int:
        """Rows until the outcomes are known: committed tokens without KV, the last one in any case, and the draft."""
        num_tokens = len(self.sequence.token_ids)
        return num_tokens - min(self.sequence.num_computed, num_tokens - 1) + len(self.in_flight)

    @property
    def num_rows(self) -> int:
        """Rows that it takes of the next pass, unless they are too many."""
        if self.is_done:
            return 0
        if self.branches is None:
            return self.num_trunk_rows
        return sum(not branch.is_done for branch in self.branches)

    @property
    def num_steps_left(self) -> int:
        """Passes until it is done, when its prompt is computed but for one chunk."""
        if self.is_done:
            return 0
        if self.branches is None:
            return 1 + self.num_tokens
        return max((branch.max_tokens - len(branch.token_ids) for branch in self.branches), default=0)

    def outcome_row(self, num_accepted: int) -> DrawRow:
        """What is drawn behind k accepted tokens. The next draft token is left out: it would be accepted too."""
        draft = self.draft_token_ids
        excluded = draft[num_accepted] if num_accepted < len(draft) else None
        return self.draw_row(draft[:num_accepted], num_candidates=self.fan_out[num_accepted], excluded=excluded)

    def draw_row(self, output: Seq[int], *, num_candidates: int = 1, excluded: int | None = None) -> DrawRow:
        """What is drawn behind `output`, tokens that are assumed to follow the committed ones."""
        sequence = self.sequence
        history: Seq[int] = ()
        if sequence.settings.needs_history:
            history = [*sequence.token_ids[sequence.num_prompt_tokens :], *output]
        return DrawRow(
            settings=sequence.settings,
            output_index=sequence.output_index + len(output),
            num_candidates=num_candidates,
            excluded_token_id=excluded,
            output_token_ids=history,
            own=self.own,
        )

    def rank(self, candidates: Seq[tuple[int, Seq[int]]]) -> list[tuple[int, int]]:
        """Outcomes (k, token) in order of chance: each k's best first, where most were asked for before the others.

        Args:
            candidates: k and its tokens, best first.
        """

        def place(outcome: tuple[int, int, int]) -> tuple[float, int, int]:
            index, num_accepted, _ = outcome
            wanted = self.fan_out[num_accepted]
            return index / wanted, -wanted, num_accepted

        outcomes = [(index, k, token_id) for k, token_ids in candidates for index, token_id in enumerate(token_ids)]
        return [(k, token_id) for _, k, token_id in sorted(outcomes, key=place)]
