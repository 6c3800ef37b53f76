"""Which drafter brings what on which kind of text? Each against none: Spec-Bench, HumanEval and JSON extraction."""

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from statistics import fmean

from cluster.config import BUNDLED, BUNDLED_DRAFT_FOLDER, DraftConfig, EngineConfig
from cluster.engine.budget import DraftCost
from cluster.engine.drafters.base import Drafter
from cluster.engine.drafters.best_draft import BestDraft, Promise
from cluster.engine.drafters.draft_build import build_draft_beside
from cluster.engine.drafters.draft_model import DraftModelDrafter
from cluster.engine.drafters.head_build import build_head_drafters
from cluster.engine.drafters.ngram import NgramDrafter
from cluster.engine.drafters.step_cost import TableCost
from cluster.engine.engine import Engine
from cluster.engine.startup import EngineParts, load_parts, measure_draft_cost, measure_pass_times
from cluster.grammar.limits import GrammarLimits
from cluster.grammar.source import json_schema_grammar
from cluster.training.questions import HUMAN_EVAL, Question, collect_questions
from cluster.types import Request, SamplingParams
from tests.benchmarks.draft_trials import SPEC_BENCH
from tests.benchmarks.measure import SETTLE_S, THREADS, Rounds, progress, warmed_up
from tests.benchmarks.report import Answer, Limit, Row
from tests.benchmarks.structured_output import SCHEMA, TEXTS
from tests.benchmarks.workloads import chat_ids

OFF, AUTO, JSON, CHAT = "off", "auto", "json", "chat"
TEMPERATURES = (0.0, 1.0)
GROUPS: Mapping[str, tuple[str, ...]] = {
    "code": ("coding", HUMAN_EVAL),
    "JSON extraction": (JSON,),
    "RAG and summary": ("rag", "summarization"),
    CHAT: ("writing", "roleplay", "reasoning", "math", "extraction", "stem", "humanities", "qa", "math_reasoning"),
    "translation": ("translation",),
}
"""Categories that a reader would lump together."""

