"""The Serve application: `serve run deployments.app:app`, or `deployments.app:build_app` with arguments."""

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from cluster.config import DraftConfig, EngineConfig, draft_model_for
from cluster.errors import ConfigError
from deployments.admission import AdmissionConfig
from deployments.discovery import LOAD_PERIOD_S, ROUTER_CLASS
from deployments.drafter import DrafterReplica, DrafterSettings
from deployments.drafter_scaling import DrafterScaling
from deployments.gateway import GatewayReplica
from deployments.layout import DrafterMode
from deployments.limits import Limits
from deployments.placement import Placement, check_gpus, drafter_options
from deployments.service import GatewaySettings
from deployments.verifier import VerifierConfig, VerifierReplica

if TYPE_CHECKING:
    from ray.serve import Application

_logger = logging.getLogger(__name__)

MANY = 100_000
"""For Serve's own limits on ongoing requests, since admission bounds them with a better answer."""


class AppArgs(BaseModel):
    """Arguments of the application; a Serve YAML passes the same as `args`.

    Attributes:
        engine: settings of `cluster.config.EngineConfig`.
        admission: bounds of each verifier's queue.
        limits: bounds on requests.
        drafter: who drafts: `actor` (the Drafter deployment, ahead of the verdict), `local` (the draft model in the
            verifier), `ngram` (prompt lookup, no draft model), `off` (nobody), or `auto`: measured at start-up.
        draft: the draft model and its limits.
        served_model_name: what clients call the model; None takes the engine's name.
        api_keys_file: file with one API key per line; keys also come from OUTRIDER_API_KEYS.
        default_timeout_s: deadline of requests that bring none.
        keep_alive_s: idle time after which a stream carries a comment.
        stream_interval_s: longest time between two events of a stream under load.
        num_verifiers: verifier replicas.
        num_drafters: drafter replicas, where `drafter_scaling` does not decide.
        num_gateways: gateway replicas.
        drafter_scaling: adds and removes drafters by the share of tables that come too late.
        drafter_placement: which nodes drafters run on.
        drafter_cpus: CPUs that Ray reserves for a drafter.
        drafter_gpus: GPUs that Ray reserves for a drafter: a share of one, or whole ones.
        verifier_cpus: CPUs that Ray reserves for a verifier.
        gateway_cpus: CPUs that Ray reserves for a gateway.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    engine: EngineConfig = EngineConfig()
    admission: AdmissionConfig = AdmissionConfig()
    limits: Limits = Limits()
    drafter: DrafterMode = "auto"
    draft: DraftConfig = DraftConfig()
    served_model_name: Annotated[str, Field(pattern=r"^\S{1,256}$")] | None = None
    api_keys_file: str | None = None
    default_timeout_s: Annotated[float, Field(gt=0)] | None = None
    keep_alive_s: Annotated[float, Field(gt=0)] = 15.0
    stream_interval_s: Annotated[float, Field(ge=0, le=10)] = 0.3
    num_verifiers: Annotated[int, Field(ge=1)] = 1
    num_drafters: Annotated[int, Field(ge=1, le=1024)] = 1
    num_gateways: Annotated[int, Field(ge=1)] = 1
    drafter_scaling: DrafterScaling | None = None
    drafter_placement: Placement = Placement()
    drafter_cpus: Annotated[float, Field(ge=0)] = 0.5
    drafter_gpus: Annotated[float, Field(ge=0)] = 0.0
    verifier_cpus: Annotated[float, Field(ge=0)] = 1.0
    gateway_cpus: Annotated[float, Field(ge=0)] = 0.1

    @property
    def draft_model(self) -> str | None:
        """The draft model in force: what was set, or the bundled one beside the bundled target."""
        return draft_model_for(self.engine.model, self.draft.model)

    @property
    def effective_drafter(self) -> DrafterMode:
        """`drafter`, where `auto` is settled when there is nothing to choose from."""
        if self.engine.num_speculative_tokens == 0 or self.drafter == "off":
            return "off"
        if self.drafter != "auto":
            return self.drafter
        if self.engine.drafter == "off":
            return "off"
        return "auto" if self.draft_model else "ngram"

    @model_validator(mode="after")
    def _check_drafter(self) -> "AppArgs":
        """Refuse settings that contradict each other."""
        check_gpus("drafter_gpus", self.drafter_gpus)
        because = f"since drafter = {self.drafter!r}"
        if self.drafter in ("actor", "local"):
            if self.draft_model is None:
                raise ConfigError(field="draft.model", value=None, allowed=f"a folder with a draft model, {because}")
            if self.engine.num_speculative_tokens == 0:
                raise ConfigError(field="engine.num_speculative_tokens", value=0, allowed=f"1 to 64, {because}")
        if self.drafter_scaling is not None:
            if self.drafter not in ("auto", "actor"):
                raise ConfigError(field="drafter_scaling", value=self.drafter_scaling, allowed=f"null, {because}")
            if self.num_drafters != 1:
                raise ConfigError(field="num_drafters", value=self.num_drafters, allowed="1 beside drafter_scaling")
        return self


def build_app(args: AppArgs) -> "Application":
    """The application: a gateway bound to verifiers, and those to drafters. Loads nothing; replicas do.

    Args:
        args: checked arguments.
    """
    from ray import serve

    deployment: Any = serve.deployment  # its annotations do not know that a class may be given directly
    drafter = _bind_drafter(deployment, args)
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
    config = VerifierConfig(
        engine=replace(args.engine, drafter="ngram") if args.drafter == "ngram" else args.engine,
        admission=args.admission,
        stream_interval_s=args.stream_interval_s,
        drafter=args.effective_drafter,
        draft=replace(args.draft, model=args.draft_model),
        num_verifiers=args.num_verifiers,
        num_drafters=args.num_drafters,
    )
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
    bound: Application = gateway.bind(
        verifier.bind(config, drafter), args.engine, settings, args.api_keys_file, drafter
    )
    return bound


def _bind_drafter(deployment: Any, args: AppArgs) -> "Application | None":
    """The drafter deployment, or None where no drafter actor can be used."""
    if args.effective_drafter not in ("auto", "actor"):
        _logger.info("no Drafter deployment: drafter = %r, draft model %r", args.drafter, args.draft_model)
        return None
    settings = DrafterSettings(
        engine=args.engine,
        draft=replace(args.draft, model=args.draft_model),
        on_gpu=args.drafter_gpus > 0,
        loads_at_start=args.effective_drafter == "actor",
    )
    options = drafter_options(args.drafter_placement, num_cpus=args.drafter_cpus, num_gpus=args.drafter_gpus)
    if args.drafter_scaling is None:
        options["num_replicas"] = args.num_drafters
    else:
        options["autoscaling_config"] = args.drafter_scaling.serve_config()
    bound: Application = (
        deployment(DrafterReplica)
        .options(
            name="Drafter",
            max_ongoing_requests=MANY,
            health_check_period_s=1,
            health_check_timeout_s=30,
            graceful_shutdown_timeout_s=5,
            graceful_shutdown_wait_loop_s=0.2,
            request_router_config={
                "request_router_class": ROUTER_CLASS,
                "request_routing_stats_period_s": LOAD_PERIOD_S,
            },
            **options,
        )
        .bind(settings)
    )
    return bound


app = build_app(AppArgs())
