"""Verifies a sequence's draft by rejection or by blocks: joins the rules with the sampler, the noise and the draft's q.

Greedy rows have no place here: with all of p on one token both rules keep what equals it, as the coupled rule does.
"""

from collections.abc import Sequence as Seq
from dataclasses import replace

from torch import Tensor

from cluster.config import Acceptance
from cluster.engine.acceptance import Verdict
from cluster.engine.acceptance_rules import Decision, Rule, Trial, decide
from cluster.engine.batch import sampling_rows
from cluster.engine.draft_probabilities import DraftProbabilities
from cluster.engine.logits_processors import GREEDY_TEMPERATURE, SamplingRow
from cluster.engine.noise import Stream, stream_seed, uniform
from cluster.engine.plan import ScheduledSequence
from cluster.engine.sampler import Sampler
from cluster.engine.verification import Verified, verify


def build_sampler(
    acceptance: Acceptance, vocab_size: int, eos_token_ids: frozenset[int]
) -> "tuple[Sampler, RuleVerifier | None]":
    """An engine's sampler, and what judges its drafts; None for the coupled rule, where the sampler alone does."""
    if acceptance == "coupled":
        return Sampler(vocab_size, eos_token_ids), None
    sampler = Sampler(vocab_size, eos_token_ids, target_seed)
    return sampler, RuleVerifier(acceptance, sampler, vocab_size)


def target_seed(seed: int) -> int:
    """Seed of the target's own draws under these rules: plain, recovered and bonus tokens."""
    return stream_seed(seed, Stream.TARGET)


class RuleVerifier:
    """Judges drafts of sampled sequences, one at a time.

    Args:
        rule: how.
        sampler: of the engine, made with `target_seed`.
        vocab_size: V.
    """

    def __init__(self, rule: Rule, sampler: Sampler, vocab_size: int) -> None:
        self._rule, self._sampler, self._vocab_size = rule, sampler, vocab_size

    def verify(self, item: ScheduledSequence, logits_NV: Tensor, probabilities: DraftProbabilities | None) -> Verified:
        """Keep a part of an item's draft, and draw one more token; nothing is committed.

        Args:
            item: one that samples.
            logits_NV: of its last rows: that of the last committed token, then one for each draft token.
            probabilities: what the draft was drawn from; None for a fixed function of the committed tokens.
        """
        draft = item.draft_token_ids
        if not draft or item.sequence.request.sampling.temperature < GREEDY_TEMPERATURE:
            return verify(self._sampler, item, logits_NV)
        assert not item.draft_parents, "these rules are for chains"
        rows = [replace(row, assumed_token_id=None) for row in sampling_rows(item)]
        decision = self._decide(item, logits_NV, rows, probabilities)
        count = decision.num_accepted
        last_1V, last_row = logits_NV[count : count + 1], rows[count]
        if decision.residual_V is None:
            last = self._sampler.sample(last_1V, [last_row])
        else:
            last = self._sampler.describe(
                last_1V, [self._sampler.draw_weighted(decision.residual_V, last_row)], [last_row]
            )
        kept = self._sampler.describe(logits_NV[:count], draft[:count], rows[:count])
        return Verified(
            verdict=Verdict(count, (*draft[:count], *last.token_ids)),
            entropy_bits=(*kept.entropy_bits, *last.entropy_bits),
            logprobs=(*kept.logprobs, *last.logprobs),
        )

    def _decide(
        self,
        item: ScheduledSequence,
        logits_NV: Tensor,
        rows: Seq[SamplingRow],
        probabilities: DraftProbabilities | None,
    ) -> Decision:
        sequence = item.sequence
        seed = stream_seed(sequence.request.sampling.seed, Stream.ACCEPT, sequence.num_output_tokens)
        trial = Trial(
            token_ids=item.draft_token_ids,
            target=lambda i: self._sampler.distribution(logits_NV[i : i + 1], rows[i]),
            drawn_from=lambda i: None if probabilities is None else probabilities.of(i, self._vocab_size),
            uniform=lambda i: uniform(seed, i),
        )
        return decide(self._rule, trial)
