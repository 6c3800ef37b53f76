"""How often does the gateway guess the domain of a prompt right?

Spec-Bench and HumanEval are test sets: the weights of the classifier were set from general reasoning and prompts of our
own (`tests/cluster/routing/labelled_prompts.py`), and nobody read these two for it. A category of Spec-Bench counts as
the domain that its name suggests.
"""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from cluster.engine.lossless.prompts import human_eval_prompts
from cluster.routing.domains import detect, detect_chat
from cluster.routing.types import Domain
from cluster.training.questions import HUMAN_EVAL, read_spec_bench
from tests.benchmarks.environment import ROOT
from tests.benchmarks.measure import Summary
from tests.benchmarks.report import Answer, Limit, Row
from tests.cluster.routing.labelled_prompts import LABELLED

SPEC_BENCH: Final = ROOT.parent / "shared" / "data" / "spec_bench.jsonl"
OWN, FIRST, SECOND, HUMAN = "prompts of our own", "Spec-Bench, first turn", "Spec-Bench, second turn", "HumanEval"
TEST_SETS = (FIRST, HUMAN)
MAX_SHORT_CHARS = 200

DOMAIN_OF: Final[Mapping[str, Domain]] = MappingProxyType(
    {
        "translation": Domain.GENERAL_CHAT,
        "summarization": Domain.RAG_SUMMARY,
        "qa": Domain.GENERAL_CHAT,
        "math_reasoning": Domain.GENERAL_CHAT,
        "rag": Domain.RAG_SUMMARY,
        "writing": Domain.CREATIVE_WRITING,
        "roleplay": Domain.CREATIVE_WRITING,
        "reasoning": Domain.GENERAL_CHAT,
        "math": Domain.GENERAL_CHAT,
        "coding": Domain.CODE_SYNTHESIS,
        "extraction": Domain.STRUCTURED_JSON,
        "stem": Domain.GENERAL_CHAT,
        "humanities": Domain.GENERAL_CHAT,
        HUMAN_EVAL: Domain.CODE_SYNTHESIS,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Labelled:
    """A prompt and what is right.

    Attributes:
        group: the set that it belongs to.
        category: of the set.
        turns: what the user says, oldest first.
        domain: what is right.
    """

    group: str
    category: str
    turns: tuple[str, ...]
    domain: Domain


def measure(*, quick: bool) -> Answer:
    """Detect every prompt, and time it."""
    num_rounds = 1 if quick else 5
    prompts, notes = _prompts()
    found = [detect_chat(prompt.turns).domain for prompt in prompts]
    pairs = list(zip(prompts, found, strict=True))
    groups = [group for group in (FIRST, SECOND, HUMAN, OWN) if any(prompt.group == group for prompt in prompts)]
    rows = [_share(f"{group}: right", [(p.domain, d) for p, d in pairs if p.group == group]) for group in groups]
    tested = [(p.domain, d) for p, d in pairs if p.group in TEST_SETS]
    if tested:
        most = Counter(domain for domain, _ in tested).most_common(1)[0][0]
        rows.append(_share("test sets: right", tested))
        rows.append(_share(f"test sets, baseline: always {most}", [(domain, most) for domain, _ in tested]))
    short = [prompt for prompt in prompts if len(prompt.turns[-1]) <= MAX_SHORT_CHARS]
    limits = []
    for name, those in (("short prompts", short), ("longer prompts", [p for p in prompts if p not in short])):
        times_s = _times_s([prompt.turns[-1] for prompt in those], num_rounds)
        rows.append(Row(name=f"time of a detection, {name}", unit="s", summary=Summary.of(times_s)))
        if those is short:
            limits.append(Limit.at_most_of("detection of a short prompt, seconds", times_s, 50e-6))
    return Answer(
        question="How often does the gateway guess the domain of a prompt right, and how long does it take?",
        model="hand-set weights, no model",
        rows=tuple(rows),
        limits=tuple(limits),
        counts={"rounds": num_rounds, **{group: sum(p.group == group for p in prompts) for group in groups}},
        notes=(*notes, *_confusion(pairs)),
    )


def _prompts() -> tuple[list[Labelled], list[str]]:
    """All prompts that there are, and which are missing."""
    prompts = [Labelled(group=OWN, category=domain.value, turns=(text,), domain=domain) for domain, text in LABELLED]
    notes = []
    if SPEC_BENCH.exists():
        for question in read_spec_bench(SPEC_BENCH):
            for group, turns in ((FIRST, question.turns[:1]), (SECOND, question.turns[:2])):
                if group is FIRST or len(turns) > 1:
                    domain = DOMAIN_OF[question.category]
                    prompts.append(Labelled(group=group, category=question.category, turns=turns, domain=domain))
    else:
        notes.append(f"Spec-Bench is left out: no {SPEC_BENCH.name} in ../shared/data")
    human = [
        Labelled(group=HUMAN, category=HUMAN_EVAL, turns=(prompt.text,), domain=DOMAIN_OF[HUMAN_EVAL])
        for prompt in human_eval_prompts()
    ]
    if not human:
        notes.append("HumanEval is left out: the package human-eval is not installed")
    return prompts + human, notes


def _share(name: str, pairs: Sequence[tuple[Domain, Domain]]) -> Row:
    share = sum(right is found for right, found in pairs) / len(pairs)
    return Row(name=name, unit="ratio", summary=Summary.of([share]))


def _times_s(texts: Sequence[str], num_rounds: int) -> list[float]:
    """Time of each detection, after one round that is not kept."""
    times_s: list[float] = []
    for index in range(num_rounds + 1):
        for text in texts:
            started_s = time.perf_counter()
            detect(text)
            elapsed_s = time.perf_counter() - started_s
            if index:
                times_s.append(elapsed_s)
    return times_s


def _confusion(pairs: Sequence[tuple[Labelled, Domain]]) -> list[str]:
    """A line per category: how many of its prompts were taken for what."""
    lines = []
    keys = dict.fromkeys((prompt.group, prompt.category, prompt.domain) for prompt, _ in pairs)
    for group, category, domain in keys:
        counts = Counter(found for p, found in pairs if (p.group, p.category, p.domain) == (group, category, domain))
        taken = ", ".join(f"{count} {found}" for found, count in counts.most_common())
        lines.append(f"{group}, {category}: {counts[domain]} of {counts.total()} taken for {domain} ({taken})")
    return lines
