"""Pieces of PromQL that panels are made of. Every selector takes the dashboard's choice of `job`."""

JOB = 'job=~"$job"'
WINDOW = "$__rate_interval"
API = 'route=~"/v1/.+"'
"""Requests of clients, without probes and scrapes."""

EVENT_STEP = "15s"
"""How finely events are looked for."""


def pick(name: str, *matchers: str) -> str:
    """A selector: `pick("x", 'role="batch"')`."""
    return f"{name}{{{','.join((JOB, *matchers))}}}"


def total(name: str, *matchers: str, by: str = "") -> str:
    """A gauge, added up over all replicas."""
    return f"{_sum(by)} ({pick(name, *matchers)})"


def rate(name: str, *matchers: str, by: str = "", window: str = WINDOW) -> str:
    """A counter's rise per second, added up over all replicas."""
    return f"{_sum(by)} (rate({pick(name, *matchers)}[{window}]))"


def rise(name: str, *matchers: str, by: str = "") -> str:
    """A counter's rise over the time shown, added up over all replicas."""
    return f"{_sum(by)} (increase({pick(name, *matchers)}[$__range]))"


def ratio(above: str, below: str) -> str:
    """A quotient; no value, rather than a division by 0, where nothing happened."""
    return f"({above}) / (({below}) > 0)"


def zero_without(expr: str) -> str:
    """A query that counts what may never have happened: 0 then."""
    return f"({expr}) or vector(0)"


def quantile(share: float, histogram: str, *matchers: str, by: str = "") -> str:
    """A quantile of a histogram over all replicas."""
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({share:g}, {rate(f'{histogram}_bucket', *matchers, by=labels)})"


def mean(histogram: str, *matchers: str, by: str = "") -> str:
    """The mean of a histogram over all replicas."""
    return ratio(rate(f"{histogram}_sum", *matchers, by=by), rate(f"{histogram}_count", *matchers, by=by))


def mean_in_role(histogram: str, role: str) -> str:
    """The mean of a histogram over the verifiers that have this role now."""
    above, below = (in_role(f"rate({pick(f'{histogram}_{part}')}[{WINDOW}])", role) for part in ("sum", "count"))
    return ratio(f"sum ({above})", f"sum ({below})")


def seconds_since(event: str, by: str) -> str:
    """How long ago a query last had a value, by labels, within the time shown and to within `EVENT_STEP`."""
    return f"time() - max by ({by}) (max_over_time(timestamp({event})[$__range:{EVENT_STEP}]))"


def age(timestamp: str, by: str) -> str:
    """How long ago the latest of the times was that a gauge had within the time shown, by labels."""
    return f"time() - max by ({by}) (max_over_time({pick(timestamp)}[$__range]))"


def in_role(expr: str, role: str) -> str:
    """Only the series of verifiers that have this role now."""
    now = pick("outrider_role", f'role="{role}"')
    return f"({expr}) and on (job, engine) ({now} == 1)"


def _sum(by: str) -> str:
    return f"sum by ({by})" if by else "sum"
