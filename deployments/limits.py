"""Limits on what a client may send, each with a default and a name that its error message uses."""

from dataclasses import dataclass

from cluster.errors import ConfigError, InvalidRequestError, TooLargeError, check_range

MOST_BODY_BYTES = 64 << 20
"""The highest `max_body_bytes`: what a connection may send in any case, before the app looks at it."""

MOST_HEADER_BYTES = 64 << 10
"""The same for `max_header_bytes`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Upper bounds; every one is checked before any work is done for the request.

    Attributes:
        max_body_bytes: request body.
        max_json_depth: nesting of arrays and objects in the body.
        max_headers: number of request headers.
        max_header_bytes: all header names and values together.
        max_n: choices per prompt.
        max_prompts: prompts per completions request.
        max_choices: prompts times n.
        max_stop: stop strings.
        max_stop_chars: characters of one stop string.
        max_stop_token_ids: stop token ids.
        max_bad_words: bad words.
        max_allowed_token_ids: allowed token ids.
        max_logit_bias: entries of logit_bias.
        max_prompt_chars: characters of prompt or messages, before tokenising.
        max_messages: chat messages.
        max_tokens: output tokens that may be asked for; the model's length cuts it further.
        max_tools: tools of a request.
        max_tool_bytes: of all of them, as JSON.
        max_tool_calls: calls of an answer that must call tools (`tool_choice: required`).
        body_timeout_s: time for a body to arrive.
        template_timeout_s: time for rendering a chat template.
    """

    max_body_bytes: int = 4 << 20
    max_json_depth: int = 32
    max_headers: int = 100
    max_header_bytes: int = 32 << 10
    max_n: int = 16
    max_prompts: int = 64
    max_choices: int = 64
    max_stop: int = 4
    max_stop_chars: int = 256
    max_stop_token_ids: int = 64
    max_bad_words: int = 128
    max_allowed_token_ids: int = 1024
    max_logit_bias: int = 1024
    max_prompt_chars: int = 2 << 20
    max_messages: int = 2048
    max_tokens: int = 1 << 20
    max_tools: int = 128
    max_tool_bytes: int = 64 << 10
    max_tool_calls: int = 16
    body_timeout_s: float = 60.0
    template_timeout_s: float = 5.0

    def __post_init__(self) -> None:
        """Refuse limits below 1 (times: 0 or less), and above what a connection may send."""
        for name in self.__slots__:
            value = getattr(self, name)
            if not value > 0 or (not name.endswith("_s") and value < 1):
                raise ConfigError(field=f"limits.{name}", value=value, allowed="a positive number")
        check_range("limits.max_body_bytes", self.max_body_bytes, 1, MOST_BODY_BYTES)
        check_range("limits.max_header_bytes", self.max_header_bytes, 1, MOST_HEADER_BYTES)


def check_count(limits: Limits, name: str, count: int, param: str) -> None:
    """Refuse a count above a named limit.

    Raises:
        InvalidRequestError: the count is above the limit.
    """
    limit = getattr(limits, name)
    if count > limit:
        raise InvalidRequestError(f"{param} has {count} entries; at most {limit} are allowed", param=param, code=name)


def check_headers(limits: Limits, headers: list[tuple[bytes, bytes]]) -> None:
    """Refuse too many or too large request headers.

    Raises:
        TooLargeError: a limit is exceeded.
    """
    if len(headers) > limits.max_headers:
        raise TooLargeError(f"more than {limits.max_headers} request headers", code="max_headers")
    if sum(len(name) + len(value) for name, value in headers) > limits.max_header_bytes:
        raise TooLargeError(f"request headers exceed {limits.max_header_bytes} bytes", code="max_header_bytes")


def check_depth(limits: Limits, value: object) -> None:
    """Refuse JSON values nested deeper than the limit, without recursion.

    Raises:
        InvalidRequestError: the value is too deep.
    """
    level: list[object] = [value]
    for _ in range(limits.max_json_depth + 1):
        level = [child for item in level for child in _children(item) if isinstance(child, dict | list)]
        if not level:
            return
    raise InvalidRequestError(f"the body is nested deeper than {limits.max_json_depth} levels", code="max_json_depth")


def _children(value: object) -> list[object]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []
