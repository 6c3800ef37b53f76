from hypothesis import given
from hypothesis import strategies as st

from cluster.routing.outstanding import REPORT_DELAY_S, Outstanding


def test_calls_count_until_they_end() -> None:
    sent = Outstanding()
    sent.send("a", "r1", 10, 0.0)
    sent.send("b", "r1", 5, 0.0)
    assert sent.of("r1") == (15, 2)
    sent.done("a")
    sent.done("a")
    sent.done("unknown")
    assert sent.of("r1") == (5, 1)
    assert sent.of("r2") == (0, 0)


def test_a_call_that_is_sent_again_counts_once() -> None:
    sent = Outstanding()
    sent.send("a", "r1", 10, 0.0)
    sent.send("a", "r2", 10, 1.0)
    assert (sent.of("r1"), sent.of("r2"), len(sent)) == ((0, 0), (10, 1), 1)


def test_a_report_takes_over_all_but_the_newest_calls() -> None:
    sent = Outstanding()
    sent.send("old", "r1", 10, 0.0)
    sent.send("new", "r1", 7, 1.0)
    sent.send("elsewhere", "r2", 3, 0.0)
    sent.heard("r1", 1.0 + REPORT_DELAY_S / 2)
    assert (sent.of("r1"), sent.of("r2")) == ((7, 1), (3, 1))


def test_calls_that_nobody_ends_are_forgotten_in_the_end() -> None:
    sent = Outstanding(max_calls=3)
    for index in range(10):
        sent.send(str(index), "r1", 1, 0.0)
    assert sent.of("r1") == (3, 3)


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("send"), st.integers(0, 6), st.integers(0, 2), st.integers(0, 100)),
            st.tuples(st.just("done"), st.integers(0, 6)),
            st.tuples(st.just("heard"), st.integers(0, 2)),
        )
    )
)
def test_the_books_balance(actions: list[tuple[str, int] | tuple[str, int, int, int]]) -> None:
    sent, calls = Outstanding(max_calls=4), dict[str, tuple[str, int, float]]()
    for at, action in enumerate(actions):
        now_s = at * REPORT_DELAY_S * 0.6
        if len(action) == 4:
            _, call, replica, tokens = action
            sent.send(str(call), f"r{replica}", tokens, now_s)
            calls.pop(str(call), None)
            calls[str(call)] = (f"r{replica}", tokens, now_s)
            if len(calls) > 4:
                del calls[next(iter(calls))]
        elif action[0] == "done":
            sent.done(str(action[1]))
            calls.pop(str(action[1]), None)
        else:
            sent.heard(f"r{action[1]}", now_s)
            limit_s = now_s - REPORT_DELAY_S
            calls = {k: v for k, v in calls.items() if v[0] != f"r{action[1]}" or v[2] > limit_s}
        for expected in ("r0", "r1", "r2"):
            tokens_sent = [tokens for name, tokens, _ in calls.values() if name == expected]
            assert sent.of(expected) == (sum(tokens_sent), len(tokens_sent))
