"""How likely draft tokens survive: a drafter's own confidence, corrected by what became of its earlier drafts.

    P(token i accepted | all before it accepted)
        = sigmoid(bias[source, min(i, MAX_POSITION)] + weight[source] * logit(confidence_i))

Bias 0 and weight 1 leave a confidence as it is. They are learned online, one step for each trial: each parameter moves
by its gradient over what is known about it (a diagonal Newton step whose curvature is the squared error, after
AdaGrad). What is known fades, so that drift is followed, and a prior pulls back to bias 0 and weight 1 where little is
known. A bias is the source's own plus its position's departure from it: late positions are tried rarely, and drift
meets them all.

The target's entropy at the last committed token is no part of it. Measured, it foretells next to nothing that the
confidence does not (tests/benchmarks/entropy_study.py).
"""

import math
from collections import deque
from collections.abc import Sequence as Seq
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cluster.engine import token_tree

MAX_POSITION = 7
"""Draft tokens from this position on share a bias."""

NUM_RECENT_TRIALS, NUM_BINS = 2000, 10
"""What the calibration error looks at: so many of a source's latest trials, by the chance foretold."""

# No drafter knows better than this, and logits stay finite.
_MIN_CONFIDENCE = 1e-3
# A survival is never 0, however long the draft.
_MIN_SURVIVAL = 1e-12
# With these sigmoid stays below 1 in double precision. A weight under 0 would turn a drafter's order around.
_MAX_BIAS, _MAX_DEPARTURE, _MAX_WEIGHT = 8.0, 4.0, 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningRate:
    """How fast and how far parameters leave their start.

    The strength of a prior is a curvature: a trial at an even chance brings 0.25 for a bias.

    Attributes:
        num_trials: a parameter remembers about so many of its latest trials, at least 1.
        source_prior: strength of the prior on a source's bias, above 0.
        position_prior: on a position's departure from it, above 0.
        weight_prior: on a source's weight, above 0.
    """

    num_trials: float = 400.0
    source_prior: float = 2.0
    position_prior: float = 4.0
    weight_prior: float = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReliabilityBin:
    """Recent trials for which about the same chance was foretold.

    Attributes:
        num_trials: how many.
        mean_chance: mean of the chances foretold, 0..1.
        hit_rate: share that was accepted, 0..1.
    """

    num_trials: int
    mean_chance: float
    hit_rate: float


