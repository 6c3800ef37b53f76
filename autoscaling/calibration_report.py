"""The report of a calibration: what a person wants to see of it, as one HTML page with pictures."""

from autoscaling.calibration_analysis import Cells, best_fixed, cells, speed_up, warnings
from autoscaling.calibration_charts import breakdown_section, prediction_section, workload_section
from autoscaling.report import Section, line_chart, page, paragraph, table, warning
from cluster.engine.calibration import Calibration


def calibration_page(calibration: Calibration) -> str:
    """One self-contained HTML document."""
    sections = [_summary(calibration), _step_times(calibration)]
    if calibration.acceptance:
        sections.append(_acceptance(calibration))
    sections += [workload_section(calibration, workload) for workload in calibration.workloads]
    if calibration.points:
        sections += [breakdown_section(calibration), prediction_section(calibration)]
    return page(f"Calibration of {calibration.model_id}", sections)


def summary_rows(calibration: Calibration) -> list[tuple[str | float, ...]]:
    """A row for each class of text; see `SUMMARY_COLUMNS`."""
    rows: list[tuple[str | float, ...]] = []
    for workload in calibration.workloads:
        of = cells(calibration.points, workload)
        first = min(at for _, at in of)
        best, chosen = best_fixed(of, first), speed_up(of, None, first)
        entries = [entry for entry in calibration.acceptance if entry.workload == workload]
        tries = sum(sum(entry.num_tried) for entry in entries)
        hits = sum(sum(entry.num_accepted) for entry in entries)
        meeting = calibration.crossover.get(workload)
        rows.append(
            (
                workload,
                f"{hits / tries:.2f}" if tries else "-",
                f"{sum(entry.draft_ratio for entry in entries):.0%}" if entries else "-",
                f"{best[1]:.2f} (K = {best[0]})" if best else "-",
                f"{chosen:.2f}" if chosen else "-",
                _above(of) if meeting is None else f"{meeting:.3g}",
            )
        )
    return rows


SUMMARY_COLUMNS = ("class", "alpha", "rounds with a draft", "best fixed speed-up", "auto speed-up", "crossover")
"""Speed-ups are those of the lowest concurrency, against plain decoding."""


def _above(of: Cells) -> str:
    """Drafts pay everywhere, as far as it was measured."""
    measured = [at for _, at in of if best_fixed(of, at) is not None]
    return f"above {max(measured)}" if measured else "-"


def _summary(calibration: Calibration) -> Section:
    machine = calibration.machine
    where = f"{machine.gpu or machine.cpu}, {machine.num_threads} threads on {machine.num_cores} cores"
    blocks = [
        paragraph(
            f"{calibration.model_id} in {calibration.dtype}, drafts from {calibration.drafter}, on {where}. "
            f"{calibration.made_at}."
        )
    ]
    if not calibration.is_complete:
        blocks.append(warning("The sweep was interrupted: cells are missing. `outrider calibrate --resume` goes on."))
    blocks += [warning(text) for text in warnings(calibration)]
    if calibration.points:
        blocks.append(table(SUMMARY_COLUMNS, summary_rows(calibration)))
        blocks.append(
            paragraph(
                "alpha: chance that a draft token is accepted after those before it. Speed-up: tokens per second over "
                "those of plain decoding, at the lowest concurrency. Crossover: the concurrency from which on no fixed "
                "K beats plain decoding."
            )
        )
    return Section(heading="Summary", blocks=tuple(blocks))


def _step_times(calibration: Calibration) -> Section:
    times = calibration.step_times
    chart = line_chart(
        {"forward pass": [(rows, 1e3 * seconds) for rows, seconds in times.knots]},
        x_label="rows",
        y_label="ms",
        title="Time of a forward pass by its rows, without context",
        log_x=True,
    )
    text = (
        f"Each 1000 KV entries that are read add {1e6 * times.context_s:.3g} ms; outside the pass a sequence takes "
        f"{1e6 * times.sequence_s:.3g} us, and a draft token {1e6 * times.draft_row_s:.3g} us."
    )
    return Section(heading="Step times", blocks=(chart, paragraph(text)))


def _acceptance(calibration: Calibration) -> Section:
    series = {
        f"{entry.workload}, {entry.source}": list(enumerate(entry.per_position, start=1))
        for entry in calibration.acceptance
        if entry.per_position
    }
    blocks = [
        line_chart(
            series,
            x_label="position in the draft",
            y_label="share accepted",
            title="Acceptance by position, given that all before it were accepted",
        ),
        table(
            ("class", "source", "alpha", "accepted / drafted", "MAL of a draft", "drafts"),
            [
                (
                    entry.workload,
                    entry.source,
                    entry.conditional_rate,
                    entry.acceptance_rate,
                    entry.mean_acceptance_length,
                    entry.num_drafts,
                )
                for entry in calibration.acceptance
            ],
        ),
    ]
    if calibration.estimates:
        blocks += _estimates(calibration)
    return Section(heading="Acceptance", blocks=tuple(blocks))


def _estimates(calibration: Calibration) -> list[str]:
    bins = calibration.estimates
    total = sum(each.num_tokens for each in bins)
    error = sum(each.num_tokens * abs(each.predicted - each.observed) for each in bins) / total
    chart = line_chart(
        {
            "observed": [(each.predicted, each.observed) for each in bins],
            "perfect": [(0.0, 0.0), (1.0, 1.0)],
        },
        x_label="estimated chance that a draft token is accepted",
        y_label="share accepted",
        title="Estimates of acceptance: predicted against observed",
    )
    return [chart, paragraph(f"Expected calibration error {error:.3f}, over {total} draft tokens.")]
