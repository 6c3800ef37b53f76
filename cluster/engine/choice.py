"""What the engine keeps for one choice besides its sequence: text, log-probabilities and speculation counters."""

from dataclasses import dataclass, field

from cluster.engine.output import OutputProcessor
from cluster.engine.sequence import Sequence
from cluster.types import ChoiceRecord, RequestOutput, SpeculationStats, TokenLogprobs


@dataclass(slots=True, eq=False)
class Choice:
    """One choice in flight.

    Attributes:
        sequence: its tokens and blocks.
        output: stop checks and text.
        prompt_logprobs: collected so far, index 0 is None; empty when not asked for.
        num_rounds: passes that emitted tokens.
        accepted_per_draft: number of drafted rounds by accepted tokens.
        num_draft_tokens: draft tokens verified.
        num_draft_levels: most of them that could have been accepted.
        entropy_bits_sum: the target's entropy, summed over the output tokens.
        draft_sources: who made its drafts, as keys.
    """

    sequence: Sequence
    output: OutputProcessor
    prompt_logprobs: list[TokenLogprobs | None] = field(default_factory=list)
    num_rounds: int = 0
    num_draft_tokens: int = 0
    num_draft_levels: int = 0
    accepted_per_draft: list[int] = field(default_factory=list)
    entropy_bits_sum: float = 0.0
    draft_sources: dict[str, None] = field(default_factory=dict)

    def count_round(
        self, num_drafted: int, num_accepted: int, entropy_bits: float = 0.0, *, depth: int | None = None
    ) -> None:
        """Count a round that emitted tokens, of so much entropy together.

        Args:
            num_drafted: draft tokens verified.
            num_accepted: of those.
            entropy_bits: of the tokens, summed.
            depth: in a tree, most that could have been accepted.
        """
        self.num_rounds += 1
        self.entropy_bits_sum += entropy_bits
        if num_drafted:
            self.num_draft_tokens += num_drafted
            most = num_drafted if depth is None else depth
            self.num_draft_levels += most
            self.accepted_per_draft += [0] * (most + 1 - len(self.accepted_per_draft))
            self.accepted_per_draft[num_accepted] += 1

    def speculation(self) -> SpeculationStats:
        """Totals so far."""
        return SpeculationStats(
            num_rounds=self.num_rounds,
            num_drafts=sum(self.accepted_per_draft),
            num_draft_tokens=self.num_draft_tokens,
            num_draft_levels=self.num_draft_levels if self.num_draft_levels < self.num_draft_tokens else 0,
            num_accepted_tokens=sum(n * times for n, times in enumerate(self.accepted_per_draft)),
            accepted_per_draft=tuple(self.accepted_per_draft),
            entropy_bits_sum=self.entropy_bits_sum,
        )

    def record(self) -> ChoiceRecord:
        """How it went so far."""
        return ChoiceRecord(
            first_scheduled_s=self.sequence.first_scheduled_s,
            num_preemptions=self.sequence.num_preemptions,
            draft_sources=tuple(self.draft_sources),
        )

    def emit(self, token_ids: tuple[int, ...], logprobs: tuple[TokenLogprobs, ...]) -> RequestOutput:
        """Everything that became visible with these tokens, which the output processor has seen already."""
        sequence, finish_reason = self.sequence, self.output.finish_reason
        # Before the first token the list is incomplete, so a choice that ends there has none.
        num_new = self.output.num_output_tokens - len(sequence.request.output_token_ids)
        is_first = bool(token_ids) and num_new == len(token_ids)
        has_prompt_logprobs = is_first and bool(self.prompt_logprobs)
        return RequestOutput(
            request_id=sequence.request_id,
            text=self.output.take_text(),
            token_ids=token_ids,
            logprobs=logprobs,
            prompt_logprobs=tuple(self.prompt_logprobs) if has_prompt_logprobs else None,
            finish_reason=finish_reason,
            stop_reason=self.output.stop_reason,
            num_prompt_tokens=sequence.num_prompt_tokens,
            num_output_tokens=self.output.num_output_tokens,
            num_cached_tokens=sequence.num_cached_tokens,
            speculation=self.speculation() if finish_reason is not None else None,
            record=self.record() if finish_reason is not None else None,
        )
