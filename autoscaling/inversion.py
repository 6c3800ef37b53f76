"""What a verifier replica delivers in a role at a concurrency, and above which load speculation stops paying.

Predicted from what was measured: the fitted step times and the acceptance rate. Nothing here is a constant of a model
or of a machine, so a faster target (more shards, another device) moves the inversion by itself.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

from cluster.engine.budget import uniform_length
from cluster.engine.step_time import StepTimes
from cluster.types import Role

MAX_AVERAGED = 8
"""So many different fits are averaged: the replicas of a deployment have the same hardware, and more add only work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """What one replica delivers.

    Attributes:
        tokens_per_s: of all its running sequences.
        tpot_s: time per output token of a running sequence.
        num_speculative_tokens: draft tokens per sequence and round; 0 is plain decoding.
        num_running: sequences in its batch; below 1 where it is idle in between.
        num_waiting: sequences beyond its seats.
    """

    tokens_per_s: float
    tpot_s: float
    num_speculative_tokens: int
    num_running: float
    num_waiting: float


def role_rate(
    times: StepTimes,
    role: Role,
    *,
    acceptance_rate: float,
    concurrency: float,
    max_num_seqs: int,
    max_tokens: int,
    mean_context_tokens: float = 0.0,
) -> Rate:
    """What a replica delivers to a steady number of sequences.

    Args:
        times: of its rounds.
        role: batch decodes plainly, speculative with the best equal draft length.
        acceptance_rate: chance that a draft token is accepted after those before it, 0..1.
        concurrency: sequences that are there all the time, waiting ones included; may be a fraction.
        max_num_seqs: seats, at least 1.
        max_tokens: longest draft.
        mean_context_tokens: KV entries of a running sequence.
    """

    def whole(num_sequences: int) -> tuple[int, float]:
        context = num_sequences * mean_context_tokens
        if role is Role.BATCH:
            return 0, num_sequences / times.seconds(num_sequences, context)
        return uniform_length(
            acceptance_rate, times, num_sequences=num_sequences, max_tokens=max_tokens, num_context_tokens=context
        )

    running = min(concurrency, float(max_num_seqs))
    low = max(int(running), 1)
    length, tokens_per_s = whole(low)
    if running > low:
        tokens_per_s += (running - low) * (whole(low + 1)[1] - tokens_per_s)
    tpot_s = max(running, 1.0) / tokens_per_s
    return Rate(
        tokens_per_s=min(running, 1.0) * tokens_per_s,
        tpot_s=tpot_s,
        num_speculative_tokens=length,
        num_running=running,
        num_waiting=concurrency - running,
    )


def crossover_concurrency(
    times: StepTimes,
    *,
    acceptance_rate: float,
    max_tokens: int,
    mean_context_tokens: float = 0.0,
    max_concurrency: int = 256,
) -> int | None:
    """The inversion: the concurrency from which on plain decoding delivers at least as much.

    Args:
        times: of a replica's rounds.
        acceptance_rate: chance that a draft token is accepted after those before it, 0..1.
        max_tokens: longest draft.
        mean_context_tokens: KV entries of a running sequence.
        max_concurrency: how far to look.

    Returns:
        1 where speculation never pays; None where it still pays at `max_concurrency`.
    """
    for concurrency in range(max_concurrency, 0, -1):
        length, _ = uniform_length(
            acceptance_rate,
            times,
            num_sequences=concurrency,
            max_tokens=max_tokens,
            num_context_tokens=concurrency * mean_context_tokens,
        )
        if length > 0:
            return None if concurrency == max_concurrency else concurrency + 1
    return 1


def mean_step_times(fits: Iterable[StepTimes]) -> StepTimes | None:
    """The average of several replicas' step times; None for none."""
    different = list(islice(dict.fromkeys(fits), MAX_AVERAGED))
    if len(different) < 2:
        return different[0] if different else None
    count = len(different)
    all_rows = sorted({rows for times in different for rows, _ in times.knots})
    return StepTimes(
        knots=tuple((rows, sum(times.forward_s(rows) for times in different) / count) for rows in all_rows),
        context_s=sum(times.context_s for times in different) / count,
        sequence_s=sum(times.sequence_s for times in different) / count,
        draft_row_s=sum(times.draft_row_s for times in different) / count,
    )