_NEURAL = ("draft_model", "eagle3", "medusa", "mtp")


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A prompt.

    Attributes:
        category: what kind of text follows.
        prompt_token_ids: under the chat template, unless the category is continued as it stands.
        grammar: that the answer follows; empty for none.
    """

    category: str
    prompt_token_ids: tuple[int, ...]
    grammar: str = ""


@dataclass(slots=True)
class _Sum:
    """What answers of one kind took."""

    seconds: float = 0.0
    num_tokens: int = 0
    num_rounds: int = 0
    num_drafted: int = 0
    num_accepted: int = 0

    @property
    def tokens_per_s(self) -> float:
        return self.num_tokens / self.seconds

    def add(self, other: "_Sum") -> None:
        self.seconds += other.seconds
        self.num_tokens += other.num_tokens
        self.num_rounds += other.num_rounds
        self.num_drafted += other.num_drafted
        self.num_accepted += other.num_accepted


def measure(*, quick: bool, heads: Sequence[str] = ()) -> Answer:
    """Each round takes another question of each category; every drafter answers it, in turning order.

    Args:
        quick: one short round.
        heads: folders of draft heads of the bundled model.

    Raises:
        RuntimeError: drafts changed a text.
    """
    num_rounds, max_tokens = (1, 12) if quick else (5, 96)
    bench = _Bench(tuple(heads), max_tokens)
    rounds = Rounds()
    for index in warmed_up(num_rounds):
        samples = bench.run_round(max(0, index - 1), is_kept=index > 0)
        if index:
            rounds.add(samples)
        progress(f"round {index} of {num_rounds}" if index else "warm-up")
    return Answer(
        question="Tokens/s of one stream, prefill included, by drafter and kind of text, against no drafts?",
        model=bench.engine.model_id,
        rows=tuple(bench.rows(rounds)),
        limits=tuple(_limits(rounds, bench)),
        counts={
            "rounds": num_rounds,
            "categories": len(bench.categories),
            "max_tokens": max_tokens,
            "threads": THREADS,
        },
        notes=("all drafters wrote the same tokens", *bench.category_notes()),
    )


class _Bench:
    """One target with all drafters beside it.

    Args:
        heads: folders of draft heads.
        max_tokens: of an answer.
    """

    def __init__(self, heads: tuple[str, ...], max_tokens: int) -> None:
        config = EngineConfig(num_threads=THREADS, kv_cache_tokens=16_384, enable_prefix_cache=False, drafter="off")
        parts = load_parts(config)
        cost = measure_draft_cost(parts.runner, config, model_id=parts.model_id)
        self.engine = Engine.from_parts(config, parts, draft_cost=cost)
        drafters = _drafters(parts, config, heads, cost)
        self._drafters: dict[str, Drafter | None] = {OFF: None, **{each.name: each for each, _ in drafters}}
        self._drafters[AUTO] = BestDraft(*drafters)
        self.names = tuple(name for name in self._drafters if name != OFF)
        self._tasks = self._read_tasks()
        self.groups = tuple(
            name for name, categories in GROUPS.items() if not self._tasks.keys().isdisjoint(categories)
        )
        self.totals: dict[tuple[str, str, float], _Sum] = defaultdict(_Sum)
        self._max_tokens, self._ids = max_tokens, count()
        self._warm_up_drafters()

    @property
    def categories(self) -> tuple[str, ...]:
        """Of the tasks."""
        return tuple(self._tasks)

    def run_round(self, index: int, *, is_kept: bool) -> dict[str, Sequence[float]]:
        """One question of each category at each temperature; tokens/s by drafter, group and temperature."""
        by_group: dict[tuple[str, str, float], _Sum] = defaultdict(_Sum)
        for number, (category, tasks) in enumerate(self._tasks.items()):
            group = next(group for group, categories in GROUPS.items() if category in categories)
            for temperature in TEMPERATURES:
                for name, done in self._answers(tasks[index % len(tasks)], temperature, index + number).items():
                    by_group[name, group, temperature].add(done)
                    if is_kept:
                        self.totals[name, category, temperature].add(done)
        return {_label(*key): [done.tokens_per_s] for key, done in by_group.items()}

    def rows(self, rounds: Rounds) -> list[Row]:
        """Speeds without drafts, and ratios to them."""
        rows = []
        for temperature in TEMPERATURES:
            for group in self.groups:
                rows.append(Row.of(_label(OFF, group, temperature), rounds, "tokens/s"))
                for name in self.names:
                    ratios = rounds.ratios(_label(name, group, temperature), _label(OFF, group, temperature))
                    rows.append(Row.scaled(f"{_label(name, group, temperature)} / off", ratios, 1.0, "ratio"))
        return rows

    def category_notes(self) -> list[str]:
        """Acceptance, mean acceptance length and speed of each drafter by category, over all rounds."""
        notes = []
        for (name, category, temperature), done in self.totals.items():
            if name != OFF and done.num_drafted:
                rate, length = done.num_accepted / done.num_drafted, 1 + done.num_accepted / done.num_rounds
                speed = self._speed_ratio(name, category, temperature)
                label = _label(name, category, temperature)
                notes.append(f"{label}: acceptance rate {rate:.3f}, MAL {length:.2f}, {speed:.2f} x off")
        return notes

    def worst_category(self, temperature: float) -> tuple[str, float]:
        """Where the automatic choice brings least: the category, and its speed against none, over all rounds."""
        speeds = {category: self._speed_ratio(AUTO, category, temperature) for category in self.categories}
        return min(speeds.items(), key=lambda each: each[1])

    def _speed_ratio(self, name: str, category: str, temperature: float) -> float:
        baseline = self.totals[OFF, category, temperature]
        return self.totals[name, category, temperature].tokens_per_s / baseline.tokens_per_s

    def _answers(self, task: Task, temperature: float, turn: int) -> dict[str, _Sum]:
        """The task's answer with every drafter, each beginning in turn; all must write the same."""
        names = list(self._drafters)
        first = turn % len(names)
        done: dict[str, _Sum] = {}
        texts: set[tuple[int, ...]] = set()
        for name in (*names[first:], *names[:first]):
            time.sleep(SETTLE_S)
            self.engine.use_drafter(self._drafters[name])
            done[name], text = self._answer(task, temperature)
            texts.add(text)
        if len(texts) > 1:
            raise RuntimeError(f"{task.category} at temperature {temperature:g}: drafts changed the text")
        return done

    def _answer(self, task: Task, temperature: float) -> tuple[_Sum, tuple[int, ...]]:
        request = Request(
            request_id=f"r{next(self._ids)}",
            prompt_token_ids=task.prompt_token_ids,
            sampling=SamplingParams(max_tokens=self._max_tokens, seed=1, temperature=temperature),
            grammar=task.grammar,
        )
        done = _Sum()
        text: list[int] = []
        started_s = time.perf_counter()
        self.engine.add(request)
        while self.engine.has_work:
            for output in self.engine.step():
                text += output.token_ids
                if (speculation := output.speculation) is not None:
                    done.num_rounds, done.num_drafted = speculation.num_rounds, speculation.num_draft_tokens
                    done.num_accepted = speculation.num_accepted_tokens
        done.seconds, done.num_tokens = time.perf_counter() - started_s, len(text)
        return done, tuple(text)

    def _read_tasks(self) -> dict[str, list[Task]]:
        """By category, in Spec-Bench's order."""
        tokenizer = self.engine.tokenizer
        tasks: dict[str, list[Task]] = defaultdict(list)
        for question in collect_questions(SPEC_BENCH if SPEC_BENCH.is_file() else None, 10):
            ids = self._question_ids(question)
            tasks[question.category].append(Task(category=question.category, prompt_token_ids=ids))
        grammar = json_schema_grammar(SCHEMA, GrammarLimits())
        for text in TEXTS:
            ids = chat_ids(tokenizer, f"Extract a customer record as JSON.\n\n{text}")
            tasks[JSON].append(Task(category=JSON, prompt_token_ids=ids, grammar=grammar))
        return dict(tasks)

    def _question_ids(self, question: Question) -> tuple[int, ...]:
        if question.is_chat:
            return chat_ids(self.engine.tokenizer, question.turns[0])
        return tuple(self.engine.tokenizer.encode(question.turns[0]))

    def _warm_up_drafters(self) -> None:
        """Let the estimates of draft lengths settle on text that is not measured."""
        task = Task(category=JSON, prompt_token_ids=chat_ids(self.engine.tokenizer, "Count from one to twenty."))
        for name in self.names:
            self.engine.use_drafter(self._drafters[name])
            self._answer(task, 0.0)


