"""Where a listener can be reached, as it travels through the replica metadata of Ray Serve."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Self

from cluster.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """How to reach a listener, with the keys to do so.

    Attributes:
        node_id: the node that it runs on; `ipc` is of use on this node only.
        ipc: endpoint on the node, e.g. "ipc:///tmp/outrider-x/s"; None if there is none.
        tcp: endpoint for other nodes, e.g. "tcp://10.0.0.1:7000"; None if there is none.
        server_public_key: Z85 text; None only where nothing is encrypted (in memory).
        client_public_key: Z85 text, the one key that the listener lets in.
        client_secret_key: Z85 text that belongs to it; never shown in logs.
    """

    node_id: str
    ipc: str | None = None
    tcp: str | None = None
    server_public_key: str | None = None
    client_public_key: str | None = None
    client_secret_key: str | None = field(default=None, repr=False)

    def to_json(self) -> dict[str, str | None]:
        """Plain values, the secret key included."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, object]) -> Self:
        """The address that `to_json` gave; names that are not known are left out.

        Raises:
            ConfigError: a value is missing or is no text.
        """
        known = {each.name: values[each.name] for each in fields(cls) if each.name in values}
        for name, value in known.items():
            if not isinstance(value, str) and (value is not None or name == "node_id"):
                # The value is left out of the text: it may be a part of the secret.
                raise ConfigError(field=f"address.{name}", value=type(value).__name__, allowed="a text")
        if "node_id" not in known:
            raise ConfigError(field="address.node_id", value=None, allowed="a text")
        return cls(**known)  # type: ignore[arg-type]  # checked above
