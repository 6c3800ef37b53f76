"""The Serve application: `serve run deployments.app:app`, or `deployments.app:build_app` with arguments."""

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from autoscaling.pool_config import PoolConfig
from cluster.config import DraftConfig, EngineConfig, draft_model_for
from cluster.errors import ConfigError
from cluster.routing.policies import PolicyName
from deployments.admission import AdmissionConfig
from deployments.controller import CONTROLLER_NAME, ControllerReplica
from deployments.discovery import LOAD_PERIOD_S, ROUTER_CLASS
from deployments.drafter import DrafterReplica, DrafterSettings
from deployments.drafter_scaling import DrafterScaling
from deployments.gateway import GatewayReplica
from deployments.layout import DrafterMode
from deployments.limits import Limits
from deployments.placement import Placement, check_gpus, drafter_options
from deployments.pool_view import ROUTER_CLASS as VERIFIER_ROUTER_CLASS
from deployments.replica_stats import STATS_PERIOD_S
from deployments.service import GatewaySettings
from deployments.verifier_config import RoleSeats, VerifierConfig
from deployments.verifier_replica import VerifierReplica

if TYPE_CHECKING:
    from ray.serve import Application

_logger = logging.getLogger(__name__)

VERIFIER_NAME = "Verifier"
"""Of the deployment."""

CONTROLLER_CPUS = 0.01
"""That Ray reserves for the controller: it does a few milliseconds of work in a second."""

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
        num_verifiers: verifier replicas, where `pools` has no bounds for their number.
        num_drafters: drafter replicas, where `drafter_scaling` does not decide.
        num_gateways: gateway replicas.
        drafter_scaling: adds and removes drafters by the share of tables that come too late.
        drafter_placement: which nodes drafters run on.
        drafter_cpus: CPUs that Ray reserves for a drafter.
        drafter_gpus: GPUs that Ray reserves for a drafter: a share of one, or whole ones.
        pools: how verifiers are divided between the roles speculative and batch. None leaves a single verifier in role
            speculative with `engine.max_num_seqs`, and takes the defaults of `PoolConfig` for two and more.
        routing: policy that chooses the pool: `learned`, or `rules` (those of the seed documents).
        drain_timeout_s: how long a verifier that is removed may go on with its streams before they are cut.
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
    pools: PoolConfig | None = None
    routing: PolicyName = "learned"
    drain_timeout_s: Annotated[float, Field(gt=0, le=86_400)] = 600.0
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

    @property
    def effective_pools(self) -> PoolConfig | None:
        """The pools in force; predictions reckon with no longer drafts than the engine makes."""
        if self.pools is None and self.num_verifiers == 1:
            return None
        pools = self.pools or PoolConfig()
        longest = 0 if self.effective_drafter == "off" else self.engine.num_speculative_tokens
        return replace(pools, num_speculative_tokens=min(pools.num_speculative_tokens, longest))

    @property
    def most_verifiers(self) -> int:
        """How many verifiers there are at most."""
        return self.num_verifiers if self.pools is None else self.pools.max_replicas or self.num_verifiers

    @property
    def seats(self) -> RoleSeats | None:
        """Sequences of a verifier by role; None where `engine.max_num_seqs` counts."""
        pools = self.effective_pools
        if pools is None:
            return None
        return RoleSeats(speculative=pools.speculative_max_num_seqs, batch=pools.batch_max_num_seqs)

    @model_validator(mode="after")
    def _check_pools(self) -> "AppArgs":
        """Refuse settings of the pools that contradict others."""
        if self.pools is not None and self.pools.max_replicas is not None and self.num_verifiers != 1:
            raise ConfigError(field="num_verifiers", value=self.num_verifiers, allowed="1 beside pools.max_replicas")
        if self.seats is not None:
            self.seats.check(self.engine.max_num_batched_tokens)
        return self

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
    """The application: a gateway bound to verifiers, those to drafters and a controller. Loads nothing; replicas do.

    Args:
        args: checked arguments.
    """
    from ray import serve

    deployment: Any = serve.deployment  # its annotations do not know that a class may be given directly
    drafter = _bind_drafter(deployment, args)
    controller = _bind_controller(deployment, args)
    verifier = _bind_verifier(deployment, args, drafter, controller)
    settings = GatewaySettings(
        limits=args.limits,
        served_model_name=args.served_model_name,
        default_timeout_s=args.default_timeout_s,
        keep_alive_s=args.keep_alive_s,
        routing=args.routing,
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
        verifier, args.engine, settings, args.api_keys_file, drafter=drafter, controller=controller
    )
    return bound


def _bind_verifier(
    deployment: Any, args: AppArgs, drafter: "Application | None", controller: "Application | None"
) -> "Application":
    config = VerifierConfig(
        engine=replace(args.engine, drafter="ngram") if args.drafter == "ngram" else args.engine,
        admission=args.admission,
        stream_interval_s=args.stream_interval_s,
        drafter=args.effective_drafter,
        draft=replace(args.draft, model=args.draft_model),
        num_verifiers=args.most_verifiers,
        num_drafters=args.num_drafters,
        max_num_seqs_by_role=args.seats,
    )
    scaling = None if args.pools is None else args.pools.serve_config()
    count = {"num_replicas": args.num_verifiers} if scaling is None else {"autoscaling_config": scaling}
    options = deployment(VerifierReplica).options(
        name=VERIFIER_NAME,
        max_ongoing_requests=MANY,
        health_check_period_s=5,
        health_check_timeout_s=60,
        graceful_shutdown_timeout_s=args.drain_timeout_s,
        graceful_shutdown_wait_loop_s=0.2,
        request_router_config={
            "request_router_class": VERIFIER_ROUTER_CLASS,
            "request_routing_stats_period_s": STATS_PERIOD_S,
        },
        ray_actor_options={"num_cpus": args.verifier_cpus},
        **count,
    )
    bound: Application = options.bind(config, drafter, args.effective_pools, controller)
    return bound


def _bind_controller(deployment: Any, args: AppArgs) -> "Application | None":
    """The controller deployment, or None where there is nothing to divide."""
    pools = args.effective_pools
    if pools is None:
        return None
    options = deployment(ControllerReplica).options(
        name=CONTROLLER_NAME,
        num_replicas=1,
        max_ongoing_requests=MANY,
        health_check_period_s=1,
        health_check_timeout_s=10,
        graceful_shutdown_timeout_s=1,
        graceful_shutdown_wait_loop_s=0.1,
        ray_actor_options={"num_cpus": CONTROLLER_CPUS},
    )
    bound: Application = options.bind(pools, VERIFIER_NAME)
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
