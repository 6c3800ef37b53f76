"""Settings that change while a replica serves: Serve's `user_config`, checked and put over what the replica began with.

A replica that runs keeps what it has when it is told something wrong: were an error raised, Serve would replace it.
The refusal is logged and shown in the scrape. A replica that starts with something wrong does not start.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Generic, TypeVar

import msgspec
from pydantic import TypeAdapter, ValidationError

from cluster.errors import ConfigError
from cluster.telemetry import names
from cluster.telemetry.prometheus import MetricSet

logger = logging.getLogger(__name__)

SettingsT = TypeVar("SettingsT")


class LiveSettings(Generic[SettingsT]):
    """The settings of one replica.

    Args:
        first: what it began with; a `user_config` is put over these, and not over the one before it.
        knobs: names of the fields that may change.
        apply: puts new settings in force.
        deployment: label in metrics.
        replica: the same.
    """

    def __init__(
        self,
        first: SettingsT,
        knobs: tuple[str, ...],
        apply: Callable[[SettingsT], None],
        *,
        deployment: str,
        replica: str = "0",
    ) -> None:
        self._first, self._knobs, self._apply = first, knobs, apply
        self._is_running = False
        self.current = first
        self.metrics = MetricSet(names.CONFIG_METRICS, {"deployment": deployment, "replica": replica})
        self.metrics.set(names.USER_CONFIG_REFUSED, 0)

    def started(self) -> None:
        """The replica serves from now on."""
        self._is_running = True

    def change(self, user_config: object) -> None:
        """Take a new `user_config`.

        Raises:
            ConfigError: it is wrong, and the replica does not serve yet.
        """
        try:
            settings = changed(self._first, user_config, self._knobs)
        except ConfigError as error:
            if not self._is_running:
                raise
            self.metrics.set(names.USER_CONFIG_REFUSED, 1)
            logger.error("user_config is refused, the settings before it stay: %s", error)
            return
        self.metrics.set(names.USER_CONFIG_REFUSED, 0)
        if settings != self.current:
            self.current = settings
            self._apply(settings)
            logger.info("user_config is in force", extra={"fields": {"user_config": user_config}})


def changed(settings: SettingsT, user_config: object, knobs: tuple[str, ...]) -> SettingsT:
    """Settings with some fields replaced; a field that is a group of settings keeps those that are not named.

    Args:
        settings: a dataclass.
        user_config: new values by name.
        knobs: names that it may have.

    Raises:
        ConfigError: a name or a value is wrong.
    """
    values = {name: getattr(settings, name) for name in _field_names(settings)}
    named = _checked("user_config", user_config, knobs)
    for name, value in named.items():
        group, is_group = values[name], isinstance(value, Mapping) and is_dataclass(values[name])
        values[name] = value
        if is_group:
            values[name] = msgspec.to_builtins(group) | _checked(f"user_config.{name}", value, _field_names(group))
    try:
        return TypeAdapter(type(settings)).validate_python(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(("user_config", *map(str, first["loc"])))
        raise ConfigError(field=field, value=first["input"], allowed=first["msg"]) from None


def _checked(field: str, given: object, allowed: tuple[str, ...]) -> dict[str, Any]:
    """A mapping whose names are all known."""
    if not isinstance(given, Mapping):
        raise ConfigError(field=field, value=given, allowed="a mapping of settings")
    for name, value in given.items():
        if name not in allowed:
            raise ConfigError(field=f"{field}.{name}", value=value, allowed="one of " + ", ".join(allowed))
    return dict(given)


def _field_names(settings: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(settings))
