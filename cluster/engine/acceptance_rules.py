"""Acceptance by rejection and by blocks: rules that keep the target's distribution, though not its tokens.

Both take a draft drawn from known distributions q and keep a prefix of it, so that what is emitted follows the target's
distributions p. Unlike the coupled rule they need q, and the text depends on the draft. They hold on three conditions:

- Noise. What draft tokens are drawn with, what decides on them, and what the target draws with are independent:
  `noise.Stream`. A draft that is a fixed function of the committed tokens is a point mass, q = 1 at its token. That
  holds for drafts of a draft model that ran ahead as well: those are drawn with the noise g of the coupled rule, which
  nothing else reads under these rules. Given all of g, they are fixed functions of the committed tokens, and the noise
  of acceptance and target is independent of g; a statement that holds given any g holds.
- Rounds. A position may be drafted and judged in several rounds, and under `block` a later draft token decides on the
  ones before it. So that noise is keyed by the round as well.
- Length. Whether there is a draft token n + 1 may depend on the first n and on earlier rounds, never on token n + 1 or
  what follows. A draft may end anywhere on this condition, the proof by induction over its prefixes does not mind.

Legend: K draft tokens, V vocabulary.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Rule = Literal["rejection", "block"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A draft and all that decides on it.

    Attributes:
        token_ids: the draft, K ids.
        target: the target's distribution [V] behind the first i draft tokens, i < K; None where it has none, and there
            the draft ends. The array may be overwritten by the next call.
        drawn_from: what draft token i was drawn from, [V]; None for a point mass at it.
        uniform: the noise that decides on draft token i, between 0 and 1.
    """

    token_ids: Sequence[int]
    target: Callable[[int], Floats | None]
    drawn_from: Callable[[int], Floats | None]
    uniform: Callable[[int], float]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Decision:
    """What is kept of a draft, and what the token behind it is drawn from.

    Attributes:
        num_accepted: leading draft tokens that are kept.
        residual_V: weights, not normalised, of the recovered token; None: the target's own distribution there, as for a
            bonus token.
    """

    num_accepted: int
    residual_V: Floats | None = None  # noqa: N815  (it ends in its shape)


def decide(rule: Rule, trial: Trial) -> Decision:
    """Judge a draft by one of the rules."""
    return _by_block(trial) if rule == "block" else _by_rejection(trial)


def _by_rejection(trial: Trial) -> Decision:
    """Token by token: Leviathan et al., arXiv 2211.17192, Algorithm 1; Chen et al., arXiv 2302.01318, Algorithm 2.

    Token x is kept with chance min(1, p(x) / q(x)); the first that is not is replaced by a draw from max(p - q, 0).
    """
    for i, token_id in enumerate(trial.token_ids):
        p_V = trial.target(i)
        if p_V is None:
            return Decision(num_accepted=i)
        q_V = trial.drawn_from(i)
        if not trial.uniform(i) < _kept(1.0, p_V, q_V, token_id):
            return Decision(num_accepted=i, residual_V=_residual(1.0, p_V, q_V, token_id))
    return Decision(num_accepted=len(trial.token_ids))


def _by_block(trial: Trial) -> Decision:
    """All prefixes together, the longest that passes: Sun et al., arXiv 2403.10444, Algorithm 2.

    With P_0 = 1 and P_i = min(1, P_{i-1} p(x_i) / q(x_i)), prefix i < K passes with chance h_i = Z_i / (Z_i + 1 - P_i),
    where Z_i = sum max(P_i p - q, 0) over the distributions behind it (equation 5), and the whole draft with chance
    P_K. What follows a shorter prefix is drawn from max(P_i p - q, 0) (equation 4). So prefix i is part of what is kept
    with chance P_i, given its tokens; no rule that keeps p expects to keep more (their Theorem 2).
    """
    num_accepted, num_tokens = 0, len(trial.token_ids)
    joint, accepted_joint = 1.0, 1.0
    for i, token_id in enumerate(trial.token_ids):
        p_V = trial.target(i)
        if p_V is None:
            num_tokens = i
            break
        q_V = trial.drawn_from(i)
        if i and trial.uniform(i - 1) < _passed(joint, p_V, q_V, token_id):
            num_accepted, accepted_joint = i, joint
        joint = _kept(joint, p_V, q_V, token_id)
        if joint == 0.0:  # Nothing longer passes; rows behind a token that cannot be have no meaning.
            break
    if num_tokens and trial.uniform(num_tokens - 1) < joint:
        return Decision(num_accepted=num_tokens)
    if num_accepted == num_tokens:
        return Decision(num_accepted=num_accepted)
    p_V = trial.target(num_accepted)
    assert p_V is not None, "the row was read before"
    q_V, token_id = trial.drawn_from(num_accepted), trial.token_ids[num_accepted]
    return Decision(num_accepted=num_accepted, residual_V=_residual(accepted_joint, p_V, q_V, token_id))


def _kept(joint: float, p_V: Floats, q_V: Floats | None, token_id: int) -> float:
    """min(1, P p(x) / q(x)); 0 for a token that the target never draws."""
    p = joint * float(p_V[token_id])
    q = 1.0 if q_V is None else float(q_V[token_id])
    return p / q if p < q else float(p > 0.0)


def _passed(joint: float, p_V: Floats, q_V: Floats | None, token_id: int) -> float:
    """The chance h that a prefix passes on which the draft goes on."""
    excess = _excess(joint, p_V, q_V, token_id).sum()
    rest = excess + 1.0 - joint
    # Both are 0 where P = 1 and p = q: then the token behind is always kept, and h does not matter.
    return float(excess / rest) if rest > 0.0 else 1.0


def _residual(joint: float, p_V: Floats, q_V: Floats | None, token_id: int) -> Floats | None:
    """Weights of the recovered token; None where rounding has left none, which only chances about 0 lead to."""
    residual_V = _excess(joint, p_V, q_V, token_id)
    return residual_V if residual_V.max() > 0.0 else None


def _excess(joint: float, p_V: Floats, q_V: Floats | None, token_id: int) -> Floats:
    """max(P p - q, 0)."""
    excess_V = joint * p_V
    if q_V is None:
        excess_V[token_id] = 0.0
    else:
        np.maximum(excess_V - q_V, 0.0, out=excess_V)
    return excess_V
