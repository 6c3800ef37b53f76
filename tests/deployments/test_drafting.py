"""What a verifier finds out about its node before it plans threads."""

from types import SimpleNamespace
from typing import Any

import pytest

from cluster.config import EngineConfig
from deployments import drafting
from deployments.discovery import DrafterRecord
from deployments.drafting import drafting_for
from deployments.layout import NodeShare
from deployments.verifier_config import VerifierConfig

pytestmark = pytest.mark.anyio

CONFIG = VerifierConfig(engine=EngineConfig(), drafter="actor", num_verifiers=3, num_drafters=2)
HERE: dict[str, Any] = {"Alive": True, "Resources": {"CPU": 2.0}}
HEAD_WITHOUT_CPUS: dict[str, Any] = {"Alive": True, "Resources": {}}
DEAD: dict[str, Any] = {"Alive": False, "Resources": {"CPU": 2.0}}


def record(node_id: str) -> DrafterRecord:
    return DrafterRecord(
        replica="r",
        node_id=node_id,
        incarnation=1,
        address={},
        model_id="d",
        target="t",
        tokenizer_hash="h",
        max_sequences=1,
    )


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The nodes that Ray tells of."""
    nodes: list[dict[str, Any]] = [HERE]
    monkeypatch.setattr("ray.nodes", lambda: nodes)
    monkeypatch.setattr("ray.get_runtime_context", lambda: SimpleNamespace(get_node_id=lambda: "here"))

    async def first_records(*_: object) -> tuple[DrafterRecord, ...]:
        return record("here"), record("there"), record("here")

    monkeypatch.setattr(drafting, "first_records", first_records)
    return nodes


async def share(handle: object) -> NodeShare:
    return (await drafting_for(CONFIG, handle, name="v"))._node  # type: ignore[arg-type]


async def test_on_the_only_node_everybody_shares_it(cluster: list[dict[str, Any]]) -> None:
    cluster += [HEAD_WITHOUT_CPUS, DEAD]
    assert await share(object()) == NodeShare(node_id="here", num_verifiers=3, num_drafters=2)
    assert await share(None) == NodeShare(node_id="here", num_verifiers=3, num_drafters=0)


async def test_among_several_nodes_the_drafters_on_this_one_count(cluster: list[dict[str, Any]]) -> None:
    cluster.append(HERE)
    assert await share(object()) == NodeShare(node_id="here", num_verifiers=1, num_drafters=2)
    assert await share(None) == NodeShare(node_id="here", num_verifiers=1, num_drafters=0)
