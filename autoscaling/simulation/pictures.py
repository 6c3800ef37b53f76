"""The report of a simulation as one HTML page."""

from collections.abc import Sequence

from autoscaling.report import Section, bar_chart, line_chart, page, paragraph, table, warning
from autoscaling.simulation.outcome import Outcome
from autoscaling.simulation.scenario import Scenario

COLUMNS = (
    "mode", "requests", "ended", "refused", "tokens/s", "goodput tokens/s", "within SLO", "TTFT p50", "TTFT p95",
    "TPOT p50", "TPOT p95", "MAL", "wasted rows", "arithmetic", "moves", "speculative", "$ per million", "J per token",
)  # fmt: skip
"""Of the comparison of modes."""

NEAR_RATIO = 0.15
"""A prediction within this share of what was measured is good."""


def outcome_row(outcome: Outcome) -> tuple[str, ...]:
    """One row of the comparison."""
    return (
        outcome.mode,
        f"{outcome.num_arrived:,}",
        f"{outcome.num_ended:,}",
        f"{outcome.num_refused:,}",
        f"{outcome.tokens_per_s:,.0f}",
        f"{outcome.goodput_tokens_per_s:,.0f}",
        f"{outcome.slo_ratio:.1%}",
        seconds(outcome.ttft_s.p50),
        seconds(outcome.ttft_s.p95),
        seconds(outcome.tpot_s.p50),
        seconds(outcome.tpot_s.p95),
        "-" if outcome.mean_acceptance_length is None else f"{outcome.mean_acceptance_length:.2f}",
        f"{outcome.wasted_ratio:.1%}",
        f"{outcome.utilisation:.1%}" if outcome.utilisation else "-",
        str(outcome.num_moves),
        f"{outcome.mean_speculative:.1f}",
        f"{outcome.cost_per_million:.2f}" if outcome.cost_per_million else "-",
        f"{outcome.joules_per_token:.2f}" if outcome.joules_per_token else "-",
    )


def seconds(value: float | None) -> str:
    """A time for people."""
    if value is None:
        return "-"
    return f"{value:.2f} s" if value >= 1 else f"{value * 1e3:.1f} ms"


def check_text(scenario: Scenario) -> str:
    """How well the measured cells are predicted, in a sentence."""
    errors = sorted(abs(each.error_ratio) for each in scenario.checks)
    num_near = sum(error <= NEAR_RATIO for error in errors)
    return (
        f"{len(errors)} measured cells: the median error is {errors[len(errors) // 2]:.1%}, the largest "
        f"{errors[-1]:.1%}; {num_near} lie within {NEAR_RATIO:.0%}."
    )


def simulation_page(scenario: Scenario, outcomes: Sequence[Outcome], texts: dict[str, str]) -> str:
    """Everything that a scenario shows.

    Args:
        scenario: what was run.
        outcomes: of its modes.
        texts: what each mode is, by name.
    """
    sections = [_summary(scenario, outcomes, texts)]
    if scenario.claims:
        sections.append(_claims(scenario))
    if scenario.checks:
        sections.append(_checks(scenario))
    if scenario.curves is not None:
        sections.append(_curves(scenario))
    sections += [_time(outcomes), _classes(outcomes), _model(scenario)]
    return page(f"Simulation: {scenario.name}", sections)


def _summary(scenario: Scenario, outcomes: Sequence[Outcome], texts: dict[str, str]) -> Section:
    pools = scenario.pools
    intro = (
        f"{scenario.text}. {scenario.num_replicas} replicas, {scenario.cost.name}; {scenario.duration_s:g} s "
        f"simulated, seed {scenario.seed}. Objectives: first token within {seconds(pools.ttft_slo_s)}, each further "
        f"one within {seconds(pools.tpot_slo_s)}. Goodput counts tokens of requests that kept both, and of bulk work."
    )
    blocks = [paragraph(intro), table(COLUMNS, [outcome_row(each) for each in outcomes])]
    blocks.append(
        bar_chart(
            {each.mode: each.goodput_tokens_per_s for each in outcomes},
            x_label="tokens per second",
            y_label="mode",
            title="Goodput",
        )
    )
    blocks.append(table(("mode", "what it is"), list(texts.items())))
    return Section(heading="Modes compared", blocks=tuple(blocks))


def _claims(scenario: Scenario) -> Section:
    columns = ("topic", "published", "computed", "verdict", "why")
    rows = [(each.topic, each.published, each.computed, each.verdict, each.why) for each in scenario.claims]
    text = "Figures that were published (A and B are two articles), beside those that follow from the cost model below."
    return Section(heading="Published figures", blocks=(paragraph(text), table(columns, rows)))


