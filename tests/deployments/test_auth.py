import hmac
from pathlib import Path

import pytest

from cluster.errors import AuthenticationError, ConfigError
from deployments.auth import KEYS_VARIABLE, KeyRing, check_exposure, load_keys

KEYS = ["first-key-1", "second-key-2", "third-key-3"]


def test_an_empty_ring_lets_everyone_in_and_names_nobody() -> None:
    assert KeyRing().check(None) == ""


@pytest.mark.parametrize("key", KEYS)
def test_every_key_opens(key: str) -> None:
    assert len(KeyRing.of(KEYS).check(f"Bearer {key}")) == 16


@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer ", "Basic first-key-1", "first-key-1", "Bearer first-key-", "Bearer é"]
)
def test_anything_else_is_refused(header: str | None) -> None:
    with pytest.raises(AuthenticationError):
        KeyRing.of(KEYS).check(header)


def test_all_keys_are_compared_in_constant_time_whatever_matches(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[bytes] = []
    real = hmac.compare_digest

    def counting(given: bytes, known: bytes) -> bool:
        calls.append(known)
        return real(given, known)

    monkeypatch.setattr("deployments.auth.hmac.compare_digest", counting)
    KeyRing.of(KEYS).check("Bearer first-key-1")
    assert len(calls) == len(KEYS)


def test_tenants_differ_and_do_not_show_the_key() -> None:
    ring = KeyRing.of(KEYS)
    tenants = {ring.check(f"Bearer {key}") for key in KEYS}
    assert len(tenants) == 3
    assert not any(key in tenant for key in KEYS for tenant in tenants)


def test_keys_come_from_file_and_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "keys"
    file.write_text("# staff\nfile-key-1\n\nfile-key-2\n")
    monkeypatch.setenv(KEYS_VARIABLE, "environment-key, ")
    ring = load_keys(str(file))
    for key in ("file-key-1", "file-key-2", "environment-key"):
        assert ring.check(f"Bearer {key}")
    with pytest.raises(AuthenticationError):
        ring.check("Bearer # staff")


def test_a_missing_file_and_a_short_key_stop_start_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEYS_VARIABLE, raising=False)
    with pytest.raises(ConfigError, match="api_keys_file"):
        load_keys(str(tmp_path / "nothing"))
    with pytest.raises(ConfigError, match="at least 8"):
        KeyRing.of(["short"])


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.5", "::", "example.org"])
def test_listening_beyond_this_machine_needs_keys_or_insecure(host: str) -> None:
    with pytest.raises(ConfigError, match="--insecure"):
        check_exposure(host, KeyRing(), insecure=False)
    check_exposure(host, KeyRing(), insecure=True)
    check_exposure(host, KeyRing.of(KEYS), insecure=False)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.8.8.8"])
def test_loopback_needs_no_keys(host: str) -> None:
    check_exposure(host, KeyRing(), insecure=False)
