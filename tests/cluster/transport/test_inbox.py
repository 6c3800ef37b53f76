from cluster.transport.inbox import Inbox


def test_items_come_out_in_order_and_once() -> None:
    inbox: Inbox[int] = Inbox()
    assert all(inbox.put(number, 10) for number in range(5))
    assert len(inbox) == 5
    assert inbox.take() == [0, 1, 2, 3, 4]
    assert inbox.take() == []


def test_a_full_inbox_takes_no_more_until_it_is_emptied() -> None:
    inbox: Inbox[int] = Inbox(max_messages=2)
    assert [inbox.put(number, 1) for number in range(3)] == [True, True, False]
    assert inbox.is_full
    inbox.take()
    assert not inbox.is_full
    assert inbox.put(9, 1)


def test_bytes_are_limited_as_well() -> None:
    inbox: Inbox[int] = Inbox(max_bytes=100)
    assert [inbox.put(number, 60) for number in range(3)] == [True, True, False]
    assert inbox.take() == [0, 1]
    assert inbox.put(3, 60)


def test_what_must_not_be_lost_finds_a_place_in_a_full_inbox() -> None:
    inbox: Inbox[int] = Inbox(max_messages=1)
    inbox.put(1, 1)
    inbox.put_always(2)
    assert inbox.take() == [1, 2]