class AcceptanceModel:
    """Acceptance by source (the drafter's name) and position in the draft. Each source takes at most about 250 KB.

    Args:
        rate: how fast it learns.
    """

    def __init__(self, rate: LearningRate | None = None) -> None:
        self._rate = rate or LearningRate()
        self._sources: dict[str, _Source] = {}

    @property
    def sources(self) -> tuple[str, ...]:
        """Those that anything was learned of."""
        return tuple(self._sources)

    def survival(self, source: str, confidences: Seq[float], parents: tuple[int, ...] = ()) -> list[float]:
        """Chance that draft token i and all before it are accepted, above 0 and below 1; it never rises along a path.

        Args:
            source: name of the drafter.
            confidences: the drafter's chance of each token, given that those before it are accepted, 0..1.
            parents: of the nodes of a tree, see `token_tree`; `()` for a chain. A node's position is its depth.
        """
        if parents:
            return self._tree_survival(source, confidences, parents)
        learned = self._sources.get(source, _UNKNOWN)
        level, departures, weight = learned.level, learned.departures, learned.weight
        chances = []
        survival = 1.0
        for position, confidence in enumerate(confidences):
            bias = level + departures[position if position < MAX_POSITION else MAX_POSITION]
            survival /= 1.0 + math.exp(-bias - weight * _logit(confidence))
            chances.append(survival if survival > _MIN_SURVIVAL else _MIN_SURVIVAL)
        return chances

    def chance(self, source: str, position: int, confidence: float) -> float:
        """Chance that one draft token is accepted once those before it were, above 0 and below 1.

        Args:
            source: name of the drafter.
            position: of the token in its draft, or its depth in a tree, from 0.
            confidence: the drafter's own chance of it, 0..1.
        """
        learned = self._sources.get(source, _UNKNOWN)
        return 1.0 / (1.0 + math.exp(-learned.bias(position) - learned.weight * _logit(confidence)))

    def survivals(self, sources: Seq[str], confidences_RK: NDArray[np.float64]) -> NDArray[np.float64]:
        """`survival` of many drafts at once; quicker than one by one from about a dozen on.

        Args:
            sources: names of the drafters of R drafts.
            confidences_RK: their confidences, K each. Shorter drafts are filled up with anything, NaN included; what
                comes back in those places means nothing.

        Returns:
            Survivals, [R, K] float64.
        """
        number_of = {source: number for number, source in enumerate(dict.fromkeys(sources))}
        numbers = [number_of[source] for source in sources]
        learned = [self._sources.get(source, _UNKNOWN) for source in number_of] or [_UNKNOWN]
        positions = np.minimum(np.arange(confidences_RK.shape[1]), MAX_POSITION)
        bias_SK = np.array([[state.level + part for part in state.departures] for state in learned])[:, positions]
        weight_S = np.array([state.weight for state in learned])
        # fmax passes over NaN, as `_logit` does.
        sure_RK = np.minimum(np.fmax(confidences_RK, _MIN_CONFIDENCE), 1.0 - _MIN_CONFIDENCE)
        if len(learned) > 1:
            bias_SK, weight_S = bias_SK[numbers], weight_S[numbers]
        logits_RK = bias_SK + weight_S[:, None] * np.log(sure_RK / (1.0 - sure_RK))
        return np.maximum(np.cumprod(1.0 / (1.0 + np.exp(-logits_RK)), axis=1), _MIN_SURVIVAL)

    def observe(self, source: str, confidences: Seq[float], num_drafted: int, num_accepted: int) -> None:
        """Learn from a verdict. Only trials that were made count: a token behind a refused one says nothing.

        Args:
            source: name of the drafter.
            confidences: as for `survival`; those behind the verified part are not looked at.
            num_drafted: tokens that were verified.
            num_accepted: how many of them, from the first on, were accepted.

        Raises:
            ValueError: not 0 <= num_accepted <= num_drafted <= number of confidences.
        """
        if not 0 <= num_accepted <= num_drafted <= len(confidences):
            raise ValueError(f"{num_accepted} accepted of {num_drafted} drafted with {len(confidences)} confidences")
        learned = self._sources.get(source)
        if learned is None:
            learned = self._sources[source] = _Source()
        for position in range(min(num_drafted, num_accepted + 1)):
            learned.learn(position, _logit(confidences[position]), position < num_accepted, self._rate)

    def observe_nodes(self, source: str, confidences: Seq[float], parents: tuple[int, ...], nodes: Seq[int]) -> None:
        """Learn from a verdict on a chain or a tree, in which each child of an accepted node was tried.

        Args:
            source: name of the drafter.
            confidences: of the verified tokens, as for `survival`.
            parents: of the verified nodes; `()` for a chain.
            nodes: indices of the accepted ones.
        """
        if not parents:
            self.observe(source, confidences, len(confidences), len(nodes))
            return
        learned = self._sources.setdefault(source, _Source())
        accepted = {token_tree.ROOT, *nodes}
        depths = token_tree.depths(len(parents), parents)
        for node, (confidence, parent) in enumerate(zip(confidences, parents, strict=True)):
            if parent in accepted:
                learned.learn(depths[node] - 1, _logit(confidence), node in accepted, self._rate)

    def _tree_survival(self, source: str, confidences: Seq[float], parents: tuple[int, ...]) -> list[float]:
        depths = token_tree.depths(len(parents), parents)
        chances = [
            self.chance(source, depth - 1, confidence) for depth, confidence in zip(depths, confidences, strict=True)
        ]
        return [max(chance, _MIN_SURVIVAL) for chance in token_tree.products(chances, parents)]

    def reliability(self, source: str) -> tuple[ReliabilityBin, ...]:
        """A source's recent trials by the chance that was foretold before their outcome was learned from.

        Returns:
            Those bins of equal width that hold trials, chances rising.
        """
        learned = self._sources.get(source, _UNKNOWN)
        members: list[list[tuple[float, bool]]] = [[] for _ in range(NUM_BINS)]
        for trial in learned.recent:
            members[int(trial[0] * NUM_BINS)].append(trial)
        return tuple(
            ReliabilityBin(
                num_trials=len(trials),
                mean_chance=sum(chance for chance, _ in trials) / len(trials),
                hit_rate=sum(is_hit for _, is_hit in trials) / len(trials),
            )
            for trials in members
            if trials
        )

    def calibration_error(self, source: str) -> float | None:
        """Expected calibration error, 0..1: mean distance of chance and outcome in recent trials; None without any."""
        bins = self.reliability(source)
        if not bins:
            return None
        distance = sum(part.num_trials * abs(part.mean_chance - part.hit_rate) for part in bins)
        return distance / sum(part.num_trials for part in bins)