def _drafters(
    parts: EngineParts, config: EngineConfig, heads: tuple[str, ...], cost: DraftCost
) -> list[tuple[Drafter, Promise | None]]:
    """Prompt lookup, the shipped draft model and heads, as a verifier puts them together."""
    longest = config.num_speculative_tokens
    entries: list[tuple[Drafter, Promise | None]] = [(NgramDrafter(max_draft_tokens=longest), None)]
    draft = DraftConfig(num_threads=THREADS, heads=heads)
    if BUNDLED_DRAFT_FOLDER.is_dir():
        model = build_draft_beside(BUNDLED, draft, parts)
        pass_cost = TableCost(measure_pass_times(model.runner))
        drafter = DraftModelDrafter(model, max_draft_tokens=longest, cost=cost, pass_cost=pass_cost)
        entries.append((drafter, drafter.promise))
    built = build_head_drafters(parts, config, draft, cost=cost, num_threads=THREADS)
    return [*entries, *((head, head.promise) for head in built)]


def _limits(rounds: Rounds, bench: _Bench) -> list[Limit]:
    limits = []
    for temperature in TEMPERATURES:
        ratios = {
            (name, group): rounds.ratios(_label(name, group, temperature), _label(OFF, group, temperature))
            for name in bench.names
            for group in bench.groups
        }
        means = [fmean(values) for values in zip(*(ratios[AUTO, group] for group in bench.groups), strict=True)]
        category, speed = bench.worst_category(temperature)
        limits += [
            Limit.at_least_of(f"{AUTO} T={temperature:g}, mean of the groups / off", means, 1.8),
            Limit.at_least_of(f"{AUTO} T={temperature:g}, its worst category ({category}) / off", [speed], 0.97),
        ]
        limits += [
            Limit.at_least_of(f"{name} T={temperature:g}, {CHAT} / off", ratios[name, CHAT], 1.3)
            for name in bench.names
            if name in _NEURAL and CHAT in bench.groups
        ]
    return limits


def _label(name: str, group: str, temperature: float) -> str:
    return f"{name} T={temperature:g}, {group}"
