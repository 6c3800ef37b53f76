"""What became of long drafts over real prompts, and what was known before each: confidences, the target's entropy."""

from collections import deque
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from itertools import islice, zip_longest
from typing import Any

from cluster.clock import MonotonicClock
from cluster.config import BUNDLED, BUNDLED_DRAFT_FOLDER, DraftConfig, EngineConfig
from cluster.engine.budget import DraftCost
from cluster.engine.drafters.base import Draft, Drafter, Wanted
from cluster.engine.drafters.draft_build import build_draft_beside
from cluster.engine.drafters.draft_model import DraftModelDrafter
from cluster.engine.drafters.ngram import NgramDrafter
from cluster.engine.engine import Engine
from cluster.engine.lossless.prompts import Prompt, collect_prompts, encode
from cluster.engine.plan import ScheduledSequence
from cluster.engine.sequence import Sequence
from cluster.engine.startup import EngineParts, load_parts
from cluster.training.questions import Question, collect_questions
from cluster.types import Request, SamplingParams
from tests.benchmarks.environment import ROOT

SPEC_BENCH = ROOT.parent / "shared" / "data" / "spec_bench.jsonl"
TEMPERATURES = (0.0, 1.0)

_NUM_DRAFT_TOKENS = 7
_NUM_SEQS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftTrial:
    """A draft and its verdict.

    Attributes:
        source: name of the drafter.
        text: number of the answer that it belongs to.
        temperature: of that answer.
        confidences: the drafter's chances for the verified tokens, each given those before it.
        entropy_bits: the target's entropy at the last token committed before the draft.
        num_accepted: tokens that were accepted, from the first on.
    """

    source: str
    text: int
    temperature: float
    confidences: tuple[float, ...]
    entropy_bits: float
    num_accepted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialLog:
    """What was collected.

    Attributes:
        model: the target.
        drafts: by source, in the order of their verdicts.
        num_prompts: prompts, each answered at every temperature.
        notes: where prompts or sources were left out, and why.
    """

    model: str
    drafts: Mapping[str, Seq[DraftTrial]]
    num_prompts: int
    notes: tuple[str, ...]


class RecordingDrafter:
    """Passes everything on to another drafter, and notes its drafts with their verdicts.

    Args:
        inner: drafts as much as it may.

    Attributes:
        trials: in the order of their verdicts.
        entropy_bits: the target's at the last token of each sequence; kept up by whoever steps the engine.
    """

    def __init__(self, inner: Drafter) -> None:
        self.name = inner.name
        self.trials: list[DraftTrial] = []
        self.entropy_bits: dict[str, float] = {}
        self._inner = inner
        self._proposed: Mapping[str, Draft] = {}

    def propose(self, wanted: Seq[Wanted]) -> Mapping[str, Draft]:
        """The inner drafter's drafts."""
        self._proposed = self._inner.propose(wanted)
        return self._proposed

    def begin_round(self, items: Seq[ScheduledSequence]) -> None:
        """Pass it on."""
        self._inner.begin_round(items)

    def observe(self, sequence: Sequence, draft: Draft, num_accepted: int) -> None:
        """Note the verdict."""
        self._inner.observe(sequence, draft, num_accepted)
        request_id = sequence.request_id
        self.trials.append(
            DraftTrial(
                source=self.name,
                text=int(request_id),
                temperature=sequence.request.sampling.temperature,
                confidences=self._proposed[request_id].confidences[: len(draft.token_ids)],
                entropy_bits=self.entropy_bits[request_id],
                num_accepted=num_accepted,
            )
        )

    def forget(self, request_id: str) -> None:
        """Drop what was kept for a sequence."""
        self._inner.forget(request_id)
        self.entropy_bits.pop(request_id, None)

    def close(self) -> None:
        """Close the inner drafter."""
        self._inner.close()

    def __getattr__(self, name: str) -> Any:
        """Whatever else a drafter may offer."""
        return getattr(self._inner, name)


