"""The gateway's Serve deployment: the application's ingress."""

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from starlette.types import ASGIApp

from deployments.auth import load_keys
from deployments.client import ServeClient, scrape
from deployments.codec import load_tokenizer
from deployments.front import Front
from deployments.gateway_members import MEMBERS, Membership
from deployments.live_settings import LiveSettings
from deployments.logs import configure_logging
from deployments.ray_metrics import RayMetrics
from deployments.routes import build_http_app
from deployments.service import GatewaySettings, Service
from deployments.tracing import tracer_for, tracing_for
from deployments.wire import EngineCard

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle

    from cluster.config import EngineConfig
    from cluster.telemetry.tracing import Tracing
    from cluster.telemetry.tracing_config import TracingConfig
    from deployments.verifier_replica import VerifierReplica

GATEWAY_KNOBS = (
    "limits", "default_timeout_s", "keep_alive_s", "routing", "max_resumes", "stream_obfuscation",
)  # fmt: skip
"""Settings of `GatewaySettings` that change while a gateway serves."""

OTHER_MODEL_PAUSE_S = 1.0
"""Between two questions for a verifier of the gateway's own model."""

logger = logging.getLogger(__name__)


class GatewayReplica:
    """Holds a tokenizer and a handle to the verifiers; Serve asks it for its ASGI app.

    Args:
        verifier: handle to the verifier deployment.
        engine: names the model whose tokenizer is loaded.
        settings: the gateway's.
        api_keys_file: file with API keys, read here, on the replica's node.
        drafter: handle to the drafter deployment, for its metrics; None without one.
        controller: handle to the controller deployment, for the same; None without one.
        tracing: where spans go; None for no traces.
        ray_metrics: copy metrics to Ray's.
    """

    async def __init__(  # type: ignore[misc]  # Serve awaits it
        self,
        verifier: "DeploymentHandle[VerifierReplica]",
        engine: "EngineConfig",
        settings: GatewaySettings,
        api_keys_file: str | None,
        *,
        drafter: "DeploymentHandle[Any] | None" = None,
        controller: "DeploymentHandle[Any] | None" = None,
        tracing: "TracingConfig | None" = None,
        ray_metrics: bool = True,
    ) -> None:
        self._has_pools = controller is not None
        self._others = [handle for handle in (drafter, controller) if handle is not None]
        self._verifier, self._engine, self._settings = verifier, engine, settings
        self._keys = load_keys(api_keys_file)
        self._tracing_config, self._ray_metrics = tracing, ray_metrics
        self._tracing: Tracing | None = None

    async def __serve_build_asgi_app__(self) -> ASGIApp:
        """The HTTP app; waits until a verifier tells about its engine."""
        from ray import serve

        configure_logging()
        context = serve.get_replica_context()
        self._replica = replica = context.replica_id.unique_id
        self._gateways: Any = serve.get_deployment_handle(context.deployment, app_name=context.app_name)
        self._client = client = ServeClient(self._verifier, self._others, replica)
        engine = self._engine
        tokenizer, fingerprint = load_tokenizer(engine.model, revision=engine.revision, cache_dir=engine.cache_dir)
        card = await _card_of(client, fingerprint)
        self._tracing = tracing_for(self._tracing_config, component="gateway", replica=replica)
        self._service = service = Service(
            client=client,
            card=card,
            tokenizer=tokenizer,
            settings=self._settings,
            keys=self._keys,
            replica=replica,
            snapshot=client.snapshot if self._has_pools else None,
            tracer=tracer_for(self._tracing, self._settings.served_model_name or card.model_id),
            peers=self._peers,
            grammar=engine.grammar,
        )
        service.shaper.warm_up()
        self._live = LiveSettings(self._settings, GATEWAY_KNOBS, self._apply, deployment="Gateway", replica=replica)
        service.extra_metrics = (self._live.metrics,)
        if self._ray_metrics:
            copy = RayMetrics(lambda: (*service.metric_sets(), client.router_metrics()))
            self._copying = asyncio.create_task(copy.run())
        self._watching = asyncio.create_task(self._watch())
        self._front = Front(build_http_app(service, echo_request_id=False))
        return self._front

    async def check_health(self) -> None:
        """Serve asks once the replica has started, and then now and again; an event loop that hangs does not answer."""
        self._live.started()

    async def reconfigure(self, user_config: Any) -> None:
        """Take Serve's `user_config`: settings among `GATEWAY_KNOBS`."""
        self._live.change(user_config)

    async def drain(self, grace_s: float) -> None:
        """Take no new work, and end what is still open after a time; `/ready` says so at once."""
        self._service.drain.begin(grace_s, refuse=True)

    async def num_active(self) -> int:
        """Generation requests in progress."""
        return self._service.num_active

    async def metrics(self, asker: str) -> str:
        """This gateway's own scrape; nothing for itself, who has it."""
        if asker == self._replica:
            return ""
        sets = (*self._service.metric_sets(), self._client.router_metrics())
        return "".join(each.render() for each in sets)

    async def _peers(self) -> list[str]:
        """The scrapes of the other gateways that answer in time."""
        return await scrape(self._gateways, self._replica)

    def _apply(self, settings: GatewaySettings) -> None:
        self._service.configure(settings)
        self._front.app = build_http_app(self._service, echo_request_id=False)

    async def _watch(self) -> None:
        """Begin to drain when Serve counts this gateway no more among those that take work."""
        loop, news = asyncio.get_running_loop(), asyncio.Queue[frozenset[str]]()
        MEMBERS.watch(lambda replica_ids: loop.call_soon_threadsafe(news.put_nowait, replica_ids))
        await self._peers()  # The first use of the handle connects its router, whoever answers.
        membership = Membership(self._replica, self._service.drain, self._settings.drain_timeout_s)
        while True:
            membership.hear(await news.get())

    def __del__(self) -> None:
        """Serve's way to end a replica: export the last spans."""
        tracing = getattr(self, "_tracing", None)
        if tracing is not None:
            tracing.stop()


async def _card_of(client: ServeClient, fingerprint: str) -> EngineCard:
    """What a verifier of this model says; waits for one, as others may still serve what was deployed before."""
    while (card := await client.card()).fingerprint != fingerprint:
        logger.warning("a verifier serves another model (%s); waiting for one that serves this", card.model_id)
        await asyncio.sleep(OTHER_MODEL_PAUSE_S)
    return card
