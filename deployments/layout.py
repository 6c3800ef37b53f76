"""Which drafter this machine should use: worked out from measured pass times before serving. Pure.

Three layouts are compared by the tokens per second of one sequence, with prompt lookup left out of all of them:

- `actor`: a drafter process drafts ahead while the verifier runs; on the same node it takes threads from the verifier.
- `local`: the verifier runs the draft model itself between its own passes, on all threads.
- `ngram`: no draft model.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

LayoutKind = Literal["actor", "local", "ngram", "off"]
LAYOUT_KINDS: tuple[LayoutKind, ...] = ("actor", "local", "ngram", "off")
DrafterMode = Literal["auto", "actor", "local", "ngram", "off"]
"""What the user may ask for."""

MIN_GAIN_RATIO = 1.03
"""A layout with a draft model must beat plain decoding by this much: measurements err, and it costs memory."""

DEFAULT_ACCEPTANCE_RATE = 0.5
DEFAULT_HIT_RATE = 0.6
"""For draft models whose card does not say: chance that the table holds the outcome of a round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassTimes:
    """Seconds of one forward pass.

    Attributes:
        one_s: with one row.
        many_s: with `num_rows` rows.
        num_rows: more than 1.
    """

    one_s: float
    many_s: float
    num_rows: int

    def at(self, num_rows: int) -> float:
        """Seconds for that many rows, on the line through both measurements."""
        slope_s = (self.many_s - self.one_s) / (self.num_rows - 1)
        return self.one_s + slope_s * (num_rows - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """What the choice stands on.

    Attributes:
        num_cores: that the verifier may use.
        shares_node: an actor would run on the verifier's own node.
        target: the target on all threads.
        target_beside_actor: the target on the threads that an actor leaves; the same as `target` on another node.
        draft_local: the draft model on all threads.
        draft_actor: the draft model on an actor's threads, with about as many rows as it has branches.
        num_speculative_tokens: longest draft.
        acceptance_rate: chance that a draft token is accepted after those before it, 0..1.
        hit_rate: chance that an actor drafted for the outcome that came, 0..1.
    """

    num_cores: int
    shares_node: bool
    target: PassTimes
    target_beside_actor: PassTimes
    draft_local: PassTimes
    draft_actor: PassTimes
    num_speculative_tokens: int
    acceptance_rate: float = DEFAULT_ACCEPTANCE_RATE
    hit_rate: float = DEFAULT_HIT_RATE


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A choice and why it was made.

    Attributes:
        kind: the layout.
        reason: one line with the numbers.
        tokens_per_s: expected of each layout that was compared; empty when nothing was measured.
    """

    kind: LayoutKind
    reason: str
    tokens_per_s: tuple[tuple[LayoutKind, float], ...] = ()


def choose_layout(measured: Measurements) -> Layout:
    """The layout with the most expected tokens per second; the simplest one unless another clearly wins."""
    plain = 1 / measured.target.one_s
    lengths = range(1, measured.num_speculative_tokens + 1)
    local, local_length = _best(lengths, lambda length: _local_rate(measured, length))
    actor, actor_length = _best(lengths, lambda length: _actor_rate(measured, length))
    rates: tuple[tuple[LayoutKind, float], ...] = (("actor", actor), ("local", local), ("ngram", plain))
    kind, rate = max(rates[:2], key=lambda item: item[1])
    if rate < MIN_GAIN_RATIO * plain:
        kind = "ngram"
    reason = (
        f"expected tokens/s: actor {actor:.1f} (drafts of {actor_length}), local {local:.1f} (drafts of "
        f"{local_length}), ngram {plain:.1f} without matches; {_numbers(measured)}"
    )
    return Layout(kind=kind, reason=reason, tokens_per_s=rates)


def forced_layout(kind: LayoutKind, reason: str) -> Layout:
    """A layout that was set, not measured."""
    return Layout(kind=kind, reason=reason)


def expected_tokens(acceptance_rate: float, num_draft_tokens: int) -> float:
    """Tokens of a round with a draft: 1 + a + a^2 + ..., the target's own token included."""
    return sum(acceptance_rate**position for position in range(num_draft_tokens + 1))


def _best(lengths: Iterable[int], rate: Callable[[int], float]) -> tuple[float, int]:
    return max(((rate(length), length) for length in lengths), key=lambda item: item[0])


def _local_rate(measured: Measurements, length: int) -> float:
    """Draft, then verify: both take their time."""
    round_s = measured.target.at(1 + length) + length * measured.draft_local.one_s
    return expected_tokens(measured.acceptance_rate, length) / round_s


def _actor_rate(measured: Measurements, length: int) -> float:
    """Drafting hides behind the pass while it fits: one pass over the trunk, one for each token of the branches."""
    target = measured.target_beside_actor
    verify_s, plain_s = target.at(1 + length), target.one_s
    fits = (1 + length) * measured.draft_actor.many_s <= verify_s
    hit = measured.hit_rate if fits else 0.0
    tokens = hit * expected_tokens(measured.acceptance_rate, length) + (1 - hit)
    return tokens / (hit * verify_s + (1 - hit) * plain_s)


def _numbers(measured: Measurements) -> str:
    def passes(times: PassTimes) -> str:
        return f"{times.one_s * 1e3:.1f}/{times.many_s * 1e3:.1f} ms"

    where = "same node" if measured.shares_node else "other node"
    rows, draft_rows = measured.target.num_rows, measured.draft_actor.num_rows
    return (
        f"target pass of 1/{rows} rows {passes(measured.target)} on {measured.num_cores} cores and "
        f"{passes(measured.target_beside_actor)} beside an actor ({where}), draft model 1/{draft_rows} rows "
        f"{passes(measured.draft_local)} here and {passes(measured.draft_actor)} in an actor, "
        f"acceptance {measured.acceptance_rate:.2f}, table hits {measured.hit_rate:.2f}"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeShare:
    """Who shares a node with a verifier.

    Attributes:
        node_id: Ray's id of it.
        num_verifiers: verifiers on it, this one included.
        num_drafters: drafter actors on it.
    """

    node_id: str
    num_verifiers: int = 1
    num_drafters: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadPlan:
    """Threads of one verifier.

    Attributes:
        verifier: of its forward pass.
        total: of all verifiers and drafters on its node.
        warning: says so when they are more than the cores; else None.
    """

    verifier: int
    total: int
    warning: str | None


def plan_threads(*, num_cores: int, engine_threads: int, node: NodeShare, drafter_threads: int) -> ThreadPlan:
    """Share a node's cores: forward passes of two processes on one core slow each other down by far more than half.

    Args:
        num_cores: of the node.
        engine_threads: what the user set for each verifier; 0 takes what the drafters leave.
        node: who shares it; without drafters that are not used.
        drafter_threads: of each drafter.
    """
    for_drafters = node.num_drafters * drafter_threads
    verifier = engine_threads or max(1, (num_cores - for_drafters) // node.num_verifiers)
    total = node.num_verifiers * verifier + for_drafters
    warning = None
    if total > num_cores:
        warning = (
            f"{node.num_verifiers} verifier(s) of {verifier} and {node.num_drafters} drafter(s) of {drafter_threads} "
            f"threads are {total} threads on {num_cores} cores, which slows all of them down: lower "
            "engine.num_threads, draft.num_threads, or the number of replicas"
        )
    return ThreadPlan(verifier=verifier, total=total, warning=warning)
