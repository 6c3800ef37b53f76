"""The card that lies beside a head's weights. Pure text."""

from dataclasses import dataclass

from cluster.training.card import ACCEPTANCE_TITLE, NOT_MEASURED, RunFacts, data_table, markdown_table
from cluster.training.head_loop import HeldOutSteps

_KINDS = {
    "eagle3": (
        "EAGLE-3 head",
        "One decoder layer that guesses what {target} writes next from hidden states of {layers} of its layers. On its "
        "own it is no use: the embedding is the target's.",
        "All steps of a draft unrolled",
    ),
    "medusa": (
        "Medusa heads",
        "Residual blocks that guess several tokens of {target} at once from its last hidden state. On their own they "
        "are no use: the output matrix is the target's.",
        "All heads at once",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadFacts(RunFacts):
    """What a card says about how a head was made.

    Attributes:
        kind: of head.
        feature_layers: what enters these layers of the target is read; their number is what leaves the last one.
        num_draft_tokens: of a draft, learnt together.
        held_out: how near it is to the target on text of the same kind that it did not learn from.
    """

    kind: str
    feature_layers: tuple[int, ...]
    num_draft_tokens: int
    held_out: HeldOutSteps


def render_head_card(facts: HeadFacts) -> str:
    """The whole card, acceptance still open."""
    title, text, unrolled = _KINDS[facts.kind]
    about = text.format(target=facts.target, layers=len(facts.feature_layers))
    return f"""\
# {title} for {facts.target}

{about} The target checks the guesses, and alone decides on the text.

| | |
| --- | --- |
| trained weights | {facts.num_parameters:,}, bfloat16; {facts.num_bytes / 1e6:.1f} MB with its tables |
| hidden states of the target | what enters layers {", ".join(map(str, facts.feature_layers))} |
| tokens of a draft in training | {facts.num_draft_tokens} |
| can guess | {facts.num_columns:,} of the target's {facts.vocab_size:,} tokens |
| licence | as the target's, from whose weights it was made |

## Data

The target wrote the training text itself, at temperatures 0, 0.7 and 1; the labels are its own distributions. Prompts
come from:

{data_table(facts.sources)}

Spec-Bench and HumanEval were not read: neither their problems nor packages that hold them.

## Training

{unrolled}, each with cross-entropy to the target's likeliest 20 tokens and all others together, a later one weighing
0.8 times as much as the one before; AdamW, {facts.num_steps:,} steps, {facts.num_training_tokens:,} tokens
(repetitions, prompts and padding counted), seed {facts.seed}. Made again by

    {facts.command}

Held-out text of the same kind ({facts.num_held_out_tokens:,} tokens); each guess of a draft where all before it were
right:

{_steps_table(facts.held_out)}

From these follow {facts.held_out.greedy_length:.2f} tokens a round at temperature 0 and \
{facts.held_out.sampled_length:.2f} at 1, the target's own included.

{ACCEPTANCE_TITLE}

{NOT_MEASURED}
"""


def _steps_table(held_out: HeldOutSteps) -> str:
    headings = ("guess", "same likeliest token (T = 0)", "sum of min(p, q) (T = 1)", "cross-entropy")
    rows = [
        (f"{place}", f"{step.same_top_ratio:.3f}", f"{step.overlap_ratio:.3f}", f"{step.loss:.3f}")
        for place, step in enumerate(held_out.steps, 1)
    ]
    return markdown_table(headings, rows)
