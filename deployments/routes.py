"""The HTTP routes, over a `Service`. Works under Ray Serve and under any ASGI server."""

import asyncio
from importlib import metadata
from typing import TypeVar

import msgspec
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp

from cluster.errors import DeadlineError, InvalidRequestError, NotFoundError, RequestError, TooLargeError
from cluster.telemetry.prometheus import CONTENT_TYPE, merge_texts
from deployments.edge import CLIENT_GONE, ClientGoneError, Edge, context_of, error_response
from deployments.limits import Limits, check_count, check_depth
from deployments.openapi import ERRORS, body_of, document
from deployments.schema import Body, parse_body
from deployments.schema_openai import (
    ChatCompletionRequest,
    ChatMessage,
    CompletionRequest,
    DetokenizeRequest,
    DetokenizeResponse,
    ModelInfo,
    ModelList,
    TokenizeRequest,
    TokenizeResponse,
)
from deployments.schema_seed import SeedRequest, SeedResponse
from deployments.seed_service import as_chat, seed_response
from deployments.service import PING_TIMEOUT_S, Service, route_headers

BODIES = (ChatCompletionRequest, CompletionRequest, TokenizeRequest, DetokenizeRequest, SeedRequest)
BodyT = TypeVar("BodyT", bound=Body)


def build_http_app(service: Service, *, echo_request_id: bool = True) -> ASGIApp:
    """The whole HTTP app.

    Args:
        service: what the routes stand on.
        echo_request_id: put `x-request-id` on answers (Ray Serve does it itself).
    """
    app = FastAPI(title="Outrider", version=version(), redirect_slashes=False)
    app.openapi = document(app, BODIES)  # type: ignore[method-assign]
    _add_openai_routes(app, service)
    _add_text_routes(app, service)
    _add_operator_routes(app, service)

    @app.exception_handler(RequestError)
    async def refused(request: Request, error: RequestError) -> Response:
        if (span := context_of(request).span) is not None:
            span.note_error(error)
        return error_response(error)

    @app.exception_handler(HTTPException)
    async def framework_error(_: Request, error: HTTPException) -> Response:
        body = {"message": str(error.detail), "type": "invalid_request_error", "param": None, "code": None}
        return JSONResponse({"error": body}, status_code=error.status_code, headers=error.headers)

    @app.exception_handler(Exception)
    async def accident(_: Request, __: Exception) -> Response:
        # Starlette raises it again after this answer; the edge logs it.
        return error_response(RequestError("internal error", code="internal_error"))

    @app.exception_handler(ClientGoneError)
    @app.exception_handler(ClientDisconnect)
    async def gone(_: Request, __: Exception) -> Response:
        return Response(status_code=CLIENT_GONE)

    return Edge(
        app,
        keys=service.keys,
        limits=service.settings.limits,
        metrics=service.metrics,
        clock=service.clock,
        echo_request_id=echo_request_id,
        tracer=service.tracer,
    )


def version() -> str:
    """The installed version."""
    try:
        return metadata.version("outrider")
    except metadata.PackageNotFoundError:
        return "0+unknown"


async def read_body(request: Request, model: type[BodyT], limits: Limits) -> BodyT:
    """The checked body of a request.

    Raises:
        TooLargeError: it has too many bytes.
        DeadlineError: it takes too long to arrive.
        InvalidRequestError: it is not JSON, nested too deeply, or does not fit the model.
    """
    try:
        async with asyncio.timeout(limits.body_timeout_s):
            data = await _body_bytes(request, limits)
    except TimeoutError:
        message = f"the body did not arrive within {limits.body_timeout_s:g} seconds"
        raise DeadlineError(message, code="body_timeout_s") from None
    try:
        value = msgspec.json.decode(data)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidRequestError(f"the body is not valid JSON: {str(error)[:200]}", code="invalid_json") from None
    check_depth(limits, value)
    strict = request.headers.get("x-strict", "").lower() in {"1", "true"}
    return parse_body(model, value, strict=strict)


async def _body_bytes(request: Request, limits: Limits) -> bytearray:
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > limits.max_body_bytes:
            raise TooLargeError(f"the body exceeds {limits.max_body_bytes} bytes", code="max_body_bytes")
    return data


def _check_messages(limits: Limits, messages: list[ChatMessage]) -> None:
    check_count(limits, "max_messages", len(messages), "messages")
    _check_chars(limits, sum(message.num_chars for message in messages), "messages")


def _check_chars(limits: Limits, num_chars: int, param: str) -> None:
    if num_chars > limits.max_prompt_chars:
        raise InvalidRequestError(
            f"{param} exceeds {limits.max_prompt_chars} characters", param=param, code="max_prompt_chars"
        )


