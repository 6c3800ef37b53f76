import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from autoscaling.pool_config import PoolConfig
from cluster.config import DraftConfig, EngineConfig
from cluster.errors import ConfigError
from deployments.app import AppArgs, build_app
from deployments.verifier_config import RoleSeats


def test_the_bound_app_is_cheap_to_import_and_loads_neither_torch_nor_the_tracing_that_is_off() -> None:
    unwanted = ("torch", "cluster.telemetry.tracing", "opentelemetry.exporter.otlp")
    code = (
        "import sys; from deployments.app import app; "
        f"print(type(app).__name__, any(name in sys.modules for name in {unwanted}))"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["Application", "False"]


def test_arguments_become_the_engines_own_settings() -> None:
    args = AppArgs.model_validate({"engine": {"model": "/m", "num_speculative_tokens": 3}, "limits": {"max_n": 2}})
    assert args.engine == EngineConfig(model="/m", num_speculative_tokens=3)
    assert args.limits.max_n == 2


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"engin": {}}, "engin"),
        ({"engine": {"modl": "x"}}, "modl"),
        ({"limits": {"max_m": 1}}, "max_m"),
        ({"admission": {"queue": 1}}, "queue"),
        ({"served_model_name": "a b"}, "served_model_name"),
        ({"num_verifiers": 0}, "num_verifiers"),
        ({"pools": {"mod": "batch"}}, "mod"),
        ({"drain_timeout_s": 0}, "drain_timeout_s"),
        ({"routing": "random"}, "routing"),
    ],
)
def test_unknown_or_wrong_arguments_are_refused_by_name(values: dict[str, object], field: str) -> None:
    with pytest.raises(ValidationError, match=field):
        AppArgs.model_validate(values)


def test_the_engines_own_checks_hold_here_too() -> None:
    with pytest.raises(ConfigError, match="num_speculative_tokens"):
        AppArgs.model_validate({"engine": {"num_speculative_tokens": 1000}})


def test_the_gateway_is_told_how_calls_of_tools_are_found() -> None:
    assert bound(AppArgs(tool_call_parser="mistral"))["Gateway"].init_args[2].tool_call_parser == "mistral"
    with pytest.raises(ValidationError, match="tool_call_parser"):
        AppArgs.model_validate({"tool_call_parser": "guess"})


def test_the_default_application_fits_on_two_cpus() -> None:
    args = AppArgs()
    for_drafters = args.num_drafters * args.drafter_cpus
    assert args.num_verifiers * args.verifier_cpus + args.num_gateways * args.gateway_cpus + for_drafters <= 2


def bound(args: AppArgs) -> dict[str, Any]:
    """The deployments of an application by name."""
    gateway: Any = build_app(args)._bound_deployment
    verifier = gateway.init_args[0]._bound_deployment
    drafter = verifier.init_args[1]
    controller = verifier.init_args[3]
    watched = {"tracing": args.tracing, "ray_metrics": args.ray_metrics}
    assert gateway.init_kwargs == {"drafter": drafter, "controller": controller, **watched}
    found = {"Gateway": gateway, "Verifier": verifier, "Drafter": drafter and drafter._bound_deployment}
    found["Controller"] = controller and controller._bound_deployment
    assert all(deployment is None or deployment.name == name for name, deployment in found.items())
    return found


def test_the_application_is_a_gateway_bound_to_verifiers_and_those_to_drafters() -> None:
    args = AppArgs(
        num_verifiers=3, drafter="actor", draft=DraftConfig(model="/draft"), num_drafters=2, drafter_gpus=0.5
    )
    deployments = bound(args)
    assert deployments["Verifier"].num_replicas == 3
    drafter = deployments["Drafter"]
    assert drafter.num_replicas == 2
    assert drafter.ray_actor_options == {"num_cpus": 0.5, "num_gpus": 0.5}
    (settings,) = drafter.init_args
    assert (settings.draft.model, settings.loads_at_start) == ("/draft", True)
    assert (deployments["Verifier"].init_args[0].drafter, deployments["Verifier"].init_args[0].num_drafters) == (
        "actor",
        2,
    )