class _Source:
    """What is learned about one drafter. Evidence is the curvature seen: how much is known about a parameter."""

    __slots__ = (
        "departure_evidence",
        "departures",
        "level",
        "level_evidence",
        "recent",
        "weight",
        "weight_evidence",
    )

    def __init__(self) -> None:
        self.level, self.level_evidence = 0.0, 0.0
        self.departures, self.departure_evidence = [0.0] * (MAX_POSITION + 1), [0.0] * (MAX_POSITION + 1)
        self.weight, self.weight_evidence = 1.0, 0.0
        self.recent: deque[tuple[float, bool]] = deque(maxlen=NUM_RECENT_TRIALS)

    def bias(self, position: int) -> float:
        """Of a position in a draft."""
        return self.level + self.departures[min(position, MAX_POSITION)]

    def learn(self, position: int, logit: float, is_hit: bool, rate: LearningRate) -> None:
        """One step of three parameters from one trial."""
        place = min(position, MAX_POSITION)
        level, departure, weight = self.level, self.departures[place], self.weight
        chance = 1.0 / (1.0 + math.exp(-level - departure - weight * logit))
        self.recent.append((chance, is_hit))
        error = is_hit - chance
        # Priors are paid in parts, one for each trial that is remembered.
        fade = 1.0 / rate.num_trials
        kept, curvature, prior = 1.0 - fade, error * error, rate.source_prior
        evidence = self.level_evidence = kept * self.level_evidence + curvature
        level += (error - fade * prior * level) / (prior + evidence)
        self.level = min(max(level, -_MAX_BIAS), _MAX_BIAS)
        prior = rate.position_prior
        evidence = self.departure_evidence[place] = kept * self.departure_evidence[place] + curvature
        departure += (error - fade * prior * departure) / (prior + evidence)
        self.departures[place] = min(max(departure, -_MAX_DEPARTURE), _MAX_DEPARTURE)
        prior = rate.weight_prior
        evidence = self.weight_evidence = kept * self.weight_evidence + curvature * logit * logit
        weight += (error * logit - fade * prior * (weight - 1.0)) / (prior + evidence)
        self.weight = min(max(weight, 0.0), _MAX_WEIGHT)


_UNKNOWN = _Source()
"""Stands for a source of which nothing was seen; never written to."""


def _logit(confidence: float) -> float:
    # Comparisons in this order take NaN as no confidence at all.
    if not confidence > _MIN_CONFIDENCE:
        confidence = _MIN_CONFIDENCE
    elif confidence > 1.0 - _MIN_CONFIDENCE:
        confidence = 1.0 - _MIN_CONFIDENCE
    return math.log(confidence / (1.0 - confidence))
