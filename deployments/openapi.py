"""The OpenAPI document: request models by hand (we parse bodies, before FastAPI sees them), errors everywhere."""

from collections.abc import Callable
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

from deployments.schema import ErrorResponse

_REF = "#/components/schemas/{model}"

ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorResponse, "description": text}
    for status, text in {
        400: "Invalid request",
        401: "Missing or wrong API key",
        404: "Unknown model or route",
        408: "Deadline passed",
        413: "Body or headers too large",
        429: "Overloaded; see Retry-After",
        500: "Internal error",
        503: "No replica",
    }.items()
}


def body_of(model: type[BaseModel]) -> dict[str, Any]:
    """`openapi_extra` of a route whose JSON body has this model."""
    schema = {"$ref": _REF.format(model=model.__name__)}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def document(app: FastAPI, models: tuple[type[BaseModel], ...]) -> Callable[[], dict[str, Any]]:
    """A replacement for `app.openapi` that knows the given request models."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = get_openapi(title=app.title, version=app.version, routes=app.routes)
            schemas = schema.setdefault("components", {}).setdefault("schemas", {})
            for model in models:
                body = model.model_json_schema(ref_template=_REF)
                schemas |= body.pop("$defs", {})
                schemas[model.__name__] = body
            schema["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
            schema["security"] = [{"key": []}, {}]
            app.openapi_schema = schema
        return app.openapi_schema

    return openapi
