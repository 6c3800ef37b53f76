"""The error tree. Catch broadly at a boundary, raise the narrow leaf.

OutriderError
├── ConfigError            a setting is out of range; names field, value and allowed range
├── LoadError              a model folder or checkpoint is refused
├── EngineDeadError        the engine loop stopped; nothing can be served by this replica
├── MalformedMessageError  bytes that are no message between verifier and drafter (in transport/codec.py)
└── RequestError           one request cannot be served; carries HTTP status, param and code
    ├── InvalidRequestError    400
    │   └── GrammarError           400: no grammar can be made of what was asked for
    ├── AuthenticationError    401
    ├── NotFoundError          404
    ├── DeadlineError          408
    ├── TooLargeError          413
    ├── OverloadedError        429, with `retry_after_s`
    └── UnavailableError       503
"""

from typing import ClassVar


class OutriderError(Exception):
    """Base of every error that Outrider raises on purpose."""


class ConfigError(OutriderError):
    """A setting is out of range.

    Args:
        field: name of the setting as the user writes it.
        value: what was given.
        allowed: the allowed range, in words.
    """

    def __init__(self, *, field: str, value: object, allowed: str) -> None:
        self.field, self.value, self.allowed = field, value, allowed
        super().__init__(f"{field} = {value!r} is not allowed: expected {allowed}")


def check_range(field: str, value: float, low: float, high: float, *, kind: str = "an integer") -> None:
    """Refuse a number out of range; NaN is out of every range.

    Args:
        field: name of the setting as the user writes it.
        value: what was given.
        low: lowest allowed value.
        high: highest allowed value.
        kind: what it is a number of, in words.

    Raises:
        ConfigError: it is out of range.
    """
    if not low <= value <= high:
        raise ConfigError(field=field, value=value, allowed=f"{kind} from {low} to {high}")


class LoadError(OutriderError):
    """A model cannot be loaded, or is refused for safety; the text says which and why."""


class EngineDeadError(OutriderError):
    """The engine loop stopped after an unexpected error."""


class RequestError(OutriderError):
    """One request cannot be served; everything else goes on.

    Args:
        message: text for the client, without internals.
        param: request field at fault, if there is one.
        code: short machine-readable reason.
    """

    status: ClassVar[int] = 500
    type: ClassVar[str] = "server_error"

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        self.message, self.param, self.code = message, param, code
        super().__init__(message)


class InvalidRequestError(RequestError):
    """A field has a wrong value (400)."""

    status, type = 400, "invalid_request_error"


class GrammarError(InvalidRequestError):
    """A schema, pattern or grammar is refused: the text says what is wrong and where (400)."""


class AuthenticationError(RequestError):
    """The API key is missing or wrong (401)."""

    status, type = 401, "authentication_error"


class NotFoundError(RequestError):
    """The model or route does not exist (404)."""

    status, type = 404, "not_found_error"


class DeadlineError(RequestError):
    """The request's deadline passed before it was finished (408)."""

    status, type = 408, "timeout_error"


class TooLargeError(RequestError):
    """The request body or headers exceed their limit (413)."""

    status, type = 413, "invalid_request_error"


class OverloadedError(RequestError):
    """The queue is full (429).

    Args:
        message: text for the client.
        retry_after_s: when a retry is likely to be admitted, in seconds.
    """

    status, type = 429, "overloaded_error"

    def __init__(self, message: str, *, retry_after_s: float) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(message, code="overloaded")


class UnavailableError(RequestError):
    """No replica can take the request now (503)."""

    status, type = 503, "service_unavailable_error"
