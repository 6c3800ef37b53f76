"""What a replica holds, as Ray says it."""

from deployments.replica_resources import holding_of


def test_a_replica_without_gpus_is_its_cpus() -> None:
    holding = holding_of(0.5, 0.0, [])
    assert (holding.resources.num_cpus, holding.resources.num_gpus, holding.energy) == (0.5, 0.0, None)


def test_gpus_that_nobody_can_read_are_paid_for_all_the_same() -> None:
    holding = holding_of(1.0, 2.0, ["no-such-gpu", "nor-this"])
    assert holding.energy is None
    assert (holding.resources.num_gpus, holding.resources.gpu_names) == (2.0, ())
