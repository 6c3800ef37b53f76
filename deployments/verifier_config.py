"""Settings of a verifier replica, and what it may hold in each role."""

from dataclasses import dataclass, field

from cluster.config import DraftConfig, EngineConfig
from cluster.errors import ConfigError, check_range
from cluster.telemetry.cost import CostConfig
from cluster.telemetry.tracing_config import TracingConfig
from cluster.types import Role
from deployments.admission import AdmissionConfig
from deployments.layout import DrafterMode

MAX_STREAM_INTERVAL_S = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleSeats:
    """Most running sequences of a replica, by role.

    Attributes:
        speculative: while it drafts.
        batch: while it does not.
    """

    speculative: int = 16
    batch: int = 128

    def __post_init__(self) -> None:
        """Refuse values out of range."""
        check_range("max_num_seqs of role speculative", self.speculative, 1, 4096)
        check_range("max_num_seqs of role batch", self.batch, 1, 4096)

    def of(self, role: Role) -> int:
        """Those of a role."""
        return self.batch if role is Role.BATCH else self.speculative

    def check(self, max_num_batched_tokens: int) -> None:
        """Refuse more sequences than a round has rows.

        Raises:
            ConfigError: names the engine's setting and the least that it must be.
        """
        most = max(self.speculative, self.batch)
        if most > max_num_batched_tokens:
            raise ConfigError(
                field="engine.max_num_batched_tokens",
                value=max_num_batched_tokens,
                allowed=f"at least {most}, the sequences that a replica may hold in one of its roles",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifierConfig:
    """Settings of a verifier replica.

    Attributes:
        engine: the engine's own.
        admission: bounds of the queue.
        stream_interval_s: longest time between two items of a stream, reached when many streams run.
        ping_timeout_s: a round that takes longer makes the replica unhealthy.
        drafter: who drafts; `auto` is measured at start-up.
        draft: the draft model, resolved: `draft.model` is None only where there is none.
        num_verifiers: replicas of this deployment, for sharing a node's cores.
        num_drafters: drafter replicas, for the same.
        max_num_seqs_by_role: most running sequences in each role; None takes the engine's in both, and no KV tax.
        cost: prices of what a replica holds.
        tracing: where spans go; None for no traces.
        ray_metrics: copy metrics to Ray's.
    """

    engine: EngineConfig = field(default_factory=EngineConfig)
    admission: AdmissionConfig = field(default_factory=AdmissionConfig)
    stream_interval_s: float = 0.3
    ping_timeout_s: float = 15.0
    drafter: DrafterMode = "ngram"
    draft: DraftConfig = field(default_factory=DraftConfig)
    num_verifiers: int = 1
    num_drafters: int = 1
    max_num_seqs_by_role: RoleSeats | None = None
    cost: CostConfig = field(default_factory=CostConfig)
    tracing: TracingConfig | None = None
    ray_metrics: bool = True

    def __post_init__(self) -> None:
        """Refuse values out of range, or that contradict each other."""
        if not 0 <= self.stream_interval_s <= MAX_STREAM_INTERVAL_S:
            raise ConfigError(
                field="stream_interval_s", value=self.stream_interval_s, allowed=f"0 to {MAX_STREAM_INTERVAL_S} seconds"
            )
        if self.max_num_seqs_by_role is not None:
            self.max_num_seqs_by_role.check(self.engine.max_num_batched_tokens)

    def max_num_seqs(self, role: Role) -> int:
        """Most running sequences in a role."""
        return self.engine.max_num_seqs if self.max_num_seqs_by_role is None else self.max_num_seqs_by_role.of(role)
