"""The model card that lies beside a draft model's weights. Pure text."""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cluster.training.corpus import DESCRIPTION
from cluster.training.held_out import HeldOut
from cluster.training.shards import SourceCount

ACCEPTANCE_TITLE = "## Acceptance"
NOT_MEASURED = "Not measured yet: `outrider train measure --draft DIR --target TARGET --write` fills this in."


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """What a card says about how weights were trained, whatever they are.

    Attributes:
        target: id of the target.
        num_columns: tokens that they can guess.
        vocab_size: of the target.
        num_parameters: trained ones.
        num_bytes: size of all tensors.
        sources: what they learnt from, held-out text included.
        num_training_tokens: seen in training, repetitions and padding counted.
        num_steps: of the optimiser.
        seed: of the run.
        num_held_out_tokens: labelled tokens of the held-out text.
        command: that makes them again.
    """

    target: str
    num_columns: int
    vocab_size: int
    num_parameters: int
    num_bytes: int
    sources: Sequence[SourceCount]
    num_training_tokens: int
    num_steps: int
    seed: int
    num_held_out_tokens: int
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainFacts(RunFacts):
    """What a card says about how a draft model was made.

    Attributes:
        start_layers: the target's layers that its own started from.
        num_shared_layers: the target's first layers that stand before them.
        held_out: how near it is to the target on text of the same kind that it did not learn from.
    """

    start_layers: tuple[int, ...]
    num_shared_layers: int
    held_out: HeldOut


def render_card(facts: TrainFacts) -> str:
    """The whole card, acceptance still open."""
    held_out = facts.held_out
    layers = f"{len(facts.start_layers)}, started from layers {', '.join(map(str, facts.start_layers))} of the target"
    num_shared = facts.num_shared_layers
    return f"""\
# Draft model for {facts.target}

A Llama of {num_shared + len(facts.start_layers)} layers that guesses what {facts.target} writes next. On its own it is
no use: embedding, head and {num_shared} layers are the target's. The target checks its guesses, and alone decides on
the text.

| | |
| --- | --- |
| trained weights | {facts.num_parameters:,}, bfloat16, {facts.num_bytes / 1e6:.1f} MB |
| layers of the target, as they are | the first {num_shared} |
| trained layers behind them | {layers} |
| head | {facts.num_columns:,} of the target's {facts.vocab_size:,} tokens, the likeliest in the training text |
| licence | as the target's, from whose weights it was made |

## Data

The target wrote the training text itself, at temperatures 0, 0.7 and 1; the labels are its own distributions. Prompts
come from:

{data_table(facts.sources)}

Spec-Bench and HumanEval were not read: neither their problems nor packages that hold them.

## Training

Cross-entropy to the target's likeliest 20 tokens at each place and all others together, AdamW, {facts.num_steps:,}
steps, {facts.num_training_tokens:,} tokens (repetitions, prompts and padding counted), seed {facts.seed}. Made again by

    {facts.command}

Held-out text of the same kind ({facts.num_held_out_tokens:,} tokens), one guess at each place:

| | |
| --- | --- |
| same likeliest token (temperature 0) | {held_out.same_top_ratio:.3f} |
| sum of min(p, q) over the target's 20 likeliest tokens (temperature 1) | {held_out.overlap_ratio:.3f} |
| cross-entropy | {held_out.loss:.3f} nats |

{ACCEPTANCE_TITLE}

{NOT_MEASURED}
"""


def with_acceptance(card: str, body: str) -> str:
    """The card with `body` as its section on acceptance; the other sections stay."""
    section = f"{ACCEPTANCE_TITLE}\n\n{body.strip()}\n"
    found = re.search(rf"^{ACCEPTANCE_TITLE}$.*?(?=^## |\Z)", card, re.MULTILINE | re.DOTALL)
    if found is None:
        return f"{card.rstrip()}\n\n{section}"
    rest = card[found.end() :]
    return card[: found.start()] + section + (f"\n{rest}" if rest else "")


def markdown_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose first column is text and whose others are numbers."""
    rule = ["---", *["---:"] * (len(headings) - 1)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (headings, rule, *rows))


def data_table(sources: Sequence[SourceCount]) -> str:
    """What the text is made of, by source."""
    rows = [(name, f"{texts:,}", f"{tokens:,}") for name, (texts, tokens) in _grouped(sources).items()]
    total = ("all", f"{sum(c.num_texts for c in sources):,}", f"{sum(c.num_tokens for c in sources):,}")
    return markdown_table(("source, and its licence", "texts", "tokens written"), [*rows, total])


def _grouped(sources: Sequence[SourceCount]) -> Mapping[str, tuple[int, int]]:
    """Texts and tokens by row: package descriptions of one licence share one."""
    totals: dict[tuple[str, str, str], list[int]] = defaultdict(lambda: [0, 0])
    packages: dict[tuple[str, str, str], set[str]] = defaultdict(set)
    for count in sources:
        if count.source is None:
            key = ("texts", "not recorded", "not recorded")
        elif count.source.name.startswith(DESCRIPTION):
            key = (count.source.use, "package descriptions", count.source.licence)
            packages[key].add(count.source.name.removeprefix(DESCRIPTION))
        else:
            key = (count.source.use, count.source.name, count.source.licence)
        totals[key][0] += count.num_texts
        totals[key][1] += count.num_tokens
    rows = sorted(totals.items(), key=lambda item: (item[0][1] == "package descriptions", -item[1][1]))
    return {_row_name(key, sorted(packages[key])): (texts, tokens) for key, (texts, tokens) in rows}


def _row_name(key: tuple[str, str, str], packages: Sequence[str]) -> str:
    use, name, licence = key
    named = f"{name} of {', '.join(packages)}" if packages else name
    return f"{use}: {named} ({licence})"
