"""The application's arguments on the command line: a file, KEY=VALUE settings, and flags for the common ones."""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.errors import ConfigError

if TYPE_CHECKING:
    from deployments.app import AppArgs

ENGINE_FLAGS = (
    "model",
    "revision",
    "dtype",
    "numerics",
    "num_threads",
    "max_model_len",
    "num_speculative_tokens",
    "acceptance",
)


def add_app_arguments(parser: argparse.ArgumentParser) -> None:
    """Register them."""
    parser.add_argument("--config", type=Path, metavar="FILE", help="YAML or JSON with the application's arguments")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="settings",
        help="one more argument, as engine.block_size=64; may be repeated and wins over --config",
    )  # fmt: skip
    for name in ENGINE_FLAGS:
        parser.add_argument(f"--{name.replace('_', '-')}", metavar="VALUE", help=f"same as --set engine.{name}=VALUE")
    parser.add_argument(
        "--drafter", metavar="WHO",
        help="who drafts: auto (measured at start-up), actor, local, ngram or off (default: auto)",
    )  # fmt: skip
    parser.add_argument("--draft-model", metavar="VALUE", help='same as --set draft.model=VALUE: "bundled" or a folder')
    parser.add_argument("--served-model-name", metavar="NAME", help="what clients call the model")
    parser.add_argument("--api-keys-file", metavar="FILE", help="one API key per line; also: OUTRIDER_API_KEYS=key,key")


def read_app_args(args: argparse.Namespace) -> "AppArgs":
    """The application's arguments: flags win over --set, and that wins over the file.

    Raises:
        ConfigError: one is wrong.
    """
    from pydantic import ValidationError

    from deployments.app import AppArgs

    values: dict[str, Any] = _read_config(args.config) if args.config else {}
    for name in ENGINE_FLAGS:
        if (value := getattr(args, name)) is not None:
            _put(values, f"engine.{name}", value)
    for name in ("served_model_name", "api_keys_file", "drafter"):
        if (value := getattr(args, name)) is not None:
            values[name] = value
    if args.draft_model is not None:
        _put(values, "draft.model", args.draft_model)
    for setting in args.settings:
        key, separator, text = setting.partition("=")
        if not separator:
            raise ConfigError(field="--set", value=setting, allowed="KEY=VALUE")
        _put(values, key, _literal(text))
    _make_absolute(values)
    try:
        return AppArgs.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"]))
        raise ConfigError(field=field, value=first["input"], allowed=first["msg"]) from None


def _make_absolute(values: dict[str, Any]) -> None:
    """Replicas run in another folder."""
    if values.get("api_keys_file"):
        values["api_keys_file"] = str(Path(values["api_keys_file"]).resolve())
    tracing = values.get("tracing")
    if isinstance(tracing, dict) and isinstance(tracing.get("headers_file"), str):
        tracing["headers_file"] = str(Path(tracing["headers_file"]).resolve())
    for section in ("engine", "draft"):
        named = values.get(section)
        if isinstance(named, dict) and isinstance(named.get("model"), str) and Path(named["model"]).is_dir():
            named["model"] = str(Path(named["model"]).resolve())


def _read_config(path: Path) -> dict[str, Any]:
    import yaml  # type: ignore[import-untyped]

    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(field="--config", value=str(path), allowed=f"a readable YAML file ({error})") from None
    if not isinstance(values, dict):
        raise ConfigError(field="--config", value=str(path), allowed="a mapping of arguments")
    return values


def _put(values: dict[str, Any], dotted: str, value: object) -> None:
    *parents, last = dotted.split(".")
    for name in parents:
        values = values.setdefault(name, {})
    values[last] = value


def _literal(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text
