"""Ways to foretell acceptance that `entropy_study` compares, and how well each foretells."""

import math
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from cluster.engine.acceptance_model import MAX_POSITION, AcceptanceModel, LearningRate
from tests.benchmarks.draft_trials import DraftTrial

_MIN_CONFIDENCE = 1e-3
_ENTROPY_PRIOR = 4.0

Feature = Callable[[float], float]
"""What is made of an entropy in bits before it is centred."""


class Foreteller(Protocol):
    """Foretells each draft, then hears what became of it."""

    def chances(self, draft: DraftTrial) -> list[float]:
        """Chance of each token, given that those before it are accepted."""
        ...

    def learn(self, draft: DraftTrial) -> None:
        """Take in the verdict."""
        ...


class AsSaid:
    """The drafter's own confidence."""

    def chances(self, draft: DraftTrial) -> list[float]:
        """As the drafter says."""
        return [_bounded(confidence) for confidence in draft.confidences]

    def learn(self, draft: DraftTrial) -> None:
        """Nothing to learn."""


class Calibrated:
    """What the engine uses.

    Attributes:
        model: learns from all drafts.
    """

    def __init__(self) -> None:
        self.model = AcceptanceModel()

    def chances(self, draft: DraftTrial) -> list[float]:
        """From survival, token by token."""
        survival = self.model.survival(draft.source, draft.confidences)
        return [chance / before for before, chance in zip((1.0, *survival), survival, strict=False)]

    def learn(self, draft: DraftTrial) -> None:
        """Let the model learn."""
        self.model.observe(draft.source, draft.confidences, len(draft.confidences), draft.num_accepted)


class WithEntropy:
    """The same fit with the target's entropy as a further feature, centred on its running mean. Of one source only.

    Args:
        feature: what is made of the entropy.
        max_position: positions from this one on share a coefficient; None lets the first position alone have one.
    """

    def __init__(self, feature: Feature, *, max_position: int | None = MAX_POSITION) -> None:
        self._feature, self._max_position, self._rate = feature, max_position, LearningRate()
        self._parameters: dict[tuple[str, int], _Parameter] = {}
        self._mean = 0.0
        self._num_drafts = 0

    def chances(self, draft: DraftTrial) -> list[float]:
        """Sigmoid of the weighted features."""
        return [self._chance(draft, position) for position in range(len(draft.confidences))]

    def learn(self, draft: DraftTrial) -> None:
        """One step for each trial, as `AcceptanceModel` makes them; the mean follows."""
        for position in range(num_tried(draft)):
            error = (position < draft.num_accepted) - self._chance(draft, position)
            for parameter, value in list(self._features(draft, position)):
                parameter.step(error * value, self._rate.num_trials)
        self._num_drafts += 1
        share = max(1.0 / self._num_drafts, 1.0 / self._rate.num_trials)
        self._mean += share * (self._feature(draft.entropy_bits) - self._mean)

    def _chance(self, draft: DraftTrial, position: int) -> float:
        logit = sum(parameter.value * value for parameter, value in self._features(draft, position))
        return 1.0 / (1.0 + math.exp(-logit))

    def _features(self, draft: DraftTrial, position: int) -> "Iterator[tuple[_Parameter, float]]":
        rate, place = self._rate, min(position, MAX_POSITION)
        confidence = _bounded(draft.confidences[position])
        yield self._parameter("level", 0, rate.source_prior), 1.0
        yield self._parameter("departure", place, rate.position_prior), 1.0
        yield self._parameter("weight", 0, rate.weight_prior, start=1.0), math.log(confidence / (1.0 - confidence))
        if self._num_drafts and (self._max_position is not None or position == 0):
            place = min(position, self._max_position or 0)
            yield self._parameter("entropy", place, _ENTROPY_PRIOR), self._feature(draft.entropy_bits) - self._mean

    def _parameter(self, name: str, place: int, prior: float, start: float = 0.0) -> "_Parameter":
        return self._parameters.setdefault((name, place), _Parameter(start, prior))


class _Parameter:
    def __init__(self, start: float, prior: float) -> None:
        self.value = self._start = start
        self._prior, self._evidence = prior, 0.0

    def step(self, gradient: float, num_trials: float) -> None:
        self._evidence = (1.0 - 1.0 / num_trials) * self._evidence + gradient * gradient
        pull = self._prior / num_trials * (self.value - self._start)
        self.value += (gradient - pull) / (self._prior + self._evidence)


