import json

import pytest

from cluster.errors import ConfigError
from cluster.transport.address import Address

ADDRESS = Address(
    node_id="n", ipc="ipc:///x/s", server_public_key="public", client_public_key="client", client_secret_key="hidden"
)


def test_an_address_comes_back_from_json() -> None:
    values = json.loads(json.dumps(ADDRESS.to_json()))
    assert Address.from_json(values) == ADDRESS
    assert values["tcp"] is None


def test_fields_of_a_later_version_are_left_out() -> None:
    assert Address.from_json(ADDRESS.to_json() | {"rdma": "x"}) == ADDRESS
    assert Address.from_json({"node_id": "n"}) == Address(node_id="n")


@pytest.mark.parametrize(
    "values", [{}, {"node_id": None}, {"node_id": 1}, {"node_id": "n", "tcp": 1}, {"node_id": "n", "ipc": []}]
)
def test_a_wrong_address_is_refused(values: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="address"):
        Address.from_json(values)


def test_the_secret_shows_neither_in_the_text_nor_in_an_error() -> None:
    assert "hidden" not in repr(ADDRESS)
    with pytest.raises(ConfigError) as caught:
        Address.from_json({"node_id": "n", "client_secret_key": ["hidden"]})
    assert "hidden" not in str(caught.value)
