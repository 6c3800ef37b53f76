"""What `outrider simulate` can be asked for: a cluster, its traffic, and the modes to compare."""

from dataclasses import dataclass, field

from autoscaling.pool_config import PoolConfig
from autoscaling.simulation.calibrated import Check
from autoscaling.simulation.claims import Claim
from autoscaling.simulation.cost import CostModel
from autoscaling.simulation.curves import Curves
from autoscaling.simulation.modes import Mode, make_mode
from autoscaling.simulation.simulator import Plant
from autoscaling.simulation.workload import Source, TrafficClass
from cluster.errors import ConfigError, check_range

DEFAULT_MODES = ("dynamic", "speculative", "batch", "static", "guard", "one-pool")
MAX_REPLICAS, MAX_DURATION_S = 10_000, 7 * 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One scenario.

    Attributes:
        name: as it is asked for.
        text: what it shows, in a sentence.
        cost: of each replica.
        source: of requests.
        classes: of the traffic.
        num_replicas: all alike.
        duration_s: simulated.
        pools: settings of the production controller, with the objectives.
        modes: ways to run the cluster.
        num_speculative_tokens: K, the longest draft.
        seed: the same seed gives the same run.
        prompt_rows: most prompt tokens in a pass.
        num_candidates: replicas that a gateway looks at for a request.
        claims: published figures beside those that follow from the cost model.
        curves: what the cost model says of one replica by its load.
        checks: measured cells beside predicted ones.
    """

    name: str
    text: str
    cost: CostModel
    source: Source
    classes: tuple[TrafficClass, ...]
    num_replicas: int = 8
    duration_s: float = 600.0
    pools: PoolConfig = field(default_factory=PoolConfig)
    modes: tuple[str, ...] = DEFAULT_MODES
    num_speculative_tokens: int = 5
    seed: int = 0
    prompt_rows: int = 2048
    num_candidates: int = 8
    claims: tuple[Claim, ...] = ()
    curves: Curves | None = None
    checks: tuple[Check, ...] = ()

    def __post_init__(self) -> None:
        """Refuse values out of range."""
        check_range("num_replicas", self.num_replicas, 1, MAX_REPLICAS)
        check_range("duration_s", self.duration_s, 1, MAX_DURATION_S, kind="seconds")
        check_range("num_speculative_tokens", self.num_speculative_tokens, 1, 64)
        check_range("prompt_rows", self.prompt_rows, 1, 1 << 20)
        if not self.classes:
            raise ConfigError(field="classes", value=[], allowed="at least one class of requests")

    def plant(self) -> Plant:
        """The cluster, with a gateway for each replica as Serve places one on each node."""
        return Plant(
            cost=self.cost,
            source=self.source,
            classes=self.classes,
            num_replicas=self.num_replicas,
            duration_s=self.duration_s,
            seed=self.seed,
            prompt_rows=self.prompt_rows,
            num_gateways=self.num_replicas,
            num_candidates=self.num_candidates,
            sample_s=max(1.0, self.duration_s / 120),
        )

    def make_modes(self) -> tuple[Mode, ...]:
        """The modes to compare.

        Raises:
            ConfigError: one of them does not exist.
        """
        return tuple(
            make_mode(
                name,
                self.pools,
                num_speculative_tokens=self.num_speculative_tokens,
                num_replicas=self.num_replicas,
            )
            for name in self.modes
        )
