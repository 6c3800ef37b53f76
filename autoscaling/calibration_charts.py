"""The parts of a calibration's report that show measured cells: by class of text, by part of a round, as predicted."""

from collections.abc import Mapping

from autoscaling.calibration_analysis import (
    Cells,
    Drafts,
    break_even,
    cells,
    predicted_tokens_per_s,
    round_time_errors,
    speed_up,
)
from autoscaling.report import Section, heat_map, line_chart, paragraph, table
from cluster.engine.calibration import Calibration, Point


def lookahead_name(num_tokens: int | None) -> str:
    """K for people."""
    return "auto" if num_tokens is None else "off" if num_tokens == 0 else f"K = {num_tokens}"


def _lines(of: Cells, value: Mapping[tuple[int | None, int], float]) -> dict[str, list[tuple[float, float]]]:
    """A line over the concurrency for each K."""
    order = sorted({num_tokens for num_tokens, _ in of}, key=lambda k: (k is None, k or 0))
    concurrency = sorted({at for _, at in of})
    return {
        lookahead_name(num_tokens): [(at, value[num_tokens, at]) for at in concurrency if (num_tokens, at) in value]
        for num_tokens in order
    }


def workload_section(calibration: Calibration, workload: str) -> Section:
    """Throughput, TPOT, speed-up and break-even of one class of text."""
    of = cells(calibration.points, workload)
    meeting = calibration.crossover.get(workload)
    marks = {"crossover": meeting} if meeting is not None else {}
    throughput = line_chart(
        _lines(of, {key: point.tokens_per_s for key, point in of.items()}),
        x_label="sequences at once",
        y_label="tokens/s",
        title=f"{workload}: throughput",
        log_x=True,
        lines=marks,
    )
    tpot = line_chart(
        _lines(of, {key: 1e3 * point.tpot_s for key, point in of.items()}),
        x_label="sequences at once",
        y_label="ms per output token",
        title=f"{workload}: TPOT",
        log_x=True,
        lines=marks,
    )
    pictures = (throughput, tpot, *_speed_ups(of, workload))
    return Section(heading=f"Class {workload}", blocks=(*pictures, _break_evens(calibration, of)))


def _speed_ups(of: Cells, workload: str) -> list[str]:
    """A heat map; nothing while only plain decoding was measured."""
    lookaheads = sorted({k for k, _ in of if k != 0}, key=lambda k: (k is None, k or 0))
    concurrency = sorted({at for _, at in of})
    if not lookaheads:
        return []
    chart = heat_map(
        [[speed_up(of, num_tokens, at) for at in concurrency] for num_tokens in lookaheads],
        x_names=[str(at) for at in concurrency],
        y_names=[lookahead_name(num_tokens) for num_tokens in lookaheads],
        x_label="sequences at once",
        y_label="drafts",
        title=f"{workload}: speed-up over plain decoding",
        center=1.0,
    )
    return [chart]


def _break_evens(calibration: Calibration, of: Cells) -> str:
    columns = ("drafts", "sequences at once", "MAL", "break-even MAL", "accepted / drafted", "tokens/s")
    return table(
        columns,
        [
            (
                lookahead_name(point.num_speculative_tokens),
                point.concurrency,
                point.mean_acceptance_length,
                break_even(calibration.step_times, point),
                "-" if point.acceptance_rate is None else point.acceptance_rate,
                point.tokens_per_s,
            )
            for point in of.values()
        ],
    )


def breakdown_section(calibration: Calibration) -> Section:
    """Parts of a round, averaged over the classes of text, by concurrency."""
    blocks = [paragraph("Shares of a decoding round, mean over all classes of text.")]
    for num_tokens in sorted({p.num_speculative_tokens for p in calibration.points}, key=lambda k: (k is None, k or 0)):
        points = [point for point in calibration.points if point.num_speculative_tokens == num_tokens]
        blocks.append(
            line_chart(
                _shares(points),
                x_label="sequences at once",
                y_label="% of a round",
                title=f"Where a round's time goes, drafts {lookahead_name(num_tokens)}",
                log_x=True,
            )
        )
    return Section(heading="Breakdown of a round", blocks=tuple(blocks))


def _shares(points: list[Point]) -> dict[str, list[tuple[float, float]]]:
    has_sampling = any(point.round.sampling_s > 0 for point in points)
    names = ("forward pass", "drafting", "sampling", "rest") if has_sampling else ("forward pass", "drafting", "rest")
    lines: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for concurrency in sorted({point.concurrency for point in points}):
        rounds = [point.round for point in points if point.concurrency == concurrency]
        total_s = sum(each.total_s for each in rounds)
        if total_s <= 0:
            continue
        parts = {
            "forward pass": sum(each.forward_s for each in rounds),
            "drafting": sum(each.draft_s for each in rounds),
            "sampling": sum(each.sampling_s for each in rounds),
        }
        parts["rest"] = max(0.0, total_s - sum(parts.values()))
        for name in names:
            lines[name].append((concurrency, 100 * parts[name] / total_s))
    return lines


def prediction_section(calibration: Calibration) -> Section:
    """How well step times and acceptance foretell what was measured."""
    blocks = [
        paragraph(
            "Tokens per second worked out from step times and acceptance, over those that were measured: 1 is perfect. "
            "Where the engine chooses, the best K is assumed."
        )
    ]
    errors: list[float] = []
    for workload in calibration.workloads:
        of, drafts = cells(calibration.points, workload), Drafts.of(calibration.acceptance, workload)
        ratios = {
            key: predicted_tokens_per_s(calibration, point, drafts) / point.tokens_per_s for key, point in of.items()
        }
        errors += [abs(ratio - 1) for ratio in ratios.values()]
        lookaheads = sorted({k for k, _ in of}, key=lambda k: (k is None, k or 0))
        concurrency = sorted({at for _, at in of})
        blocks.append(
            heat_map(
                [[ratios.get((num_tokens, at)) for at in concurrency] for num_tokens in lookaheads],
                x_names=[str(at) for at in concurrency],
                y_names=[lookahead_name(num_tokens) for num_tokens in lookaheads],
                x_label="sequences at once",
                y_label="drafts",
                title=f"{workload}: predicted / measured",
                center=1.0,
            )
        )
    blocks.append(paragraph(f"Tokens per second: {_error_text(errors)}."))
    blocks.append(
        paragraph(
            f"Round times alone, with the rows and the context that each cell really had: "
            f"{_error_text(round_time_errors(calibration))}."
        )
    )
    return Section(heading="Predicted against measured", blocks=tuple(blocks))


def _error_text(errors: list[float]) -> str:
    return f"mean error {sum(errors) / len(errors):.1%}, largest {max(errors):.1%}, over {len(errors)} cells"
