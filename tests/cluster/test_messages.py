from typing import get_args

import msgspec
import pytest

from cluster.messages import Message, Ping, draft_hash


def test_every_message_has_a_tag_of_its_own() -> None:
    tags = [kind.__struct_config__.tag for kind in get_args(Message)]
    assert sorted(tags) == list(range(len(tags)))


def test_messages_travel_without_the_names_of_their_fields() -> None:
    assert all(kind.__struct_config__.array_like for kind in get_args(Message))
    assert len(msgspec.msgpack.encode(Ping(number=1))) == 3


def test_a_message_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Ping(number=1).number = 2  # type: ignore[misc]


def test_the_hash_of_a_draft_is_the_same_in_every_process() -> None:
    assert draft_hash(()) == 0
    assert draft_hash([int.from_bytes(b"1234", "little"), int.from_bytes(b"5678", "little")]) == 0x9AE0DAAF  # CRC-32


def test_the_hash_of_a_draft_depends_on_order_length_and_value() -> None:
    drafts = [(), (0,), (0, 0), (1, 2), (2, 1), (258,), (1, 1), (257, 0)]
    assert len({draft_hash(draft) for draft in drafts}) == len(drafts)
