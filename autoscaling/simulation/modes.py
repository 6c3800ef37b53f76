"""Ways to run the same cluster, to be compared with each other."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from autoscaling.pool_config import PoolConfig
from autoscaling.simulation.rates import Drafting
from cluster.errors import ConfigError
from cluster.routing.policies import PolicyName

SEED_GUARD = 32
"""Active sequences at which the seed documents stop drafting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """One way.

    Attributes:
        name: in reports and scenario files.
        pools: of the production controller.
        drafting: in role speculative.
        policy: of the production router.
        num_speculative: replicas that are pinned to role speculative; None where the controller decides.
        text: what it is, in a few words.
    """

    name: str
    pools: PoolConfig
    drafting: Drafting
    policy: PolicyName = "learned"
    num_speculative: int | None = None
    text: str


def _dynamic(pools: PoolConfig, num_tokens: int, num_replicas: int) -> Mode:
    return Mode(
        name="dynamic",
        pools=replace(pools, mode="dynamic"),
        drafting=Drafting(num_speculative_tokens=num_tokens),
        text="the controller moves replicas between two pools; draft lengths by the budget",
    )


def _speculative(pools: PoolConfig, num_tokens: int, num_replicas: int) -> Mode:
    return Mode(
        name="speculative",
        pools=replace(pools, mode="speculative"),
        drafting=Drafting(num_speculative_tokens=num_tokens),
        text="all replicas speculative; draft lengths by the budget",
    )


def _batch(pools: PoolConfig, num_tokens: int, num_replicas: int) -> Mode:
    return Mode(
        name="batch",
        pools=replace(pools, mode="batch"),
        drafting=Drafting(mode="off"),
        text="all replicas batch; nobody drafts",
    )


def _static(pools: PoolConfig, num_tokens: int, num_replicas: int) -> Mode:
    return Mode(
        name="static",
        pools=replace(pools, mode="dynamic"),
        drafting=Drafting(mode="fixed", num_speculative_tokens=num_tokens),
        policy="rules",
        num_speculative=max(1, num_replicas // 2),
        text=f"the seed documents' two pools, half and half, with their five rules and a fixed K of {num_tokens}",
    )


def _guard(pools: PoolConfig, num_tokens: int, num_replicas: int) -> Mode:
    return Mode(
        name="guard",
        pools=replace(pools, mode="speculative", speculative_max_num_seqs=pools.batch_max_num_seqs),
        drafting=Drafting(mode="fixed", num_speculative_tokens=num_tokens, guard=SEED_GUARD),
        text=f"one pool with the seats of batch, a fixed K of {num_tokens} below {SEED_GUARD} sequences and none above",
    )


def _one_pool(pools: PoolConfig, num_tokens: int, num_replicas: int) -> Mode:
    return Mode(
        name="one-pool",
        pools=replace(pools, mode="speculative", speculative_max_num_seqs=pools.batch_max_num_seqs),
        drafting=Drafting(num_speculative_tokens=num_tokens),
        text="one pool with the seats of batch; draft lengths by the budget",
    )


_MAKERS: dict[str, Callable[[PoolConfig, int, int], Mode]] = {
    "dynamic": _dynamic,
    "speculative": _speculative,
    "batch": _batch,
    "static": _static,
    "guard": _guard,
    "one-pool": _one_pool,
}

MODE_NAMES = tuple(_MAKERS)


def make_mode(name: str, pools: PoolConfig, *, num_speculative_tokens: int, num_replicas: int) -> Mode:
    """A mode by name.

    Args:
        name: one of `MODE_NAMES`.
        pools: the cluster's settings, which the mode changes in part.
        num_speculative_tokens: K, the longest draft.
        num_replicas: of the cluster.

    Raises:
        ConfigError: there is no such mode.
    """
    if name not in _MAKERS:
        raise ConfigError(field="modes", value=name, allowed="one of " + ", ".join(MODE_NAMES))
    return _MAKERS[name](pools, num_speculative_tokens, num_replicas)
