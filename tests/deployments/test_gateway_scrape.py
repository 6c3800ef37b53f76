"""The scrape of one gateway among several."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from cluster.telemetry.prometheus import merge_texts
from deployments.auth import KeyRing
from deployments.client import LocalClient
from deployments.service import GatewaySettings, Service
from tests.deployments.conftest import Serve
from tests.deployments.fake_engine import ByteTokenizer


@pytest.mark.anyio
async def test_a_scrape_holds_the_other_gateways_figures_once_beside_its_own(serve: Serve) -> None:
    async with serve() as server:
        client = LocalClient(server.core)

        async def peers() -> list[str]:
            return ["".join(each.render() for each in server.service.metric_sets())]

        service = Service(
            client=client, card=await client.card(), tokenizer=ByteTokenizer(), settings=GatewaySettings(),
            keys=KeyRing(), replica="b", peers=peers,
        )  # fmt: skip
        try:
            service.drain.begin(10, refuse=False)
            families = list(text_string_to_metric_families(merge_texts(await service.scrapes())))
        finally:
            service.shaper.close()
    assert len(families) == len({family.name for family in families})
    (draining,) = [family for family in families if family.name == "outrider_gateway_draining"]
    assert {sample.labels["gateway"]: sample.value for sample in draining.samples} == {"0": 0.0, "b": 1.0}
