import subprocess
import sys

import pytest
from pydantic import ValidationError

from cluster.config import EngineConfig
from cluster.errors import ConfigError
from deployments.app import AppArgs, build_app


def test_the_bound_app_is_cheap_to_import_and_loads_no_torch() -> None:
    code = "import sys; from deployments.app import app; print(type(app).__name__, 'torch' in sys.modules)"
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
    ],
)
def test_unknown_or_wrong_arguments_are_refused_by_name(values: dict[str, object], field: str) -> None:
    with pytest.raises(ValidationError, match=field):
        AppArgs.model_validate(values)


def test_the_engines_own_checks_hold_here_too() -> None:
    with pytest.raises(ConfigError, match="num_speculative_tokens"):
        AppArgs.model_validate({"engine": {"num_speculative_tokens": 1000}})


def test_the_default_application_fits_on_two_cpus() -> None:
    args = AppArgs()
    assert args.num_verifiers * args.verifier_cpus + args.num_gateways * args.gateway_cpus <= 2


def test_the_application_is_a_gateway_bound_to_a_verifier() -> None:
    application = build_app(AppArgs(num_verifiers=3))
    assert application._bound_deployment.name == "Gateway"
    (verifier, *_) = application._bound_deployment.init_args
    assert verifier._bound_deployment.name == "Verifier"
    assert verifier._bound_deployment.num_replicas == 3
