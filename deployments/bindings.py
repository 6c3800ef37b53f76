"""The deployments of the application: each bound to its settings, and to the deployments that it calls."""

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from deployments.controller import CONTROLLER_NAME, ControllerReplica
from deployments.discovery import LOAD_PERIOD_S, ROUTER_CLASS
from deployments.drafter import DrafterReplica, DrafterSettings
from deployments.gateway import GatewayReplica
from deployments.gateway_members import ROUTER_CLASS as GATEWAY_ROUTER_CLASS
from deployments.placement import drafter_options
from deployments.pool_view import ROUTER_CLASS as VERIFIER_ROUTER_CLASS
from deployments.replica_stats import STATS_PERIOD_S
from deployments.service import GatewaySettings
from deployments.verifier_config import VerifierConfig
from deployments.verifier_replica import VerifierReplica

if TYPE_CHECKING:
    from ray.serve import Application

    from deployments.app import AppArgs

_logger = logging.getLogger(__name__)

VERIFIER_NAME = "Verifier"
"""Of the deployment."""

CONTROLLER_CPUS = 0.01
"""That Ray reserves for the controller: it does a few milliseconds of work in a second."""

NO_CHANGES: dict[str, Any] = {}
"""Serve's `user_config` where a Serve file has none. Not None: that would leave the one before it in force."""

MANY = 100_000
"""For Serve's own limits on ongoing requests, since admission bounds them with a better answer."""


def bind_gateway(
    deployment: Any,
    args: "AppArgs",
    verifier: "Application",
    drafter: "Application | None",
    controller: "Application | None",
) -> "Application":
    """The gateway deployment, which is the application's ingress."""
    from ray import serve

    settings = GatewaySettings(
        limits=args.limits,
        served_model_name=args.served_model_name,
        default_timeout_s=args.default_timeout_s,
        keep_alive_s=args.keep_alive_s,
        max_resumes=args.max_resumes,
        stream_obfuscation=args.stream_obfuscation,
        routing=args.routing,
        drain_timeout_s=args.drain_timeout_s,
        tool_call_parser=args.tool_call_parser,
    )
    gateway = deployment(serve.ingress()(GatewayReplica)).options(
        name="Gateway",
        num_replicas=args.num_gateways,
        max_ongoing_requests=MANY,
        max_surge_percent=100,  # It holds little, so its successor can start beside it.
        graceful_shutdown_timeout_s=args.drain_timeout_s,
        graceful_shutdown_wait_loop_s=0.2,
        request_router_config={"request_router_class": GATEWAY_ROUTER_CLASS},
        ray_actor_options={"num_cpus": args.gateway_cpus},
        user_config=NO_CHANGES,
    )
    bound: Application = gateway.bind(
        verifier,
        args.engine,
        settings,
        args.api_keys_file,
        drafter=drafter,
        controller=controller,
        tracing=args.tracing,
        ray_metrics=args.ray_metrics,
    )
    return bound


def bind_verifier(
    deployment: Any, args: "AppArgs", drafter: "Application | None", controller: "Application | None"
) -> "Application":
    """The verifier deployment."""
    config = VerifierConfig(
        engine=replace(args.engine, drafter="ngram") if args.drafter == "ngram" else args.engine,
        admission=args.admission,
        stream_interval_s=args.stream_interval_s,
        drafter=args.effective_drafter,
        draft=replace(args.draft, model=args.draft_model),
        num_verifiers=args.most_verifiers,
        num_drafters=args.num_drafters,
        max_num_seqs_by_role=args.seats,
        cost=args.cost,
        tracing=args.tracing,
        ray_metrics=args.ray_metrics,
    )
    scaling = None if args.pools is None else args.pools.serve_config()
    count = {"num_replicas": args.num_verifiers} if scaling is None else {"autoscaling_config": scaling}
    options = deployment(VerifierReplica).options(
        name=VERIFIER_NAME,
        max_ongoing_requests=MANY,
        health_check_period_s=5,
        health_check_timeout_s=20,  # Serve replaces a verifier after three failures in a row.
        graceful_shutdown_timeout_s=args.drain_timeout_s,
        graceful_shutdown_wait_loop_s=0.2,
        request_router_config={
            "request_router_class": VERIFIER_ROUTER_CLASS,
            "request_routing_stats_period_s": STATS_PERIOD_S,
        },
        ray_actor_options={"num_cpus": args.verifier_cpus},
        user_config=NO_CHANGES,
        **count,
    )
    bound: Application = options.bind(config, drafter, args.effective_pools, controller)
    return bound


def bind_controller(deployment: Any, args: "AppArgs") -> "Application | None":
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
        user_config=NO_CHANGES,
    )
    bound: Application = options.bind(pools, VERIFIER_NAME, ray_metrics=args.ray_metrics)
    return bound


def bind_drafter(deployment: Any, args: "AppArgs") -> "Application | None":
    """The drafter deployment, or None where no drafter actor can be used."""
    if args.effective_drafter not in ("auto", "actor"):
        _logger.info("no Drafter deployment: drafter = %r, draft model %r", args.drafter, args.draft_model)
        return None
    settings = DrafterSettings(
        engine=args.engine,
        draft=replace(args.draft, model=args.draft_model),
        on_gpu=args.drafter_gpus > 0,
        loads_at_start=args.effective_drafter == "actor",
        cost=args.cost,
        tracing=args.tracing,
        ray_metrics=args.ray_metrics,
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
