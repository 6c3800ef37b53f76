"""The output side of one choice: when it ends, and what text may be shown.

Every token, accepted draft or not, passes `OutputProcessor.append` alone and in order, so an end inside an accepted
block is found where it stands. What belongs together at the end:

- token ids, logprobs and usage include every token up to the one that ended the choice;
- the text stops before the stop string, or after it with `include_stop_str_in_output`; text of the same token behind
  the stop string is dropped;
- the text of an EOS or stop token is left out, except with `include_stop_str_in_output` (an EOS that is a special token
  also needs `skip_special_tokens=False` to be seen);
- under a grammar every EOS ends the choice, whatever `min_tokens` and `ignore_eos` say: the grammar lets one through
  only where the text may end;
- otherwise the text equals `tokenizer.decode` of the ids. A choice that ends inside a character shows U+FFFD for it.
"""

from typing import TYPE_CHECKING

from cluster.engine.detokenizer import build_detokenizer
from cluster.errors import InvalidRequestError
from cluster.types import GRAMMAR_FAILED, FinishReason, Request

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from cluster.grammar.matcher import GrammarMatcher


class OutputProcessor:
    """Stop checks and text of one choice.

    Args:
        tokenizer: the target's tokenizer.
        request: the choice.
        eos_token_ids: ids that end a choice unless it ignores EOS.
        max_model_len: most tokens of prompt and output together.
        grammar: moves on with every token; None for no grammar.

    Attributes:
        finish_reason: None while the choice goes on.
        stop_reason: the stop string or stop token id that ended it; None for EOS.
        num_output_tokens: tokens appended so far.

    Raises:
        InvalidRequestError: a stop string is empty.
    """

    def __init__(
        self,
        tokenizer: "PreTrainedTokenizerBase",
        request: Request,
        eos_token_ids: frozenset[int],
        max_model_len: int,
        grammar: "GrammarMatcher | None" = None,
    ) -> None:
        sampling = request.sampling
        self._grammar = grammar
        self.finish_reason: FinishReason | None = None
        self.stop_reason: str | int | None = None
        self.num_output_tokens = 0
        self._eos_token_ids = frozenset() if sampling.ignore_eos else eos_token_ids
        self._stop_token_ids = frozenset(sampling.stop_token_ids)
        self._min_tokens = sampling.min_tokens
        self._max_tokens = min(sampling.max_tokens, max_model_len - len(request.prompt_token_ids))
        self._show_stop = sampling.include_stop_str_in_output
        self._detokenizer = build_detokenizer(tokenizer, skip_special_tokens=sampling.skip_special_tokens)
        self._stops = StopStrings(sampling.stop, include=sampling.include_stop_str_in_output)
        self._ready: list[str] = []

    def append(self, token_id: int) -> None:
        """Take the next output token. A stop wins over a length limit reached by the same token.

        Raises:
            RuntimeError: the choice is already finished.
        """
        if self.finish_reason is not None:
            raise RuntimeError(f"token appended after the choice finished with {self.finish_reason}")
        may_stop = self.num_output_tokens >= self._min_tokens
        self.num_output_tokens += 1
        follows = self._grammar is None or self._grammar.accept(token_id)
        is_eos = self._grammar.is_ended if self._grammar else may_stop and token_id in self._eos_token_ids
        is_stop = is_eos or (may_stop and token_id in self._stop_token_ids)
        text = "" if is_stop and not self._show_stop else self._detokenizer.append(token_id)
        is_complete = is_stop or (self._grammar is not None and self._grammar.is_complete)
        is_last = is_complete or self.num_output_tokens >= self._max_tokens
        if is_last:
            text += self._detokenizer.flush()
        shown, stop = self._stops.push(text, may_stop=may_stop)
        self._ready.append(shown)
        if stop is not None:
            self.finish_reason, self.stop_reason = FinishReason.STOP, stop
        elif is_last:
            self.stop_reason = token_id if is_stop and not is_eos else None
            self.finish(FinishReason.STOP if is_complete else FinishReason.LENGTH)
        elif not follows:
            self.fail(GRAMMAR_FAILED)

    def resume(self, token_ids: tuple[int, ...]) -> None:
        """Take output that an earlier attempt brought; what that has shown of it is not shown again.

        Raises:
            InvalidRequestError: the choice ended before the last of them, or they do not follow its grammar.
        """
        for token_id in token_ids:
            if self.finish_reason is not None:
                raise InvalidRequestError("the output goes on after its end", param="output_token_ids")
            self.append(token_id)
        if self.finish_reason is FinishReason.ERROR:
            raise InvalidRequestError("the output does not follow its grammar", param="output_token_ids")
        self._ready.clear()

    def finish(self, reason: FinishReason) -> None:
        """End the choice from outside (abort, deadline, error); text that was held back becomes ready.

        Does nothing on a finished choice.
        """
        if self.finish_reason is None:
            may_stop = self.num_output_tokens > self._min_tokens
            shown, _ = self._stops.push(self._detokenizer.flush(), may_stop=may_stop)
            self._ready += [shown, self._stops.flush()]
            self.finish_reason = reason

    def fail(self, stop_reason: str | None) -> None:
        """End the choice with an error; does nothing on a finished choice."""
        if self.finish_reason is None:
            self.finish(FinishReason.ERROR)
            self.stop_reason = stop_reason

    def take_text(self) -> str:
        """Return the text that became final since the last call."""
        text = "".join(self._ready)
        self._ready.clear()
        return text


class StopStrings:
    """Finds stop strings in text that arrives in pieces of any size.

    The stop string that is complete first ends the text; of several that end at the same character, the longest. So the
    result does not depend on how the text is cut. Only a tail that may be the start of a stop string is held back.

    Args:
        stops: the stop strings.
        include: keep the stop string in the text.
    """

    def __init__(self, stops: tuple[str, ...], *, include: bool) -> None:
        if "" in stops:
            raise InvalidRequestError("a stop string must not be empty", param="stop")
        self._stops = stops
        self._include = include
        self._tail = ""

    def push(self, text: str, *, may_stop: bool) -> tuple[str, str | None]:
        """Add text; return what can be shown now, and the stop string if one is complete.

        Args:
            text: the next piece.
            may_stop: False lets stop strings that end in this piece pass as text.
        """
        if not self._stops or not text:
            return text, None
        num_old = len(self._tail)
        text = self._tail + text
        if may_stop and (found := self._first(text, num_old)) is not None:
            end, stop = found
            self._tail = ""
            return text[: end if self._include else end - len(stop)], stop
        start = min(_partial_start(text, stop) for stop in self._stops)
        self._tail = text[start:]
        return text[:start], None

    def flush(self) -> str:
        """Return the tail: no more text will come."""
        tail, self._tail = self._tail, ""
        return tail

    def _first(self, text: str, num_old: int) -> tuple[int, str] | None:
        """End and string of the first match that ends behind the `num_old` characters already searched."""
        best: tuple[int, str] | None = None
        for stop in self._stops:
            start = text.find(stop, max(0, num_old - len(stop) + 1))
            if start < 0:
                continue
            end = start + len(stop)
            if best is None or (end, -len(stop)) < (best[0], -len(best[1])):
                best = end, stop
        return best


def _partial_start(text: str, stop: str) -> int:
    """Where the longest end of `text` begins that is a proper start of `stop`; len(text) if there is none."""
    start = text.find(stop[0], max(0, len(text) - len(stop) + 1))
    while start >= 0:
        if stop.startswith(text[start:]):
            return start
        start = text.find(stop[0], start + 1)
    return len(text)
