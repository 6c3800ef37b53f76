import pytest

from deployments.cli_serve import why_not

FAILED = """The deployment failed to start 3 times in a row. Error:
ray::ServeReplica:outrider:Verifier.initialize_and_get_metadata() (pid=7)
  File "engine_build.py", line 106, in build_engine
cluster.errors.LoadError: draft head '/nowhere': there is no /nowhere/config.json
"""


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        (["", FAILED], "draft head '/nowhere': there is no /nowhere/config.json"),
        (["", "  File\nValueError: too large\n"], "ValueError: too large"),
        (["", "waiting for 1 replica; an Error: is mentioned"], ""),
    ],
)
def test_the_reason_why_an_application_does_not_start_is_the_last_error_of_its_deployments(
    messages: list[str], said: str
) -> None:
    assert why_not(messages) == said
