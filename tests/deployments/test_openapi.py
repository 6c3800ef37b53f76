import json

import jsonschema  # type: ignore[import-untyped]
import pytest

from tests.deployments.conftest import Serve
from tests.deployments.fake_engine import FakeEngine

pytestmark = pytest.mark.anyio

POSTS = ("/v1/chat/completions", "/v1/completions", "/v1/chat/speculative-completions", "/tokenize", "/detokenize")


async def test_every_reference_of_the_document_resolves_and_bodies_are_described(serve: Serve) -> None:
    async with serve() as server:
        document = (await server.http.get("/openapi.json")).json()
    schemas = document["components"]["schemas"]
    references = {part.split('"')[0] for part in json.dumps(document).split('"#/components/schemas/')[1:]}
    assert references <= set(schemas)
    for path in POSTS:
        (content,) = document["paths"][path]["post"]["requestBody"]["content"].values()
        assert content["schema"]["$ref"].rsplit("/", 1)[1] in schemas
        assert {"400", "401", "408", "413", "429", "503"} <= set(document["paths"][path]["post"]["responses"])


async def test_the_fields_of_structured_answers_stand_in_the_document_under_the_names_that_clients_send(
    serve: Serve,
) -> None:
    async with serve() as server:
        schemas = (await server.http.get("/openapi.json")).json()["components"]["schemas"]
    fields = {name: set(schema.get("properties", ())) for name, schema in schemas.items()}
    assert {"response_format", "structured_outputs", "tools", "tool_choice"} <= fields["ChatCompletionRequest"]
    assert {"response_format", "structured_outputs"} <= fields["CompletionRequest"]
    assert fields["StructuredOutputs"] == {"json", "regex", "choice", "grammar", "json_object"}
    assert fields["JsonSchemaFormat"] == {"name", "description", "schema", "strict"}
    assert {"tool_calls", "tool_call_id"} <= fields["ChatMessage"]


async def test_errors_fit_their_schema(serve: Serve) -> None:
    async with serve(engine=FakeEngine()) as server:
        schema = (await server.http.get("/openapi.json")).json()["components"]["schemas"]
        answer = await server.http.post("/v1/completions", json={})
    resolved = {**schema["ErrorResponse"], "components": {"schemas": schema}}
    jsonschema.validate(answer.json(), resolved)
