"""Objects against the OpenAPI schema of their custom resource definition, as an API server would check them."""

from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import yaml  # type: ignore[import-untyped]

Schema = dict[str, Any]


def load_schema(definition: Path, version: str) -> Schema:
    """The JSON schema of one version of a custom resource.

    Args:
        definition: file with the CustomResourceDefinition.
        version: such as "v1".
    """
    crd = yaml.load(definition.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    (found,) = [each for each in crd["spec"]["versions"] if each["name"] == version]
    return _converted(found["schema"]["openAPIV3Schema"])


def with_defaults(schema: Schema, value: Any) -> Any:
    """A copy of a value with the schema's defaults filled in, as the API server does before it checks."""
    if isinstance(value, dict):
        value = dict(value)
        for name, part in schema.get("properties", {}).items():
            if name not in value and "default" in part:
                value[name] = deepcopy(part["default"])
        return {name: with_defaults(_child(schema, name), part) for name, part in value.items()}
    if isinstance(value, list):
        return [with_defaults(schema.get("items", {}), part) for part in value]
    return value


def errors_of(schema: Schema, value: Any) -> list[str]:
    """What is wrong with an object, each with its path."""
    filled = with_defaults(schema, value)
    found = jsonschema.Draft202012Validator(schema).iter_errors(filled)
    return sorted(f"{'.'.join(map(str, error.absolute_path))}: {error.message[:200]}" for error in found)


def _child(schema: Schema, name: str) -> Schema:
    further = schema.get("additionalProperties")
    child: Schema = schema.get("properties", {}).get(name) or (further if isinstance(further, dict) else {})
    return child


def _converted(schema: Schema) -> Schema:
    """JSON schema for Kubernetes' dialect: its extensions spelled out, and no field that is not named."""
    result = dict(_converted_parts(schema))
    if schema.get("x-kubernetes-int-or-string"):
        result.pop("type", None)
        result.pop("anyOf", None)
        result["type"] = ["integer", "string"]
    elif schema.get("nullable") and "type" in result:
        result["type"] = [result["type"], "null"]
    is_open = schema.get("x-kubernetes-preserve-unknown-fields") or schema.get("x-kubernetes-embedded-resource")
    if "properties" in result and "additionalProperties" not in result and not is_open:
        result["additionalProperties"] = False
    return result


def _converted_parts(schema: Schema) -> Iterator[tuple[str, Any]]:
    for key, value in schema.items():
        if key == "properties":
            yield key, {name: _converted(part) for name, part in value.items()}
        elif key in ("items", "additionalProperties") and isinstance(value, dict):
            yield key, _converted(value)
        else:
            yield key, value
