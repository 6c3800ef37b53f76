"""Settings that change while a replica serves."""

import asyncio
import logging
from dataclasses import fields, replace

import httpx
import pytest

from autoscaling.pool_config import PoolConfig
from cluster.errors import ConfigError
from deployments.admission import AdmissionConfig
from deployments.app import AppArgs
from deployments.bindings import NO_CHANGES
from deployments.controller import CONTROLLER_KNOBS
from deployments.controller_core import ControllerCore
from deployments.front import Front
from deployments.gateway import GATEWAY_KNOBS
from deployments.limits import Limits
from deployments.live_settings import LiveSettings, changed
from deployments.routes import build_http_app
from deployments.service import GatewaySettings
from deployments.verifier_config import VerifierConfig
from deployments.verifier_replica import VERIFIER_KNOBS
from tests.deployments.conftest import Serve
from tests.deployments.fake_engine import FakeEngine
from tests.deployments.http_helpers import error_of
from tests.deployments.test_draining import until_active

FIRST = GatewaySettings(limits=Limits(max_n=3), keep_alive_s=4.0)


def live(first: GatewaySettings, applied: list[GatewaySettings]) -> LiveSettings[GatewaySettings]:
    return LiveSettings(first, GATEWAY_KNOBS, applied.append, deployment="Gateway")


def test_what_is_not_named_stays_as_the_arguments_had_it() -> None:
    found = changed(FIRST, {"limits": {"max_prompts": 2}, "routing": "rules"}, GATEWAY_KNOBS)
    assert found == replace(FIRST, limits=Limits(max_n=3, max_prompts=2), routing="rules")


def test_each_user_config_is_put_over_the_arguments_and_not_over_the_one_before() -> None:
    applied = list[GatewaySettings]()
    settings = live(FIRST, applied)
    settings.change({"max_resumes": 1})
    settings.change({"keep_alive_s": 2})
    settings.change(NO_CHANGES)
    assert applied == [replace(FIRST, max_resumes=1), replace(FIRST, keep_alive_s=2.0), FIRST]


@pytest.mark.parametrize(
    ("user_config", "named"),
    [
        (None, "user_config"),
        ({"served_model_name": "x"}, r"user_config\.served_model_name"),
        ({"limits": {"max_m": 2}}, r"user_config\.limits\.max_m"),
        ({"limits": {"max_n": 0}}, r"limits\.max_n"),
        ({"limits": {"max_n": "many"}}, r"user_config\.limits\.max_n"),
        ({"limits": 3}, r"user_config\.limits"),
        ({"routing": "random"}, r"user_config\.routing"),
        ({"keep_alive_s": 0}, "keep_alive_s"),
        ({"max_resumes": 101}, "max_resumes"),
    ],
)
def test_a_wrong_user_config_is_refused_by_name_and_changes_nothing_in_a_replica_that_runs(
    user_config: object, named: str, caplog: pytest.LogCaptureFixture
) -> None:
    applied = list[GatewaySettings]()
    settings = live(FIRST, applied)
    with pytest.raises(ConfigError, match=named):
        settings.change(user_config)
    settings.started()
    with caplog.at_level(logging.ERROR):
        settings.change(user_config)
    assert "is refused" in caplog.text
    assert (applied, settings.current) == ([], FIRST)
    assert 'outrider_user_config_refused{deployment="Gateway",replica="0"} 1' in settings.metrics.render()
    settings.change({"max_resumes": 2})
    assert 'outrider_user_config_refused{deployment="Gateway",replica="0"} 0' in settings.metrics.render()
    assert settings.current == replace(FIRST, max_resumes=2)


def test_knobs_are_settings_and_the_arguments_name_each_of_those_that_are_arguments() -> None:
    for knobs, settings in (
        (GATEWAY_KNOBS, GatewaySettings), (VERIFIER_KNOBS, VerifierConfig), (CONTROLLER_KNOBS, PoolConfig),
    ):  # fmt: skip
        assert set(knobs) <= {field.name for field in fields(settings)}
    told = (AppArgs.__doc__ or "").split("Attributes:")[0]
    assert all(name in told for name in (*GATEWAY_KNOBS, *VERIFIER_KNOBS))
    assert set(GATEWAY_KNOBS + VERIFIER_KNOBS) <= set(AppArgs.model_fields)


@pytest.mark.anyio
async def test_new_limits_hold_for_new_requests_and_those_in_progress_keep_theirs(serve: Serve) -> None:
    async with serve(engine=FakeEngine(step_s=0.005)) as server:
        service = server.service
        front = Front(build_http_app(service))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=front), base_url="http://test") as http:
            body = {"prompt": "ab", "max_tokens": 2, "n": 3}
            old = asyncio.create_task(http.post("/v1/completions", json=body | {"max_tokens": 400}))
            await until_active(server, 1)
            service.configure(replace(service.settings, limits=Limits(max_n=2, max_header_bytes=2000)))
            front.app = build_http_app(service)
            refused = await http.post("/v1/completions", json=body)
            assert (refused.status_code, error_of(refused)["code"]) == (400, "max_n")
            assert (await http.get("/health", headers={"x-long": "a" * 2000})).status_code == 413
            assert len((await old).json()["choices"]) == 3


@pytest.mark.anyio
async def test_a_verifiers_queue_has_its_new_bounds_at_once(serve: Serve) -> None:
    async with serve() as server:
        server.core.configure(VerifierConfig(admission=AdmissionConfig(max_queued_requests=1)))
        slow = {"prompt": "ab", "max_tokens": 1, "n": 2}
        first, second = await asyncio.gather(*(server.http.post("/v1/completions", json=slow) for _ in range(2)))
        assert sorted((first.status_code, second.status_code)) == [200, 429]


def test_a_controller_decides_by_its_new_settings() -> None:
    core = ControllerCore(PoolConfig())
    core.configure(PoolConfig(ttft_slo_s=7.5, dry_run=True))
    assert core.status()["config"]["dry_run"] is True
    assert 'outrider_pool_objective_seconds{controller="0",kind="ttft"} 7.5' in core.metrics()
