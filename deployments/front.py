"""The HTTP app in force: another one can take its place while requests are in progress."""

from starlette.types import ASGIApp, Receive, Scope, Send


class Front:
    """Hands each request to the app in force when it came.

    Args:
        app: the first one.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        await self.app(scope, receive, send)
