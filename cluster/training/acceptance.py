"""How many of a draft model's guesses a real engine accepts, by category of question and temperature.

Every round drafts the same number of tokens: no n-gram, no draft lengths that follow acceptance.
"""

import zlib
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from cluster.engine.engine import Engine
from cluster.engine.lossless.prompts import Prompt, encode
from cluster.training.questions import Question
from cluster.types import Request, RequestOutput, SamplingParams, SpeculationStats

TEMPERATURES = (0.0, 1.0)


@dataclass(slots=True)
class Acceptance:
    """Counts over some texts.

    Attributes:
        num_texts: texts.
        num_drafts: rounds with a draft.
        num_draft_tokens: their tokens that were verified.
        num_accepted_tokens: of those.
        num_cut_drafts: drafts of which not all was accepted, or that were shorter than asked for.
    """

    num_texts: int = 0
    num_drafts: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    num_cut_drafts: int = 0

    @property
    def rate(self) -> float:
        """Alpha: accepted / drafted."""
        return self.num_accepted_tokens / max(1, self.num_draft_tokens)

    @property
    def mean_length(self) -> float:
        """Tokens of a round with a draft, the target's own included."""
        return 1.0 + self.num_accepted_tokens / max(1, self.num_drafts)

    @property
    def next_rate(self) -> float:
        """Chance that a draft token is accepted after those before it; a little low, as short drafts count as cut."""
        return self.num_accepted_tokens / max(1, self.num_accepted_tokens + self.num_cut_drafts)

    def add(self, stats: SpeculationStats, num_speculative_tokens: int) -> None:
        """Count a text's rounds."""
        num_whole = sum(stats.accepted_per_draft[num_speculative_tokens:])
        self.num_texts += 1
        self.num_drafts += stats.num_drafts
        self.num_draft_tokens += stats.num_draft_tokens
        self.num_accepted_tokens += stats.num_accepted_tokens
        self.num_cut_drafts += stats.num_drafts - num_whole

    def __add__(self, other: "Acceptance") -> "Acceptance":
        return Acceptance(
            num_texts=self.num_texts + other.num_texts,
            num_drafts=self.num_drafts + other.num_drafts,
            num_draft_tokens=self.num_draft_tokens + other.num_draft_tokens,
            num_accepted_tokens=self.num_accepted_tokens + other.num_accepted_tokens,
            num_cut_drafts=self.num_cut_drafts + other.num_cut_drafts,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenText:
    """A text of the target.

    Attributes:
        token_ids: prompt and output.
        num_prompt_tokens: leading ones that are prompt.
    """

    token_ids: tuple[int, ...]
    num_prompt_tokens: int


@dataclass(slots=True)
class _Answer:
    """A turn in the making."""

    question: Question
    turn: int
    temperature: float
    messages: tuple[dict[str, str], ...]
    prompt_token_ids: tuple[int, ...]
    token_ids: list[int] = field(default_factory=list)


class AcceptanceRun:
    """Has an engine answer questions and counts what became of its drafts.

    Args:
        engine: drafts a fixed number of tokens in every round.
        questions: each is answered at each temperature.
        max_tokens: of each answer.
        seed: of the noise.

    Attributes:
        counts: by category and temperature.
        texts: what was written at temperature 1, first turns only.
        num_skipped: turns that do not fit into the target's length limit.
    """

    def __init__(self, engine: Engine, questions: Sequence[Question], *, max_tokens: int, seed: int) -> None:
        self._engine, self._max_tokens, self._seed = engine, max_tokens, seed
        self._waiting = deque(
            self._first_turn(question, temperature) for question in questions for temperature in TEMPERATURES
        )
        self._running: dict[str, _Answer] = {}
        self._num_started = 0
        self.counts: dict[tuple[str, float], Acceptance] = defaultdict(Acceptance)
        self.texts: list[WrittenText] = []
        self.num_skipped = 0

    @property
    def num_turns_left(self) -> int:
        """Turns to come, if all fit."""
        answers = (*self._waiting, *self._running.values())
        return sum(len(answer.question.turns) - answer.turn for answer in answers)

    def run(self, on_turn: Callable[[], object]) -> None:
        """Answer everything; `on_turn` hears of each answer."""
        while self._waiting or self._running:
            while self._waiting and len(self._running) < self._engine.config.max_num_seqs:
                self._start(self._waiting.popleft())
            for output in self._engine.step():
                answer = self._running[output.request_id]
                answer.token_ids += output.token_ids
                if output.finish_reason is not None:
                    self._finish(output)
                    on_turn()

    def _first_turn(self, question: Question, temperature: float) -> _Answer:
        messages = ({"role": "user", "content": question.turns[0]},)
        return self._answer(question, 0, temperature, messages)

    def _answer(
        self, question: Question, turn: int, temperature: float, messages: tuple[dict[str, str], ...]
    ) -> _Answer:
        prompt = Prompt(name="", messages=messages) if question.is_chat else Prompt(name="", text=question.turns[0])
        return _Answer(question, turn, temperature, messages, encode(prompt, self._engine.tokenizer))

    def _start(self, answer: _Answer) -> None:
        if len(answer.prompt_token_ids) + self._max_tokens > self._engine.max_model_len:
            self.num_skipped += 1
            return
        request_id, self._num_started = str(self._num_started), self._num_started + 1
        # The question's own, not the order's: draft models are measured on the same texts.
        seed = self._seed + zlib.crc32("\n".join(answer.question.turns).encode()) + (answer.turn << 32)
        sampling = SamplingParams(max_tokens=self._max_tokens, seed=seed, temperature=answer.temperature)
        self._engine.add(Request(request_id=request_id, prompt_token_ids=answer.prompt_token_ids, sampling=sampling))
        self._running[request_id] = answer

    def _finish(self, output: RequestOutput) -> None:
        answer = self._running.pop(output.request_id)
        question, engine = answer.question, self._engine
        if output.speculation is not None:
            counts = self.counts[question.category, answer.temperature]
            counts.add(output.speculation, engine.config.num_speculative_tokens)
        if answer.temperature == 1.0 and answer.turn == 0:
            token_ids = (*answer.prompt_token_ids, *answer.token_ids)
            self.texts.append(WrittenText(token_ids=token_ids, num_prompt_tokens=len(answer.prompt_token_ids)))
        if answer.turn + 1 < len(question.turns):
            reply = str(engine.tokenizer.decode(answer.token_ids, skip_special_tokens=True))
            messages = (
                *answer.messages,
                {"role": "assistant", "content": reply},
                {"role": "user", "content": question.turns[answer.turn + 1]},
            )
            self._waiting.appendleft(self._answer(question, answer.turn + 1, answer.temperature, messages))
