"""Settings of the pools: sizes, objectives and how quickly roles and replica counts follow the load."""

from dataclasses import dataclass
from typing import Any, Literal, get_args

from cluster.errors import ConfigError, check_range
from cluster.types import Role

PoolMode = Literal["dynamic", "speculative", "batch"]

MAX_REPLICAS = 1 << 16
METRICS_INTERVAL_S = 1.0
LOOK_BACK_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolConfig:
    """How verifier replicas are divided between the two roles, and how many of them there are.

    Attributes:
        mode: dynamic moves replicas between the roles as the load changes; the others fix the role of all.
        speculative_max_num_seqs: most sequences in a round of a speculative replica.
        batch_max_num_seqs: most sequences in a round of a batch replica.
        min_speculative: fewest speculative replicas, while there are two replicas or more.
        max_speculative: most of them; None for no limit.
        min_batch: fewest batch replicas, while there are two replicas or more; `min_speculative` comes first.
        ttft_slo_s: objective for the time to the first token of interactive work.
        tpot_slo_s: objective for its time per output token.
        heartbeat_s: how often a replica reports.
        stale_after_s: a replica that was not heard of for so long is not counted and never chosen.
        hold_s: how long another split has to be the better one before a replica moves.
        cooldown_s: how long after a move none goes the other way; longer where that happens under the same load.
        margin_ratio: another split has to promise so much more tokens, as a share.
        move_timeout_s: a replica that has not changed its role by then is asked no more.
        leave_alone_s: how long such a replica is not chosen again.
        dry_run: decide and say so, but move nothing.
        min_replicas: fewest verifier replicas; None, as `max_replicas`, where their number is fixed.
        max_replicas: most of them.
        target_load_ratio: share of what replicas can carry within the objectives that the plan loads them with.
        scale_up_hold_s: how long the load has to ask for more replicas.
        scale_down_hold_s: how long the load has to do with fewer of them before one goes.
        num_speculative_tokens: most draft tokens of a sequence and round that predictions reckon with.
        assumed_acceptance_rate: what predictions take while nothing was drafted.
    """

    mode: PoolMode = "dynamic"
    speculative_max_num_seqs: int = 16
    batch_max_num_seqs: int = 128
    min_speculative: int = 1
    max_speculative: int | None = None
    min_batch: int = 0
    ttft_slo_s: float = 2.0
    tpot_slo_s: float = 0.1
    heartbeat_s: float = 0.5
    stale_after_s: float = 3.0
    hold_s: float = 1.0
    cooldown_s: float = 5.0
    margin_ratio: float = 0.05
    move_timeout_s: float = 5.0
    leave_alone_s: float = 60.0
    dry_run: bool = False
    min_replicas: int | None = None
    max_replicas: int | None = None
    target_load_ratio: float = 0.8
    scale_up_hold_s: float = 2.0
    scale_down_hold_s: float = 60.0
    num_speculative_tokens: int = 7
    assumed_acceptance_rate: float = 0.6

    def __post_init__(self) -> None:
        """Refuse values out of range, naming field, value and range."""
        if self.mode not in get_args(PoolMode):
            raise ConfigError(field="pools.mode", value=self.mode, allowed="one of " + ", ".join(get_args(PoolMode)))
        self._check_sizes()
        self._check_times()
        if not 0 < self.target_load_ratio <= 1:
            raise ConfigError(
                field="pools.target_load_ratio", value=self.target_load_ratio, allowed="a share above 0, at most 1"
            )
        for name in ("margin_ratio", "assumed_acceptance_rate"):
            check_range(f"pools.{name}", getattr(self, name), 0, 1, kind="a share")
        check_range("pools.num_speculative_tokens", self.num_speculative_tokens, 0, 64)

    def _check_sizes(self) -> None:
        for name in ("speculative_max_num_seqs", "batch_max_num_seqs"):
            check_range(f"pools.{name}", getattr(self, name), 1, 4096)
        for name in ("min_speculative", "min_batch"):
            check_range(f"pools.{name}", getattr(self, name), 0, MAX_REPLICAS)
        if self.max_speculative is not None:
            check_range("pools.max_speculative", self.max_speculative, self.min_speculative, MAX_REPLICAS)
        if self.min_replicas is None or self.max_replicas is None:
            if self.min_replicas is not self.max_replicas:
                raise ConfigError(
                    field="pools.max_replicas",
                    value=self.max_replicas,
                    allowed="given where min_replicas is, and only there",
                )
            return
        check_range("pools.min_replicas", self.min_replicas, 0, MAX_REPLICAS)
        check_range("pools.max_replicas", self.max_replicas, max(self.min_replicas, 1), MAX_REPLICAS)

    def _check_times(self) -> None:
        for name in ("hold_s", "cooldown_s", "leave_alone_s", "scale_up_hold_s", "scale_down_hold_s"):
            check_range(f"pools.{name}", getattr(self, name), 0, 86_400, kind="seconds")
        self._check_at_least("ttft_slo_s", 0.001, "a millisecond")
        self._check_at_least("tpot_slo_s", 0.001, "a millisecond")
        self._check_at_least("heartbeat_s", 0.05, "0.05")
        self._check_at_least("stale_after_s", 2 * self.heartbeat_s, "two heartbeats")
        self._check_at_least("move_timeout_s", 2 * self.heartbeat_s, "two heartbeats")

    def _check_at_least(self, name: str, low: float, words: str) -> None:
        value = getattr(self, name)
        if not low <= value <= 3600:
            raise ConfigError(field=f"pools.{name}", value=value, allowed=f"seconds from {words} to 3600")

    def max_num_seqs(self, role: Role) -> int:
        """Most sequences in a round of a replica in this role."""
        return self.speculative_max_num_seqs if role is Role.SPECULATIVE else self.batch_max_num_seqs

    def initial_role(self) -> Role:
        """What a replica does before it has heard of the controller."""
        return Role.BATCH if self.mode == "batch" else Role.SPECULATIVE

    def serve_config(self) -> dict[str, Any] | None:
        """Serve's `autoscaling_config` of the verifiers; None where their number is fixed.

        The plan has its own delays, so Serve's are zero.
        """
        if self.min_replicas is None or self.max_replicas is None:
            return None
        return {
            "min_replicas": self.min_replicas,
            "max_replicas": self.max_replicas,
            "initial_replicas": max(self.min_replicas, 1),
            "upscale_delay_s": 0.0,
            "downscale_delay_s": 0.0,
            "metrics_interval_s": METRICS_INTERVAL_S,
            "look_back_period_s": LOOK_BACK_S,
            "policy": {"policy_function": "autoscaling.serve_policy:ReplicaPlanPolicy"},
        }