def collect_trials(*, num_per_category: int, max_tokens: int, on_source: Callable[[str], object]) -> TrialLog:
    """Answer the prompts once with each source of drafts, eight at a time.

    Args:
        num_per_category: prompts of each category of Spec-Bench, and of HumanEval.
        max_tokens: of each answer.
        on_source: hears of each source before its turn.
    """
    config = EngineConfig(
        num_threads=1,
        max_num_seqs=_NUM_SEQS,
        num_speculative_tokens=_NUM_DRAFT_TOKENS,
        drafter="off",
        draft_budget="fixed",
    )
    parts = load_parts(config)
    engine = Engine(
        config,
        runner=parts.runner,
        tokenizer=parts.tokenizer,
        eos_token_ids=parts.eos_token_ids,
        model_id=parts.model_id,
        clock=MonotonicClock(),
    )
    prompts, notes = _prompts(num_per_category)
    drafters: list[Drafter] = [NgramDrafter(max_draft_tokens=_NUM_DRAFT_TOKENS)]
    if BUNDLED_DRAFT_FOLDER.is_dir():
        drafters.append(_local_draft_model(parts))
    else:
        notes.append("the bundled draft model is not here: n-gram drafts only")
    drafts: dict[str, Seq[DraftTrial]] = {}
    for drafter in drafters:
        on_source(drafter.name)
        recorder = RecordingDrafter(drafter)
        engine.use_drafter(recorder)
        _answer(engine, recorder, prompts, max_tokens)
        drafts[drafter.name] = recorder.trials
        recorder.close()
    engine.use_drafter(None)
    engine.close()
    return TrialLog(model=parts.model_id, drafts=drafts, num_prompts=len(prompts), notes=tuple(notes))


def _prompts(num_per_category: int) -> tuple[list[Prompt], list[str]]:
    """Prompts with the categories in turn, so that no stretch of the log is of one kind."""
    if not SPEC_BENCH.is_file():
        note = f"{SPEC_BENCH} is not here: built-in prompts and HumanEval instead of Spec-Bench"
        return collect_prompts(None, 14 * num_per_category), [note]
    by_category: dict[str, list[Prompt]] = {}
    for question in collect_questions(SPEC_BENCH, num_per_category):
        by_category.setdefault(question.category, []).append(_prompt(question))
    turns = zip_longest(*by_category.values())
    return [prompt for turn in turns for prompt in turn if prompt is not None], []


def _prompt(question: Question) -> Prompt:
    """A question's first turn."""
    text = question.turns[0]
    if question.is_chat:
        return Prompt(name=question.category, messages=({"role": "user", "content": text},))
    return Prompt(name=question.category, text=text)


def _local_draft_model(parts: EngineParts) -> DraftModelDrafter:
    model = build_draft_beside(BUNDLED, DraftConfig(num_threads=1), parts)
    return DraftModelDrafter(model, max_draft_tokens=_NUM_DRAFT_TOKENS, cost=DraftCost.free())


def _answer(engine: Engine, recorder: RecordingDrafter, prompts: Seq[Prompt], max_tokens: int) -> None:
    """Answer all prompts at all temperatures; both answers of a prompt run side by side."""
    encoded = [encode(prompt, engine.tokenizer) for prompt in prompts]
    waiting = deque(
        Request(
            request_id=str(number),
            prompt_token_ids=encoded[number // len(TEMPERATURES)],
            sampling=SamplingParams(
                max_tokens=max_tokens, seed=number, temperature=TEMPERATURES[number % len(TEMPERATURES)]
            ),
        )
        for number in range(len(prompts) * len(TEMPERATURES))
    )
    num_running = 0
    while waiting or engine.has_work:
        while waiting and num_running < _NUM_SEQS:
            engine.add(waiting.popleft())
            num_running += 1
        outputs = engine.step()
        num_running -= sum(output.finish_reason is not None for output in outputs)
        entropies = iter(engine.last_step.entropy_bits)  # In the order of the outputs.
        for output in outputs:
            for entropy_bits in islice(entropies, len(output.token_ids)):
                recorder.entropy_bits[output.request_id] = entropy_bits