def test_a_single_verifier_has_no_pools_and_no_controller() -> None:
    deployments = bound(AppArgs())
    assert deployments["Controller"] is None
    verifier = deployments["Verifier"]
    assert (verifier.init_args[0].max_num_seqs_by_role, verifier.init_args[2]) == (None, None)


@pytest.mark.parametrize("values", [{"num_verifiers": 2}, {"pools": {}}])
def test_several_verifiers_or_settings_of_pools_bring_a_controller(values: dict[str, object]) -> None:
    args = AppArgs.model_validate({"engine": {"num_speculative_tokens": 3}, **values})
    deployments = bound(args)
    controller, verifier = deployments["Controller"], deployments["Verifier"]
    assert (controller.num_replicas, controller.init_args) == (1, (args.effective_pools, "Verifier"))
    assert verifier.init_args[2] == args.effective_pools
    assert args.effective_pools == PoolConfig(num_speculative_tokens=3)
    assert verifier.init_args[0].max_num_seqs_by_role == RoleSeats(speculative=16, batch=128)


def test_calls_to_verifiers_are_routed_by_their_own_router_and_removed_ones_may_finish() -> None:
    config = bound(AppArgs(drain_timeout_s=77))["Verifier"]._deployment_config
    assert config.request_router_config.request_router_class == "deployments.verifier_router.VerifierRouter"
    assert config.request_router_config.request_routing_stats_period_s == 0.5
    assert config.graceful_shutdown_timeout_s == 77


def test_a_gateway_that_is_removed_may_finish_too_and_its_successor_starts_before_it_goes() -> None:
    gateway = bound(AppArgs(drain_timeout_s=77))["Gateway"]
    config = gateway._deployment_config
    assert config.request_router_config.request_router_class == "deployments.gateway_router.GatewayRouter"
    assert config.graceful_shutdown_timeout_s == gateway.init_args[2].drain_timeout_s == 77
    assert config.max_surge_percent == 100


def test_a_user_config_that_was_taken_away_again_leaves_the_arguments_in_force() -> None:
    deployments = bound(AppArgs(num_verifiers=2))
    for name in ("Gateway", "Verifier", "Controller"):
        assert deployments[name].user_config == {}


def test_bounds_of_the_pools_let_the_plan_scale_the_verifiers() -> None:
    args = AppArgs.model_validate({"pools": {"min_replicas": 1, "max_replicas": 3}})
    verifier = bound(args)["Verifier"]
    config = verifier._deployment_config.autoscaling_config
    assert (config.min_replicas, config.max_replicas) == (1, 3)
    assert verifier.init_args[0].num_verifiers == 3
    assert bound(AppArgs(pools=PoolConfig()))["Verifier"]._deployment_config.autoscaling_config is None


def test_predictions_reckon_with_no_drafts_where_nobody_drafts() -> None:
    pools = AppArgs(num_verifiers=2, drafter="off").effective_pools
    assert pools is not None
    assert pools.num_speculative_tokens == 0


def test_where_the_layout_is_measured_drafters_wait_to_be_asked() -> None:
    (settings,) = bound(AppArgs(draft=DraftConfig(model="/draft")))["Drafter"].init_args
    assert not settings.loads_at_start


def test_scaling_takes_the_place_of_a_fixed_number() -> None:
    args = AppArgs.model_validate({"draft": {"model": "/d"}, "drafter_scaling": {"min_replicas": 2, "max_replicas": 3}})
    config = bound(args)["Drafter"]._deployment_config.autoscaling_config
    assert (config.min_replicas, config.max_replicas) == (2, 3)


@pytest.mark.parametrize(
    "values",
    [
        {"drafter": "local", "draft": {"model": "/d"}},
        {"drafter": "ngram", "draft": {"model": "/d"}},
        {"drafter": "off", "draft": {"model": "/d"}},
        {"engine": {"num_speculative_tokens": 0}, "draft": {"model": "/d"}},
        {"engine": {"drafter": "off"}, "draft": {"model": "/d"}},
        {"engine": {"model": "/another/target"}},
    ],
)
def test_no_drafter_is_deployed_where_none_can_be_used(values: dict[str, object]) -> None:
    assert bound(AppArgs.model_validate(values))["Drafter"] is None


