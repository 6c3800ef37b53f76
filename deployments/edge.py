"""The outermost layer of the HTTP app: request ids, header limits, keys, the access log, one 500 for all accidents."""

import asyncio
import logging
import re
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fastapi.responses import JSONResponse
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cluster.clock import Clock
from cluster.errors import OverloadedError, RequestError
from cluster.telemetry import names
from cluster.telemetry.prometheus import MetricSet
from deployments.auth import KeyRing
from deployments.draining import DrainingError
from deployments.limits import Limits, check_headers
from deployments.schema import error_body

if TYPE_CHECKING:
    from deployments.request_span import RequestSpan, RequestTracer

logger = logging.getLogger(__name__)

OPEN_PATHS = frozenset({"/health"})
"""Paths that need no key."""

CLIENT_GONE = 499
_CONTEXT_KEY = "outrider.context"
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")


@dataclass(slots=True, kw_only=True)
class RequestContext:
    """What is known of an HTTP request besides its body.

    Attributes:
        request_id: the client's, if it is well formed, else made up.
        tenant: hash of the API key, "" on an open server.
        start_s: clock time of arrival.
        status: of the answer; 499 until it starts.
        log: fields for the access log.
        span: of the request's trace; None where there is none.
    """

    request_id: str
    start_s: float
    tenant: str = ""
    status: int = CLIENT_GONE
    log: dict[str, Any] = field(default_factory=dict)
    span: "RequestSpan | None" = None


def context_of(connection: HTTPConnection) -> RequestContext:
    """The context that the edge attached to a request."""
    context: RequestContext = connection.scope[_CONTEXT_KEY]
    return context


def error_response(error: RequestError) -> JSONResponse:
    """The answer for an error."""
    headers = {}
    if isinstance(error, OverloadedError | DrainingError):
        headers["Retry-After"] = str(max(1, round(error.retry_after_s)))
    return JSONResponse(error_body(error), status_code=error.status, headers=headers)


class Edge:
    """ASGI layer around the app.

    Args:
        app: what is wrapped.
        keys: API keys.
        limits: bounds on headers.
        metrics: the gateway's registry.
        clock: for durations.
        echo_request_id: add `x-request-id` to answers; Ray Serve's own proxy does it already.
        tracer: begins the spans of requests; None for no traces.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        keys: KeyRing,
        limits: Limits,
        metrics: MetricSet,
        clock: Clock,
        echo_request_id: bool,
        tracer: "RequestTracer | None" = None,
    ) -> None:
        self._app, self._keys, self._limits = app, keys, limits
        self._metrics, self._clock, self._echo = metrics, clock, echo_request_id
        self._tracer = tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = HTTPConnection(scope).headers
        given = headers.get("x-request-id", "")
        request_id = given if _REQUEST_ID.fullmatch(given) else secrets.token_hex(16)
        context = RequestContext(request_id=request_id, start_s=self._clock.now_s())
        scope[_CONTEXT_KEY] = context

        async def send_marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                context.status = message["status"]
                if self._echo:
                    message["headers"] = [*message.get("headers", []), (b"x-request-id", request_id.encode())]
                if context.span is not None and context.span.traceparent:
                    traceparent = (b"traceparent", context.span.traceparent.encode())
                    message["headers"] = [*message.get("headers", []), traceparent]
            await send(message)

        try:
            await self._guarded(scope, receive, send_marked, context)
        finally:
            self._finish(scope, context)

    async def _guarded(self, scope: Scope, receive: Receive, send: Send, context: RequestContext) -> None:
        try:
            check_headers(self._limits, scope["headers"])
            if scope["path"] not in OPEN_PATHS:
                context.tenant = self._keys.check(HTTPConnection(scope).headers.get("authorization"))
            if self._tracer is not None:
                context.span = self._tracer.begin(scope, context)
            await self._app(scope, receive, send)
        except RequestError as error:
            await error_response(error)(scope, receive, send)
        except asyncio.CancelledError:
            context.log["cancelled"] = True
            raise
        except Exception:
            logger.exception("unexpected error", extra={"fields": {"request_id": context.request_id}})
            if context.status == CLIENT_GONE:
                await error_response(RequestError("internal error", code="internal_error"))(scope, receive, send)

    def _finish(self, scope: Scope, context: RequestContext) -> None:
        route = getattr(scope.get("route"), "path", "unmatched")
        duration_s = self._clock.now_s() - context.start_s
        self._metrics.add(names.HTTP_REQUESTS, 1, route, str(context.status))
        self._metrics.observe(names.HTTP_SECONDS, duration_s, route)
        if context.span is not None:
            context.span.end(route=route, status=context.status)
        fields = {
            "request_id": context.request_id,
            "method": scope["method"],
            "route": route,
            "status": context.status,
            "duration_s": round(duration_s, 6),
            "tenant": context.tenant,
        }
        logger.info("request", extra={"fields": fields | context.log})


class ClientGoneError(Exception):
    """The client hung up before it had its answer."""


async def until_disconnect(receive: Receive, work: "asyncio.Task[Any]") -> Any:
    """Await work, but cancel it when the client hangs up.

    Args:
        receive: the request's; its body must have been read.
        work: a running task; cancelled and awaited before this function ends in any way.

    Raises:
        ClientGoneError: the client hung up first.
    """
    listener = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait({work, listener}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            raise ClientGoneError
        return work.result()
    finally:
        listener.cancel()
        work.cancel()
        await asyncio.wait({work, listener})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
