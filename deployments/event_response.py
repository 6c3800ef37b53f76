"""A streamed answer as an ASGI response."""

import asyncio
from typing import TYPE_CHECKING

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from deployments import sse, wire
from deployments.draining import DrainingError
from deployments.edge import CLIENT_GONE, ClientGoneError, until_disconnect
from deployments.generation import Generation

if TYPE_CHECKING:
    from deployments.service import Service


class EventResponse(Response):
    """A stream of events that ends, and aborts its request, as soon as the client hangs up.

    Args:
        service: counts it as active.
        generation: the request.
        first: its first item, if it came in time.
        headers: of the answer.
    """

    media_type = "text/event-stream"

    def __init__(
        self, service: "Service", generation: Generation, first: wire.Batch | None, headers: dict[str, str]
    ) -> None:
        super().__init__(headers=headers | {"cache-control": "no-cache", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._service, self._generation, self._first = service, generation, first
        self._is_complete = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events."""
        with self._service.active():
            try:
                await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                work = asyncio.ensure_future(self._service.drain.bounded(self._send(send)))
                await until_disconnect(receive, work)
            except ClientGoneError:
                if not self._is_complete:
                    scope["outrider.context"].status = CLIENT_GONE
            except DrainingError as error:
                await send({"type": "http.response.body", "body": sse.error_events(error), "more_body": False})
            finally:
                await self._generation.close()
        self._service.note(self._generation, scope["outrider.context"])

    async def _send(self, send: Send) -> None:
        events = self._generation.events(self._first)
        try:
            async for chunk in events:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            # Servers report a disconnect as soon as an answer is complete: that is no client that hung up.
            self._is_complete = True
        finally:
            await events.aclose()
