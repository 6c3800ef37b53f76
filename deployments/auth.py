"""API keys: kept as hashes, compared in constant time, all of them at every request."""

import hashlib
import hmac
import ipaddress
import os
from pathlib import Path

from cluster.errors import AuthenticationError, ConfigError

KEYS_VARIABLE = "OUTRIDER_API_KEYS"
MIN_KEY_CHARS = 8


class KeyRing:
    """The keys of a server; an empty ring lets everyone in.

    Args:
        digests: SHA-256 of each key.
    """

    def __init__(self, digests: tuple[bytes, ...] = ()) -> None:
        self._digests = digests

    def __bool__(self) -> bool:
        return bool(self._digests)

    @classmethod
    def of(cls, keys: list[str]) -> "KeyRing":
        """A ring of plain keys.

        Raises:
            ConfigError: a key is too short.
        """
        for number, key in enumerate(keys, 1):
            if len(key) < MIN_KEY_CHARS:
                raise ConfigError(
                    field="api_keys", value=f"key {number}", allowed=f"keys of at least {MIN_KEY_CHARS} characters"
                )
        return cls(tuple(hashlib.sha256(key.encode()).digest() for key in keys))

    def check(self, authorization: str | None) -> str:
        """The tenant behind an `Authorization` header: a short hash that is safe to log, "" for an open server.

        Raises:
            AuthenticationError: no key, or a wrong one.
        """
        if not self._digests:
            return ""
        scheme, _, key = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not key.strip():
            raise AuthenticationError("missing API key: send 'Authorization: Bearer <key>'", code="missing_api_key")
        digest = hashlib.sha256(key.strip().encode(errors="replace")).digest()
        # No early exit: the time must not tell which key came close.
        matches = [hmac.compare_digest(digest, known) for known in self._digests]
        if not any(matches):
            raise AuthenticationError("incorrect API key", code="invalid_api_key")
        return hashlib.sha256(b"tenant" + digest).hexdigest()[:16]


def load_keys(api_keys_file: str | None) -> KeyRing:
    """Keys from a file (one per line, # comments) and from the environment (separated by commas).

    Raises:
        ConfigError: the file cannot be read, or a key is too short.
    """
    keys = [key.strip() for key in os.environ.get(KEYS_VARIABLE, "").split(",")]
    if api_keys_file is not None:
        try:
            lines = Path(api_keys_file).read_text(encoding="utf-8").splitlines()
        except OSError as error:
            raise ConfigError(field="api_keys_file", value=api_keys_file, allowed="a readable file") from error
        keys += [line.strip() for line in lines if not line.lstrip().startswith("#")]
    return KeyRing.of([key for key in keys if key])


def check_exposure(host: str, keys: KeyRing, *, insecure: bool) -> None:
    """Refuse to listen beyond this machine without keys.

    Raises:
        ConfigError: the host is not a loopback address, there are no keys, and `insecure` is not set.
    """
    if keys or insecure or _is_loopback(host):
        return
    raise ConfigError(
        field="host",
        value=host,
        allowed=f"127.0.0.1 unless API keys are set (--api-keys-file or {KEYS_VARIABLE}) or --insecure is given",
    )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