def _checks(scenario: Scenario) -> Section:
    rows = [
        (
            each.point.workload,
            str(each.point.concurrency),
            "auto" if each.point.num_speculative_tokens is None else str(each.point.num_speculative_tokens),
            each.point.tokens_per_s,
            each.tokens_per_s,
            f"{each.error_ratio:+.1%}",
        )
        for each in scenario.checks
    ]
    text = check_text(scenario)
    note = paragraph(text) if all(abs(each.error_ratio) <= NEAR_RATIO for each in scenario.checks) else warning(text)
    columns = ("workload", "sequences", "K", "measured tokens/s", "predicted tokens/s", "error")
    return Section(heading="Predicted against measured", blocks=(note, table(columns, rows)))


def _curves(scenario: Scenario) -> Section:
    curves = scenario.curves
    assert curves is not None
    axis = "sequences of a replica"
    return Section(
        heading="One replica by its load",
        blocks=(
            line_chart(
                curves.speed_up,
                x_label=axis,
                y_label="tokens per second over plain decoding",
                title=f"A fixed K = {scenario.num_speculative_tokens} pays up to a load, then costs",
                log_x=True,
            ),
            line_chart(
                curves.budget_lengths,
                x_label=axis,
                y_label="draft tokens (K)",
                title="Draft length that the budget chooses",
                log_x=True,
            ),
            line_chart(
                {name: [(x, 1e3 * y) for x, y in points] for name, points in curves.tpot_s.items()},
                x_label=axis,
                y_label="time per token, ms",
                title="Time per token",
                log_x=True,
            ),
            line_chart(curves.tokens_per_s, x_label=axis, y_label="tokens per second", title="Throughput", log_x=True),
        ),
    )


def _time(outcomes: Sequence[Outcome]) -> Section:
    first = outcomes[0]
    blocks = [
        line_chart(
            {"arrivals": [(each.at_s, each.arrivals_per_s) for each in first.samples[1:]]},
            x_label="seconds",
            y_label="requests per second",
            title="Arrivals",
            markers=False,
        )
    ]
    moving = [each for each in outcomes if each.num_moves]
    if moving:
        blocks.append(
            line_chart(
                {each.mode: [(at.at_s, float(at.num_speculative)) for at in each.samples] for each in moving},
                x_label="seconds",
                y_label="replicas",
                title="Replicas of role speculative",
                markers=False,
            )
        )
    for title, label, name in (
        ("Output", "tokens per second", "tokens_per_s"),
        ("Requests that wait for a place", "requests", "num_waiting"),
    ):
        blocks.append(
            line_chart(
                {each.mode: [(at.at_s, float(getattr(at, name))) for at in each.samples[1:]] for each in outcomes},
                x_label="seconds",
                y_label=label,
                title=title,
                markers=False,
            )
        )
    return Section(heading="Over time", blocks=tuple(blocks))


def _classes(outcomes: Sequence[Outcome]) -> Section:
    columns = ("mode", "class", "ended", "within SLO", "TTFT p95", "TPOT p50", "TPOT p95", "accepted / drafted", "MAL")
    rows = [
        (
            outcome.mode,
            each.name,
            f"{each.num_ended:,}",
            "-" if each.slo_ratio is None else f"{each.slo_ratio:.1%}",
            seconds(each.ttft_s.p95),
            seconds(each.tpot_s.p50),
            seconds(each.tpot_s.p95),
            "-" if each.acceptance_rate is None else f"{each.acceptance_rate:.2f}",
            "-" if each.mean_acceptance_length is None else f"{each.mean_acceptance_length:.2f}",
        )
        for outcome in outcomes
        for each in outcome.classes
    ]
    return Section(heading="Classes of requests", blocks=(table(columns, rows),))


def _model(scenario: Scenario) -> Section:
    cost = scenario.cost
    blocks = [paragraph(note) for note in cost.notes]
    blocks.append(
        table(("rows of a pass", "time"), [(str(rows), seconds(time_s)) for rows, time_s in cost.times.knots])
    )
    blocks.append(
        paragraph(
            "Sequences advance at the rate that these times and their expected tokens give, prompts are read in chunks "
            "beside them, and a request takes the KV entries of its whole length when it is admitted. Draft lengths, "
            "roles, routes and the choice of replicas come from the code that serves. A gateway looks at "
            f"{scenario.num_candidates} random replicas of the pool that it wants."
        )
    )
    return Section(heading="Cost model and assumptions", blocks=tuple(blocks))
