"""The gateway's Serve deployment: the application's ingress."""

from typing import TYPE_CHECKING, Any

from starlette.types import ASGIApp

from deployments.auth import load_keys
from deployments.client import ServeClient
from deployments.codec import load_tokenizer
from deployments.logs import configure_logging
from deployments.routes import build_http_app
from deployments.service import GatewaySettings, Service

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle

    from cluster.config import EngineConfig
    from deployments.verifier_replica import VerifierReplica


class GatewayReplica:
    """Holds a tokenizer and a handle to the verifiers; Serve asks it for its ASGI app.

    Args:
        verifier: handle to the verifier deployment.
        engine: names the model whose tokenizer is loaded.
        settings: the gateway's.
        api_keys_file: file with API keys, read here, on the replica's node.
        drafter: handle to the drafter deployment, for its metrics; None without one.
        controller: handle to the controller deployment, for the same; None without one.
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
    ) -> None:
        self._has_pools = controller is not None
        self._others = [handle for handle in (drafter, controller) if handle is not None]
        self._verifier, self._engine, self._settings = verifier, engine, settings
        self._keys = load_keys(api_keys_file)

    async def __serve_build_asgi_app__(self) -> ASGIApp:
        """The HTTP app; waits until a verifier tells about its engine."""
        from ray import serve

        configure_logging()
        replica = serve.get_replica_context().replica_id.unique_id
        client = ServeClient(self._verifier, self._others, replica)
        engine = self._engine
        service = Service(
            client=client,
            card=await client.card(),
            tokenizer=load_tokenizer(engine.model, revision=engine.revision, cache_dir=engine.cache_dir),
            settings=self._settings,
            keys=self._keys,
            replica=replica,
            snapshot=client.snapshot if self._has_pools else None,
        )
        return build_http_app(service, echo_request_id=False)