def test_another_target_without_a_draft_model_is_served_with_prompt_lookup() -> None:
    args = AppArgs.model_validate({"engine": {"model": "/another/target"}})
    assert (args.draft_model, args.effective_drafter) == (None, "ngram")


def test_heads_draft_where_prompt_lookup_is_off_and_not_where_all_drafting_is() -> None:
    values = {"engine": {"drafter": "off"}, "draft": {"heads": ["/some/head", "mtp"]}}
    args = AppArgs.model_validate(values)
    assert (args.draft.heads, args.effective_drafter) == (("/some/head", "mtp"), "ngram")
    assert AppArgs.model_validate(values | {"drafter": "off"}).effective_drafter == "off"


def test_the_bundled_target_takes_the_bundled_draft_model_where_it_is_shipped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("cluster.config.BUNDLED_DRAFT_FOLDER", tmp_path)
    assert (AppArgs().draft_model, AppArgs().effective_drafter) == ("bundled", "auto")
    monkeypatch.setattr("cluster.config.BUNDLED_DRAFT_FOLDER", tmp_path / "missing")
    assert (AppArgs().draft_model, AppArgs().effective_drafter) == (None, "ngram")


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"drafter": "actor", "engine": {"model": "/m"}}, "draft.model"),
        ({"drafter": "local", "engine": {"model": "/m"}}, "draft.model"),
        ({"drafter": "actor", "draft": {"model": "/d"}, "engine": {"num_speculative_tokens": 0}},
         "engine.num_speculative_tokens"),
        ({"drafter": "ngram", "drafter_scaling": {}}, "drafter_scaling"),
        ({"drafter_scaling": {}, "num_drafters": 2}, "num_drafters"),
        ({"drafter_gpus": 1.5}, "drafter_gpus"),
        ({"drafter_placement": {"kind": "same_node"}}, "drafter_placement.kind"),
        ({"draft": {"num_threads": 0}}, "draft.num_threads"),
        ({"num_verifiers": 2, "pools": {"min_replicas": 1, "max_replicas": 3}}, "num_verifiers"),
        ({"pools": {"heartbeat_s": 0}}, "pools.heartbeat_s"),
        ({"num_verifiers": 2, "engine": {"max_num_batched_tokens": 64}}, "engine.max_num_batched_tokens"),
    ],
)  # fmt: skip
def test_contradictions_are_refused_by_field(values: dict[str, object], field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        AppArgs.model_validate(values)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"drafter": "maybe"}, "drafter"),
        ({"num_drafters": 0}, "num_drafters"),
        ({"num_drafters": 1025}, "num_drafters"),
        ({"drafter_cpus": -1}, "drafter_cpus"),
        ({"drafter_gpus": -0.5}, "drafter_gpus"),
        ({"draft": {"modle": "x"}}, "modle"),
        ({"drafter_scaling": {"max": 1}}, "max"),
    ],
)
def test_drafter_arguments_out_of_range_are_refused_by_name(values: dict[str, object], field: str) -> None:
    with pytest.raises(ValidationError, match=field):
        AppArgs.model_validate(values)


def test_a_serve_file_may_give_the_plan_to_the_whole_application() -> None:
    from ray.serve.schema import ServeApplicationSchema

    file = {
        "name": "outrider",
        "import_path": "deployments.app:build_app",
        "args": {"pools": {"min_replicas": 1, "max_replicas": 8}},
        "autoscaling_policy": {
            "policy_function": "autoscaling.serve_policy:AppPlanPolicy",
            "policy_kwargs": {"per_verifier": {"Drafter": 0.25}},
        },
    }
    schema = ServeApplicationSchema.model_validate(file)
    assert schema.autoscaling_policy == file["autoscaling_policy"]
    assert AppArgs.model_validate(schema.args).most_verifiers == 8
