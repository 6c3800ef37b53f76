"""How long does a simulated hour of a thousand replicas take on one core?

    python -m tests.benchmarks.simulate_speed [--duration 3600]

Processor time is what is promised (other work on the machine does not count); wall time stands beside it.
"""

import argparse
import json
import time
from dataclasses import asdict, replace

from rich.console import Console
from rich.table import Table

from autoscaling.simulation.scenarios import find_scenario
from autoscaling.simulation.simulator import simulate
from tests.benchmarks.environment import load_average, read_environment

LIMIT_S = 120.0


def main() -> None:
    """Run it, print a table and one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--duration", type=float, default=3600.0, help="simulated seconds")
    scenario = replace(find_scenario("cluster-1000"), duration_s=parser.parse_args().duration)
    (mode,) = scenario.make_modes()
    load_before = load_average()
    began_s, began_cpu_s = time.monotonic(), time.process_time()
    outcome = simulate(scenario.plant(), mode)
    cpu_s, wall_s = time.process_time() - began_cpu_s, time.monotonic() - began_s
    figures = {
        "processor_s": cpu_s,
        "wall_s": wall_s,
        "simulated_s": scenario.duration_s,
        "num_replicas": scenario.num_replicas,
        "num_requests": outcome.num_arrived,
        "output_tokens": outcome.output_tokens,
        "processor_us_per_request": 1e6 * cpu_s / outcome.num_arrived,
        "limit_s": LIMIT_S,
        "is_met": cpu_s <= LIMIT_S * scenario.duration_s / 3600,
    }
    table = Table("figure", "value")
    for name, value in figures.items():
        table.add_row(name, f"{value:,.6g}" if not isinstance(value, bool) else str(value))
    Console().print(table)
    print(json.dumps({"benchmark": "simulate_speed", **figures, **asdict(read_environment(load_before))}))


if __name__ == "__main__":
    main()