def num_tried(draft: DraftTrial) -> int:
    """Tokens of a draft whose acceptance was really tried."""
    return min(len(draft.confidences), draft.num_accepted + 1)


@dataclass(slots=True)
class Score:
    """How well one text's drafts were foretold.

    Attributes:
        num_trials: tokens that were tried.
        log_loss: summed, in nats.
        brier: summed squared errors.
        num_tokens: emitted, by number of sequences, had drafts been as long as the chances advise.
        seconds: and the time that those rounds take.
    """

    num_trials: int
    log_loss: float
    brier: float
    num_tokens: dict[int, int]
    seconds: dict[int, float]


def score(
    drafts: Seq[DraftTrial], foreteller: Foreteller, round_s: Callable[[str, int, int], float], batches: Seq[int]
) -> dict[int, Score]:
    """Foretell each draft, then learn from it; returns scores by text.

    Args:
        drafts: in the order of their verdicts.
        foreteller: knows nothing yet.
        round_s: seconds of a round by source, sequences, and draft tokens of each.
        batches: numbers of sequences for which drafts are cut.
    """
    scores: dict[int, Score] = {}
    for draft in drafts:
        chances = foreteller.chances(draft)
        of_text = scores.setdefault(
            draft.text, Score(0, 0.0, 0.0, dict.fromkeys(batches, 0), dict.fromkeys(batches, 0.0))
        )
        for position in range(num_tried(draft)):
            hit_chance = chances[position] if position < draft.num_accepted else 1.0 - chances[position]
            of_text.num_trials += 1
            of_text.log_loss -= math.log(hit_chance)
            of_text.brier += (1.0 - hit_chance) ** 2
        for num_sequences in batches:
            seconds = [round_s(draft.source, num_sequences, length) for length in range(len(chances) + 1)]
            length = _best_length(chances, seconds)
            of_text.num_tokens[num_sequences] += 1 + min(length, draft.num_accepted)
            of_text.seconds[num_sequences] += seconds[length]
        foreteller.learn(draft)
    return scores


def hindsight_loss(drafts: Seq[DraftTrial], feature: Feature | None) -> float:
    """Log-loss for each trial of the fit that is best for these very drafts: no online fit can do better.

    Args:
        drafts: of one source.
        feature: what is made of the entropy, with a coefficient for each position; None leaves it out.
    """
    rows: list[list[float]] = []
    signs: list[float] = []
    for draft in drafts:
        for position in range(num_tried(draft)):
            confidence = _bounded(draft.confidences[position])
            at_position = [float(min(position, MAX_POSITION) == place) for place in range(MAX_POSITION + 1)]
            value = feature(draft.entropy_bits) if feature is not None else 0.0
            rows.append([*at_position, math.log(confidence / (1.0 - confidence)), *(value * at for at in at_position)])
            signs.append(1.0 if position < draft.num_accepted else -1.0)
    return _best_logistic_loss(np.array(rows), np.array(signs))


def _best_logistic_loss(features_NF: NDArray[np.float64], signs_N: NDArray[np.float64]) -> float:
    """Least mean log-loss of a logistic fit, by Newton's method; a trace of a ridge keeps it finite."""
    weights_F = np.zeros(features_NF.shape[1])
    ridge_FF = 1e-3 * np.eye(len(weights_F))
    for _ in range(20):
        chances_N = 1.0 / (1.0 + np.exp(-features_NF @ weights_F))
        gradient_F = features_NF.T @ (chances_N - (signs_N > 0)) + ridge_FF @ weights_F
        hessian_FF = (features_NF * (chances_N * (1.0 - chances_N))[:, None]).T @ features_NF + ridge_FF
        weights_F -= np.linalg.solve(hessian_FF, gradient_F)
    return float(np.logaddexp(0.0, -signs_N * (features_NF @ weights_F)).mean())


def _best_length(chances: Seq[float], seconds: Seq[float]) -> int:
    """The draft length with the most expected tokens per second."""
    survival = expected = 1.0
    rates = [1.0 / seconds[0]]
    for chance, taken_s in zip(chances, seconds[1:], strict=True):
        survival *= chance
        expected += survival
        rates.append(expected / taken_s)
    return max(range(len(rates)), key=rates.__getitem__)


def _bounded(confidence: float) -> float:
    return min(1.0 - _MIN_CONFIDENCE, max(_MIN_CONFIDENCE, confidence))
