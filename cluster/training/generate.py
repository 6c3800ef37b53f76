"""The target writes training text; each token comes with the target's most likely alternatives there.

Prompt n gives one text, or two when the target is to answer its own question; a shard holds the texts of a fixed range
of prompts. Prompts and noise are functions of seed and n, and where the engine's texts do not depend on the batch, each
shard has the same content whether or not the run was interrupted.
"""

from collections.abc import Callable

from cluster.engine.engine import Engine
from cluster.training.prompts import PromptWriter
from cluster.training.shards import NUM_LABELS, ShardWriter, Text
from cluster.types import FinishReason, Request, RequestOutput, SamplingParams

_MIN_QUESTION_TOKENS = 5


def generate_texts(
    engine: Engine,
    writer: PromptWriter,
    shards: ShardWriter,
    *,
    num_tokens: int,
    seed: int,
    on_tokens: Callable[[int], object],
) -> None:
    """Let `engine` write until the shards hold `num_tokens` labelled tokens.

    Args:
        engine: the target, without any work.
        writer: what to write about.
        shards: where texts go; prompts go on behind those that are there.
        num_tokens: labelled tokens in whole shards.
        seed: of the noise.
        on_tokens: told how many labelled tokens each finished text adds.

    Raises:
        ConfigError: no prompt fits into the target's length limit.
    """
    run = _Generation(engine, writer, shards, num_tokens, seed)
    while not run.is_done:
        run.fill()
        for output in engine.step():
            run.take(output, on_tokens)
    run.stop()


class _Generation:
    """One call of `generate_texts`."""

    def __init__(self, engine: Engine, writer: PromptWriter, shards: ShardWriter, num_tokens: int, seed: int) -> None:
        self._engine, self._writer, self._shards = engine, writer, shards
        self._num_tokens, self._seed = num_tokens, seed
        self._next_index = shards.first_index
        self._running: dict[str, Text] = {}
        self._questions: dict[int, Text] = {}

    @property
    def is_done(self) -> bool:
        return self._shards.num_tokens >= self._num_tokens

    def fill(self) -> None:
        """Start prompts while the engine has room for more sequences."""
        while len(self._running) < self._engine.config.max_num_seqs and not self.is_done:
            text = Text(self._next_index, self._writer.prompt(self._next_index))
            self._next_index += 1
            if not self._start(text):
                self._finish(text)

    def take(self, output: RequestOutput, on_tokens: Callable[[int], object]) -> None:
        """Take in what a round added to a text."""
        text = self._running[output.request_id]
        text.take(output)
        if output.finish_reason is None:
            return
        del self._running[output.request_id]
        on_tokens(len(text.token_ids))
        if _is_question(text, output):
            question = str(self._engine.tokenizer.decode(text.token_ids[:-1])).strip()
            if self._start(Text(text.index, self._writer.answer(question, text.index))):
                self._questions[text.index] = text
                return
        self._finish(text)

    def stop(self) -> None:
        """Leave what is unfinished."""
        for request_id in self._running:
            self._engine.abort(request_id)
        while self._engine.has_work:
            self._engine.step()

    def _start(self, text: Text) -> bool:
        """Give a text to the engine; False when it is too long."""
        prompt = text.prompt
        if len(prompt.token_ids) + prompt.max_tokens >= self._engine.max_model_len:
            return False
        request_id = f"{text.index}-{'question' if prompt.asks_user else 'text'}"
        sampling = SamplingParams(
            max_tokens=prompt.max_tokens,
            seed=self._seed + 2 * text.index + prompt.asks_user,
            temperature=prompt.temperature,
            logprobs=NUM_LABELS,
        )
        self._engine.add(Request(request_id=request_id, prompt_token_ids=prompt.token_ids, sampling=sampling))
        self._running[request_id] = text
        return True

    def _finish(self, text: Text) -> None:
        question = self._questions.pop(text.index, None)
        texts = [text] if question is None else [question, text]
        self._shards.add(text.index, [each for each in texts if each.token_ids])
        while not self.is_done and self._shards.write_next():
            pass


def _is_question(text: Text, output: RequestOutput) -> bool:
    """True for a user's whole question."""
    is_whole = output.finish_reason is FinishReason.STOP
    return text.prompt.asks_user and is_whole and len(text.token_ids) >= _MIN_QUESTION_TOKENS
