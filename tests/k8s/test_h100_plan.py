"""What the overlay for H100 and its description say is what `outrider plan` works out."""

import json
import re
import shlex
from typing import Any

import pytest

from deployments import cli
from deployments.placement import VerifierPlacement, verifier_options
from tests.k8s.manifests import K8S, application, groups
from tests.k8s.test_serve_config import GPU, app_args, deployments_of, limits

README = (K8S / "README.md").read_text()
SELECTOR = "placement_group_bundle_label_selector"


@pytest.fixture
def plan(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The plan of the command in the description."""
    (command,) = re.findall(r"^outrider (plan .*)$", README, re.MULTILINE)
    assert cli.main([*shlex.split(command), "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_the_command_is_about_the_models_and_gpus_of_the_overlay(plan: dict[str, Any]) -> None:
    args = app_args("h100")
    assert plan["target"] in args.engine.model and plan["drafter"]["model"] in str(args.draft.model)
    product = groups("h100")["verifier"]["template"]["spec"]["nodeSelector"]["nvidia.com/gpu.product"]
    assert f"-{plan['gpu']}-" in product
    assert plan["num_gpus"] == int(limits("h100", "verifier")[GPU])
    assert (plan["max_model_len"], plan["dtype"]) == (args.engine.max_model_len, "bf16")
    assert args.engine.dtype == "bfloat16"


def test_each_verifier_is_placed_as_the_plan_says(plan: dict[str, Any]) -> None:
    (planned,) = plan["serve_config"]["applications"][0]["deployments"]
    (verifier,) = [each for each in application("h100")["deployments"] if each["name"] == "Verifier"]
    assert plan["tensor_parallel"] == 8
    # The label of the group stands for the kind of GPU: autoscalers know it before there is a node.
    assert {name: value for name, value in verifier.items() if name != SELECTOR} == {
        name: value for name, value in planned.items() if name != SELECTOR
    }
    placed = VerifierPlacement(num_ranks=8, num_cpus=16, node_labels={"outrider/group": "verifier"})
    assert verifier == {"name": "Verifier", **verifier_options(placed)}


def test_a_drafter_gets_the_gpu_that_the_plan_gives_it(plan: dict[str, Any]) -> None:
    assert plan["drafter"]["place"] == "own-gpu"
    assert deployments_of("h100")["Drafter"]["ray_actor_options"]["num_gpus"] == 1


def test_caches_and_rounds_are_within_the_plan(plan: dict[str, Any]) -> None:
    args = app_args("h100")
    planned = plan["serve_config"]["applications"][0]["args"]
    assert args.engine.kv_cache_tokens <= plan["kv_cache_tokens"]
    assert args.draft.kv_cache_tokens <= plan["drafter"]["kv_cache_tokens"]
    assert args.engine.max_num_batched_tokens <= planned["engine"]["max_num_batched_tokens"]
    assert args.seats is not None
    assert {"speculative": args.seats.speculative, "batch": args.seats.batch} == {
        name: role["seats"] for name, role in plan["roles"].items()
    }


def test_the_numbers_of_the_description_are_those_of_the_plan_and_the_overlay(plan: dict[str, Any]) -> None:
    (paragraph,) = re.findall(r"^A verifier has 8 ranks\..*?\n\n", README, re.MULTILINE | re.DOTALL)
    args = app_args("h100")
    for number in (
        round(plan["memory"]["weights_bytes"] / (1 << 20)),
        plan["kv_cache_tokens"],
        args.engine.kv_cache_tokens,
        plan["drafter"]["kv_cache_tokens"],
        args.draft.kv_cache_tokens,
    ):
        assert re.search(rf"\b{number:,}\b", paragraph)
    assert plan["memory"]["reserve_bytes"] == 3 << 30 and "3 GiB" in paragraph
