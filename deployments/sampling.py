"""From sampling fields of a body to `SamplingParams`: defaults, limits, token ids."""

from collections.abc import Mapping, Sequence

from cluster.errors import InvalidRequestError
from cluster.types import SamplingParams
from deployments.codec import TextCodec
from deployments.limits import Limits, check_count
from deployments.schema import SamplingBody


class SamplingBuilder:
    """Builds sampling parameters.

    Args:
        codec: the model's tokenizer.
        limits: bounds on requests.
    """

    def __init__(self, codec: TextCodec, limits: Limits) -> None:
        self._codec, self._limits = codec, limits

    def build(
        self, body: SamplingBody, max_tokens: int, logprobs: int | None, prompt_logprobs: int | None
    ) -> SamplingParams:
        """Sampling parameters with every default filled in; the seed is set per choice.

        Args:
            body: the request.
            max_tokens: most output tokens.
            logprobs: top alternatives per output token, or None.
            prompt_logprobs: the same per prompt token.

        Raises:
            InvalidRequestError: a limit is exceeded or an id is outside the vocabulary.
        """
        limits = self._limits
        if max_tokens > limits.max_tokens:
            raise InvalidRequestError(f"max_tokens exceeds {limits.max_tokens}", param="max_tokens", code="max_tokens")
        if body.min_tokens > max_tokens:
            raise InvalidRequestError("min_tokens exceeds max_tokens", param="min_tokens", code="invalid_value")
        if prompt_logprobs is not None and body.stream:
            raise InvalidRequestError("prompt logprobs are not streamed", param="prompt_logprobs", code="invalid_value")
        return SamplingParams(
            max_tokens=max_tokens,
            seed=0,
            temperature=_or(body.temperature, 1.0),
            top_k=max(0, body.top_k or 0),
            top_p=_or(body.top_p, 1.0),
            min_p=_or(body.min_p, 0.0),
            repetition_penalty=_or(body.repetition_penalty, 1.0),
            presence_penalty=_or(body.presence_penalty, 0.0),
            frequency_penalty=_or(body.frequency_penalty, 0.0),
            logit_bias=self._logit_bias(body.logit_bias or {}),
            allowed_token_ids=self._ids(body.allowed_token_ids, "allowed_token_ids", "max_allowed_token_ids"),
            bad_words=self._bad_words(body.bad_words or []),
            min_tokens=body.min_tokens,
            ignore_eos=body.ignore_eos,
            stop_token_ids=self._ids(body.stop_token_ids, "stop_token_ids", "max_stop_token_ids"),
            stop=self._stop(body.stop),
            include_stop_str_in_output=body.include_stop_str_in_output,
            skip_special_tokens=body.skip_special_tokens,
            logprobs=logprobs,
            prompt_logprobs=prompt_logprobs,
        )

    def _ids(self, token_ids: list[int] | None, param: str, limit: str) -> tuple[int, ...]:
        check_count(self._limits, limit, len(token_ids or []), param)
        self._codec.check_ids(token_ids or [], param)
        return tuple(token_ids or [])

    def _logit_bias(self, bias: Mapping[str, float]) -> tuple[tuple[int, float], ...]:
        check_count(self._limits, "max_logit_bias", len(bias), "logit_bias")
        if not all(key.isascii() and key.isdigit() and len(key) < 11 for key in bias):
            raise InvalidRequestError("keys of logit_bias must be token ids", param="logit_bias", code="invalid_value")
        self._codec.check_ids([int(key) for key in bias], "logit_bias")
        return tuple(sorted({int(key): value for key, value in bias.items()}.items()))

    def _bad_words(self, words: Sequence[str]) -> tuple[tuple[int, ...], ...]:
        """Token sequences of the words, as they are and after a blank, as vLLM forms them."""
        check_count(self._limits, "max_bad_words", len(words), "bad_words")
        found: dict[tuple[int, ...], None] = {}
        for word in words:
            plain = tuple(self._codec.encode_now(word.lstrip(), add_special_tokens=False))
            spaced = tuple(self._codec.encode_now(" " + word.lstrip(), add_special_tokens=False))
            found |= {ids: None for ids in (plain, spaced) if ids}
        return tuple(found)

    def _stop(self, stop: str | list[str] | None) -> tuple[str, ...]:
        strings = [stop] if isinstance(stop, str) else stop or []
        check_count(self._limits, "max_stop", len(strings), "stop")
        if any(not 1 <= len(item) <= self._limits.max_stop_chars for item in strings):
            raise InvalidRequestError(
                f"stop strings have 1 to {self._limits.max_stop_chars} characters", param="stop", code="max_stop_chars"
            )
        return tuple(strings)


def _or(value: float | None, default: float) -> float:
    return default if value is None else value