def _add_openai_routes(app: FastAPI, service: Service) -> None:
    limits = service.settings.limits

    @app.post("/v1/chat/completions", responses=ERRORS, openapi_extra=body_of(ChatCompletionRequest))
    async def chat_completions(request: Request) -> Response:
        """A chat completion, whole or streamed."""
        body = await read_body(request, ChatCompletionRequest, limits)
        service.check_model(body.model)
        _check_messages(limits, body.messages)
        if (span := context_of(request).span) is not None:
            span.note_input((message.role, message.text) for message in body.messages)
        shaped = await service.shaper.chat(body)
        routed = service.router.chat(body, len(shaped.prompt_ids), service.num_active)
        job = service.preparer.chat(body, shaped, routed, service.caller(request))
        return await service.answer(job, request)

    @app.post("/v1/completions", responses=ERRORS, openapi_extra=body_of(CompletionRequest))
    async def completions(request: Request) -> Response:
        """A text completion, whole or streamed."""
        body = await read_body(request, CompletionRequest, limits)
        service.check_model(body.model)
        _check_chars(limits, sum(map(len, body.prompts)), "prompt")
        prompts = await service.preparer.prompts(body)
        grammar = await service.shaper.grammar(body)
        if (span := context_of(request).span) is not None:
            span.note_input(("user", each if isinstance(each, str) else str(each)) for each in body.prompts)
        routed = service.router.completion(body, prompts, service.codec.decode, service.num_active)
        job = service.preparer.completion(body, prompts, routed, service.caller(request), grammar=grammar)
        return await service.answer(job, request)

    @app.post(
        "/v1/chat/speculative-completions",
        responses=ERRORS,
        openapi_extra=body_of(SeedRequest),
        response_model=SeedResponse,
    )
    async def speculative_completions(request: Request) -> Response:
        """The seed documents' service."""
        body = await read_body(request, SeedRequest, limits)
        _check_chars(limits, len(body.prompt), "prompt")
        if (span := context_of(request).span) is not None:
            span.note_input([("user", body.prompt)])
        active = service.num_active
        routed = service.router.seed(body, active)
        chat = as_chat(body, routed.route)
        caller = service.caller(request)
        job = service.preparer.chat(chat, await service.shaper.chat(chat), routed, caller)
        generation = service.generation(job, request)
        choices = await service.collect(generation, request)
        request_id = body.request_id or caller.request_id
        answer = seed_response(request_id, job, choices[0], generation.timing, active=active + 1)
        return JSONResponse(answer.model_dump(), headers=route_headers(routed.route))


def _add_text_routes(app: FastAPI, service: Service) -> None:
    limits = service.settings.limits

    @app.post("/tokenize", responses=ERRORS, openapi_extra=body_of(TokenizeRequest))
    async def tokenize(request: Request) -> TokenizeResponse:
        """Token ids of a prompt or of a conversation."""
        body = await read_body(request, TokenizeRequest, limits)
        service.check_model(body.model)
        if body.prompt is not None:
            _check_chars(limits, len(body.prompt), "prompt")
            token_ids = await service.codec.encode(body.prompt, add_special_tokens=body.add_special_tokens is not False)
        else:
            messages = body.messages or []
            _check_messages(limits, messages)
            text = await service.shaper.text(body, messages)
            token_ids = await service.codec.encode(text, add_special_tokens=bool(body.add_special_tokens))
        texts = [service.codec.token_text(token_id)[0] for token_id in token_ids] if body.return_token_strs else None
        return TokenizeResponse(
            count=len(token_ids), max_model_len=service.card.max_model_len, tokens=token_ids, token_strs=texts
        )

    @app.post("/detokenize", responses=ERRORS, openapi_extra=body_of(DetokenizeRequest))
    async def detokenize(request: Request) -> DetokenizeResponse:
        """Text of token ids."""
        body = await read_body(request, DetokenizeRequest, limits)
        service.check_model(body.model)
        service.codec.check_ids(body.tokens, "tokens")
        return DetokenizeResponse(prompt=service.codec.decode(body.tokens))

    def model_info() -> ModelInfo:
        card = service.card
        return ModelInfo(
            id=service.model,
            created=service.created,
            root=card.model_id,
            max_model_len=card.max_model_len,
            numerics=card.numerics,
            acceptance=card.acceptance,
            dtype=card.dtype,
            drafter=card.layout,
            drafter_reason=card.layout_reason,
        )

    @app.get("/v1/models", responses=ERRORS)
    async def models() -> ModelList:
        """The one model."""
        return ModelList(data=[model_info()])

    @app.get("/v1/models/{model_id:path}", responses=ERRORS)
    async def model(model_id: str) -> ModelInfo:
        """The model, by name."""
        if model_id not in (service.model, service.card.model_id):
            raise NotFoundError("the model does not exist", param="model", code="model_not_found")
        return model_info()


def _add_operator_routes(app: FastAPI, service: Service) -> None:
    @app.get("/health", responses=ERRORS)
    async def health() -> dict[str, str]:
        """Alive: an engine round came around."""
        await service.client.ping(PING_TIMEOUT_S)
        return {"status": "ok"}

    @app.get("/ready", responses=ERRORS)
    async def ready() -> dict[str, str]:
        """Can take work: a token was generated."""
        await service.check_ready()
        return {"status": "ready"}

    @app.get("/v1/routing/snapshot", responses=ERRORS)
    async def routing_snapshot() -> Response:
        """What routing decides on now, for `outrider explain`; an infinite age is null."""
        known = {"policy": service.settings.routing, "snapshot": service.router.snapshot(service.num_active)}
        return Response(msgspec.json.encode(known), media_type="application/json")

    @app.get("/version", responses=ERRORS)
    async def show_version() -> dict[str, str]:
        """The installed version."""
        return {"version": version()}

    @app.get("/metrics", response_class=PlainTextResponse, responses=ERRORS)
    async def metrics() -> Response:
        """Prometheus text of all verifiers, drafters and gateways, and of the controller."""
        return Response(merge_texts(await service.scrapes()), media_type=CONTENT_TYPE)
