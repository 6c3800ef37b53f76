"""The profile "measured here": a calibration as a cost model, and how well that predicts the machine it came from."""

from collections import defaultdict
from dataclasses import dataclass
from statistics import median

from autoscaling.calibration_analysis import Drafts
from autoscaling.simulation.cost import CostModel
from autoscaling.simulation.rates import Drafting, RateBook
from autoscaling.simulation.workload import TrafficClass
from cluster.engine.calibration import Calibration, Point
from cluster.engine.step_time import StepTimes
from cluster.routing.types import Domain
from cluster.types import Role

_DOMAIN_WORDS = {
    "code": Domain.CODE_SYNTHESIS,
    "json": Domain.STRUCTURED_JSON,
    "copy": Domain.RAG_SUMMARY,
    "edit": Domain.CODE_SYNTHESIS,
    "story": Domain.CREATIVE_WRITING,
}
_MIN_DRAFT_S = 1e-9


def cost_of(calibration: Calibration) -> CostModel:
    """The machine that was measured, as one replica. Its price, power and arithmetic are unknown."""
    cpu = calibration.machine.gpu or calibration.machine.cpu
    return CostModel(
        name=f"{calibration.model_id} on {cpu}", times=calibration.step_times, draft_times=_draft_times(calibration)
    )


def classes_of(calibration: Calibration) -> tuple[TrafficClass, ...]:
    """The classes of text that were measured, with equal shares."""
    return tuple(
        TrafficClass(
            name=workload,
            domain=next((found for word, found in _DOMAIN_WORDS.items() if word in workload), Domain.GENERAL_CHAT),
            draft_ratio=drafts.draft_ratio,
            measured_survivals=drafts.survivals or (0.0,),
            mean_prompt_tokens=200,
            mean_output_tokens=150,
        )
        for workload in calibration.workloads
        for drafts in [Drafts.of(calibration.acceptance, workload)]
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A measured cell beside what the simulator makes of it.

    Attributes:
        point: as measured.
        tokens_per_s: as predicted.
    """

    point: Point
    tokens_per_s: float

    @property
    def error_ratio(self) -> float:
        """Predicted over measured, less 1."""
        return self.tokens_per_s / self.point.tokens_per_s - 1.0


def check_sweep(calibration: Calibration) -> tuple[Check, ...]:
    """Every cell of the sweep, predicted from the step times, the acceptance of its class and the mean drafting time.

    A cell with a fixed K is run with a fixed K, one where the engine chose is run with the production budget.
    """
    cost, classes = cost_of(calibration), classes_of(calibration)
    index_of = {each.name: index for index, each in enumerate(classes)}
    largest = max((point.num_speculative_tokens or 0 for point in calibration.points), default=0)
    checks = []
    for point in calibration.points:
        num_tokens = point.num_speculative_tokens
        mode = Drafting(
            mode="measured" if num_tokens is None else "fixed" if num_tokens else "off",
            num_speculative_tokens=largest if num_tokens is None else max(num_tokens, 1),
        )
        counts = [0] * (len(classes) + 1)
        counts[index_of[point.workload]] = point.concurrency
        flow = RateBook(cost, classes, mode).flow(Role.SPECULATIVE, counts, point.round.num_context_tokens, 0)
        tokens = flow.tokens[index_of[point.workload]]
        checks.append(Check(point=point, tokens_per_s=point.concurrency * tokens / flow.round_s))
    return tuple(checks)


def _draft_times(calibration: Calibration) -> StepTimes | None:
    """Drafting time for each token of a draft, by sequences; None where drafting took no time."""
    by_concurrency = defaultdict(list)
    for point in calibration.points:
        if point.num_speculative_tokens:
            by_concurrency[point.concurrency].append(point.round.draft_s / point.num_speculative_tokens)
    knots: list[tuple[int, float]] = []
    for concurrency, seconds in sorted(by_concurrency.items()):
        knots.append((concurrency, max(median(seconds), knots[-1][1] if knots else 0.0)))
    if not knots or knots[-1][1] < _MIN_DRAFT_S:
        return None
    return StepTimes(knots=tuple(knots) if knots[0][0] == 1 else ((1, knots[0][1]), *knots))
