"""The Serve application: `serve run deployments.app:app`, or `deployments.app:build_app` with arguments."""

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from cluster.config import EngineConfig
from deployments.admission import AdmissionConfig
from deployments.gateway import GatewayReplica
from deployments.limits import Limits
from deployments.service import GatewaySettings
from deployments.verifier import VerifierConfig, VerifierReplica

if TYPE_CHECKING:
    from ray.serve import Application

MANY = 100_000
"""For Serve's own limits on ongoing requests, since admission bounds them with a better answer."""


class AppArgs(BaseModel):
    """Arguments of the application; a Serve YAML passes the same as `args`.

    Attributes:
        engine: settings of `cluster.config.EngineConfig`.
        admission: bounds of each verifier's queue.
        limits: bounds on requests.
        served_model_name: what clients call the model; None takes the engine's name.
        api_keys_file: file with one API key per line; keys also come from OUTRIDER_API_KEYS.
        default_timeout_s: deadline of requests that bring none.
        keep_alive_s: idle time after which a stream carries a comment.
        stream_interval_s: longest time between two events of a stream under load.
        num_verifiers: verifier replicas.
        num_gateways: gateway replicas.
        verifier_cpus: CPUs that Ray reserves for a verifier.
        gateway_cpus: CPUs that Ray reserves for a gateway.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    engine: EngineConfig = EngineConfig()
    admission: AdmissionConfig = AdmissionConfig()
    limits: Limits = Limits()
    served_model_name: Annotated[str, Field(pattern=r"^\S{1,256}$")] | None = None
    api_keys_file: str | None = None
    default_timeout_s: Annotated[float, Field(gt=0)] | None = None
    keep_alive_s: Annotated[float, Field(gt=0)] = 15.0
    stream_interval_s: Annotated[float, Field(ge=0, le=10)] = 0.3
    num_verifiers: Annotated[int, Field(ge=1)] = 1
    num_gateways: Annotated[int, Field(ge=1)] = 1
    verifier_cpus: Annotated[float, Field(ge=0)] = 1.0
    gateway_cpus: Annotated[float, Field(ge=0)] = 0.1


def build_app(args: AppArgs) -> "Application":
    """The application: a gateway bound to verifiers. Loads nothing; replicas do.

    Args:
        args: checked arguments.
    """
    from ray import serve

    deployment: Any = serve.deployment  # its annotations do not know that a class may be given directly
    verifier = deployment(VerifierReplica).options(
        name="Verifier",
        num_replicas=args.num_verifiers,
        max_ongoing_requests=MANY,
        health_check_period_s=5,
        health_check_timeout_s=60,
        graceful_shutdown_timeout_s=10,
        graceful_shutdown_wait_loop_s=0.2,
        ray_actor_options={"num_cpus": args.verifier_cpus},
    )
    config = VerifierConfig(engine=args.engine, admission=args.admission, stream_interval_s=args.stream_interval_s)
    settings = GatewaySettings(
        limits=args.limits,
        served_model_name=args.served_model_name,
        default_timeout_s=args.default_timeout_s,
        keep_alive_s=args.keep_alive_s,
    )
    gateway = deployment(serve.ingress()(GatewayReplica)).options(
        name="Gateway",
        num_replicas=args.num_gateways,
        max_ongoing_requests=MANY,
        graceful_shutdown_timeout_s=10,
        graceful_shutdown_wait_loop_s=0.2,
        ray_actor_options={"num_cpus": args.gateway_cpus},
    )
    bound: Application = gateway.bind(verifier.bind(config), args.engine, settings, args.api_keys_file)
    return bound


app = build_app(AppArgs())
