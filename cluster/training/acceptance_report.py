"""What a measurement of acceptance found: as JSON, beside the weights, and in the model card."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from cluster.engine.drafters.draft_source import DRAFT_FILE
from cluster.engine.model_checks import read_json
from cluster.errors import ConfigError
from cluster.training.acceptance import TEMPERATURES, Acceptance
from cluster.training.card import markdown_table, with_acceptance
from cluster.training.coupling import Coupling
from cluster.training.export import CARD_FILE, HEAD_FILE, replace_file, write_about
from cluster.training.questions import HUMAN_EVAL

MT_BENCH = ("writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities")
TOTAL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureReport:
    """What was found.

    Attributes:
        draft: the draft model's folder.
        target: id of the target.
        num_speculative_tokens: guesses in every round.
        max_tokens: of each answer.
        counts: acceptance by category and temperature.
        coupling: coupled rule against ratio rule; None for a head, where it is not measured.
        num_skipped: turns that were too long for the target.
        duration_s: of the measurement.
    """

    draft: Path
    target: str
    num_speculative_tokens: int
    max_tokens: int
    counts: Mapping[tuple[str, float], Acceptance]
    coupling: Coupling | None
    num_skipped: int
    duration_s: float

    @property
    def categories(self) -> list[str]:
        """Measured categories, MT-bench's own first, HumanEval last."""
        found = {category for category, _ in self.counts}
        first = [name for name in MT_BENCH if name in found]
        last = [HUMAN_EVAL] if HUMAN_EVAL in found else []
        return [*first, *sorted(found - set(first) - set(last)), *last]

    def total(self, temperature: float, categories: tuple[str, ...] | None = None) -> Acceptance:
        """All texts of one temperature, or those of some categories."""
        names = self.categories if categories is None else categories
        return sum(
            (self.counts[name, temperature] for name in names if (name, temperature) in self.counts), Acceptance()
        )

    def rows(self) -> list[tuple[str, Acceptance, Acceptance]]:
        """Name, acceptance at temperature 0 and at 1: categories, MT-bench together, everything."""
        rows = [(name, self._of(name, 0.0), self._of(name, 1.0)) for name in self.categories]
        groups = {"mt-bench": MT_BENCH, TOTAL: None} if set(MT_BENCH) & set(self.categories) else {TOTAL: None}
        return rows + [(name, self.total(0.0, group), self.total(1.0, group)) for name, group in groups.items()]

    def _of(self, category: str, temperature: float) -> Acceptance:
        return self.counts.get((category, temperature), Acceptance())

    def as_json(self) -> dict[str, object]:
        """As JSON values."""
        return {
            "draft": str(self.draft),
            "target": self.target,
            "max_tokens": self.max_tokens,
            **self.summary(),
            "num_skipped": self.num_skipped,
            "duration_s": round(self.duration_s, 1),
        }

    def summary(self) -> dict[str, object]:
        """What goes beside the weights."""
        *categories, (_, greedy, sampled) = self.rows()
        coupling = self.coupling
        return {
            "num_speculative_tokens": self.num_speculative_tokens,
            "alpha_t0": round(greedy.rate, 4),
            "alpha_t1": round(sampled.rate, 4),
            "per_category": {name: {"t0": _values(t0), "t1": _values(t1)} for name, t0, t1 in categories},
            "all": {"t0": _values(greedy), "t1": _values(sampled)},
            "coupling": coupling and {**asdict(coupling), "share": round(coupling.share, 4)},
        }


def write_acceptance(report: MeasureReport) -> None:
    """Put the numbers into the card and the JSON file of the draft model or head.

    Raises:
        ConfigError: the folder was not made by `outrider train`.
    """
    name = next((name for name in (DRAFT_FILE, HEAD_FILE) if (report.draft / name).is_file()), None)
    if name is None:
        allowed = "only for a folder made by `outrider train`"
        raise ConfigError(field="--write", value=str(report.draft), allowed=allowed)
    rates = [report.total(temperature).next_rate for temperature in TEMPERATURES]
    about = read_json(report.draft, name) or {}
    about |= {"acceptance": report.summary(), "acceptance_rate": round(sum(rates) / len(rates), 3)}
    card = report.draft / CARD_FILE
    text = card.read_text("utf-8") if card.exists() else f"# Draft model for {report.target}\n"
    replace_file(card, with_acceptance(text, _card_section(report)).encode())
    write_about(report.draft / name, about)


def _card_section(report: MeasureReport) -> str:
    headings = ["category"]
    for temperature in TEMPERATURES:
        headings += [f"{name}, T = {temperature:g}" for name in ("alpha", "mean length", "drafted")]
    rows = [[name, *_cells(greedy), *_cells(sampled)] for name, greedy, sampled in report.rows()]
    num_texts = report.total(TEMPERATURES[0]).num_texts
    return f"""\
Measured in the engine: {report.num_speculative_tokens} guesses in every round, {num_texts:,} answers of at most
{report.max_tokens} tokens at each temperature, to questions of Spec-Bench (those of MT-bench by their own categories)
and HumanEval. Alpha is accepted / drafted; the mean length counts the target's own token.

{markdown_table(headings, rows)}
{_coupling_section(report.coupling)}"""


def _coupling_section(coupling: Coupling | None) -> str:
    if coupling is None:
        return ""
    return f"""
One guess at T = 1, on {coupling.num_pairs:,} pairs of full distributions and {coupling.num_draws:,} draws: the coupled
rule accepts {coupling.coupled_rate:.3f}, the ratio rule {coupling.ratio_rate:.3f}, which is the most that any rule can.
That is {coupling.share:.2f} of it.
"""


def _cells(counts: Acceptance) -> tuple[str, str, str]:
    return f"{counts.rate:.3f}", f"{counts.mean_length:.2f}", f"{counts.num_draft_tokens:,}"


def _values(counts: Acceptance) -> dict[str, float]:
    return {
        "alpha": round(counts.rate, 4),
        "mean_acceptance_length": round(counts.mean_length, 3),
        **{name: value for name, value in asdict(counts).items() if name != "num_cut_drafts"},
    }
