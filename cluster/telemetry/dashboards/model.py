"""What a dashboard is made of: queries in panels, panels in rows."""

from dataclasses import dataclass
from enum import StrEnum


class Needs(StrEnum):
    """What has to be there before a query has data; a test runs each query where that is so.

    - traffic: a running application that answers requests.
    - pools: two verifiers or more, hence a controller.
    - moves: a change of role within the time shown.
    - drafter: a drafter actor in use.
    - price: prices in the configuration.
    - energy: a GPU whose energy can be read.
    - trouble: something that went wrong, such as a refused request.
    """

    TRAFFIC = "traffic"
    POOLS = "pools"
    MOVES = "moves"
    DRAFTER = "drafter"
    PRICE = "price"
    ENERGY = "energy"
    TROUBLE = "trouble"


class PanelKind(StrEnum):
    """Visualisations in use; the values are Grafana's plugin ids."""

    TIME_SERIES = "timeseries"
    STAT = "stat"
    TABLE = "table"
    STATES = "state-timeline"
    BARS = "bargauge"


class Unit(StrEnum):
    """Units in use; the values are Grafana's."""

    COUNT = "short"
    SHARE = "percentunit"
    SECONDS = "s"
    REQUESTS_PER_S = "reqps"
    TOKENS_PER_S = "suffix: tokens/s"
    PER_S = "suffix:/s"
    TOKENS = "suffix: tokens"
    USD = "currencyUSD"
    JOULES = "joule"
    WATTS = "watt"
    BITS = "suffix: bits"
    FACTOR = "suffix:x"


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One PromQL query.

    Attributes:
        expr: the query, with Grafana's `$job`, `$__rate_interval` and `$__range`.
        legend: name of a series, with labels as {{label}}; in tables the name of the values' column.
        needs: what has to be there before it has data.
        unit: in tables of several queries, that of this one's values; None takes the panel's.
    """

    expr: str
    legend: str
    needs: Needs = Needs.TRAFFIC
    unit: Unit | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """From this value on a panel has this colour.

    Attributes:
        value: None for the lowest step.
        color: a colour of Grafana's palette.
    """

    value: float | None
    color: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One panel.

    Attributes:
        title: what it shows.
        unit: of its values.
        queries: at least one.
        description: how to read it, and what to do when it looks wrong.
        kind: how it is drawn.
        width: of 24 columns.
        height: in grid units.
        stacked: whether series are drawn on top of each other.
        lowest: left or lower end of the axis; None for automatic.
        highest: its other end.
        steps: colours by value; empty for one colour.
        names: value, text to show for it, and colour.
        labels: label and heading of a table's first columns; the queries' values follow, other labels are left out.
        latest_first: a table's order: smallest values first, as of ages; otherwise largest first.
    """

    title: str
    unit: Unit
    queries: tuple[Query, ...]
    description: str
    kind: PanelKind = PanelKind.TIME_SERIES
    width: int = 8
    height: int = 8
    stacked: bool = False
    lowest: float | None = None
    highest: float | None = None
    steps: tuple[Step, ...] = ()
    names: tuple[tuple[str, str, str], ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    latest_first: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Panels under one heading.

    Attributes:
        title: the heading.
        panels: from left to right, line by line.
    """

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dashboard:
    """One dashboard.

    Attributes:
        uid: its address in Grafana, and its file's name.
        title: its name.
        description: which question it answers.
        rows: from top to bottom.
    """

    uid: str
    title: str
    description: str
    rows: tuple[Row, ...]

    @property
    def panels(self) -> tuple[Panel, ...]:
        """All panels."""
        return tuple(panel for row in self.rows for panel in row.panels)


def stat(
    title: str, unit: Unit, expr: str, description: str, *, steps: tuple[Step, ...] = (), needs: Needs = Needs.TRAFFIC
) -> Panel:
    """A panel that shows one number."""
    return Panel(
        title=title, unit=unit, queries=(Query(expr=expr, legend=title, needs=needs),), description=description,
        kind=PanelKind.STAT, width=4, height=4, steps=steps,
    )  # fmt: skip


def good_below(warning: float, critical: float) -> tuple[Step, ...]:
    """Green, from `warning` on yellow, from `critical` on red."""
    return (
        Step(value=None, color="green"),
        Step(value=warning, color="yellow"),
        Step(value=critical, color="red"),
    )


def good_above(critical: float, warning: float) -> tuple[Step, ...]:
    """Red, from `critical` on yellow, from `warning` on green."""
    return (
        Step(value=None, color="red"),
        Step(value=critical, color="yellow"),
        Step(value=warning, color="green"),
    )
