"""What a drafter that runs ahead takes from verifiers, and what it answers to anything else."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.messages import (
    PROTOCOL_VERSION,
    Close,
    Entry,
    Hello,
    Lost,
    Message,
    Open,
    Ping,
    Refusal,
    Round,
    Row,
    Table,
    Welcome,
    draft_hash,
)
from tests.cluster.engine.drafters.run_ahead_harness import (
    INCARNATION,
    VOCAB,
    Drafter,
    hello,
    losses_in,
    make_drafter,
    opening,
    row,
)

A, B = b"a", b"b"


def test_a_verifier_of_the_same_version_and_tokenizer_is_welcome_whatever_its_weights() -> None:
    drafter = make_drafter(num_speculative_tokens=6, max_model_len=128)
    (answer,) = drafter.handle(A, hello(model_hash="something else"))
    assert answer == Welcome(
        version=PROTOCOL_VERSION, incarnation=INCARNATION, num_speculative_tokens=6, max_model_len=128
    )


@pytest.mark.parametrize("wrong", [{"version": PROTOCOL_VERSION - 1}, {"tokenizer_hash": "other tokens"}])
def test_another_version_or_tokenizer_is_refused_and_then_ignored(wrong: dict[str, Any]) -> None:
    drafter = make_drafter()
    (answer,) = drafter.handle(A, hello(**wrong))
    assert isinstance(answer, Refusal)
    assert str(next(iter(wrong.values()))) in answer.reason
    assert drafter.open(A, 0) == []
    assert drafter.run_ahead.snapshot().num_sequences == 0
    assert isinstance(drafter.handle(A, hello())[0], Welcome)
    drafter.open(A, 0)
    assert drafter.run_ahead.snapshot().num_sequences == 1


def test_a_verifier_that_restarted_starts_anew_and_one_that_only_reconnected_goes_on() -> None:
    drafter = make_drafter()
    drafter.handle(A, hello(incarnation=1))
    drafter.open(A, 0)
    drafter.handle(A, hello(incarnation=1))
    assert drafter.round(A, row(0, 3)) == []
    drafter.handle(A, hello(incarnation=2))
    assert losses_in(drafter.round(A, row(0, 3))) == {"unknown": (0,)}


@pytest.mark.parametrize("message", [Ping(number=1), Lost(sequences=(0,), reason="unknown"), Refusal(reason="no")])
def test_what_no_verifier_says_is_ignored(message: Message) -> None:
    drafter = make_drafter()
    drafter.open(A, 0)
    assert drafter.handle(A, message) == []
    assert drafter.run_ahead.snapshot().num_sequences == 1


@pytest.mark.parametrize(
    "bad",
    [
        row(0, 3, epoch=1),
        row(0, 4),
        row(0, 3, (5,)),
        row(0, 2),
        row(0, 4, (VOCAB,)),
        row(0, 4, (-1,)),
        row(0, 3, (), (VOCAB,)),
        row(0, 3, (), (-1,)),
        row(0, 3, (), (1,) * 65),
        row(9, 3),
    ],
    ids=["epoch", "gap", "repeated", "shrunk", "high", "negative", "high draft", "negative draft", "long", "unknown"],
)
def test_a_bad_row_loses_its_own_sequence_only(bad: Row) -> None:
    drafter = make_drafter()
    for sequence in (0, 1):
        drafter.open(A, sequence)
    assert losses_in(drafter.round(A, bad, row(1, 3))) == {"unknown": (bad.sequence,)}
    assert list(drafter.tables()) == [(A, 1)]
    assert losses_in(drafter.round(A, row(bad.sequence, 3))) == {"unknown": (bad.sequence,)}, "open it again"
    assert drafter.open(A, bad.sequence) == []
    assert drafter.round(A, row(bad.sequence, 3)) == []


@pytest.mark.parametrize(
    "bad",
    [
        opening(0, ()),
        opening(0, (VOCAB,)),
        opening(0, (-1, 2)),
        opening(0, (1, 2), num_prompt_tokens=0),
        opening(0, (1, 2), num_prompt_tokens=3),
        opening(0, temperature=float("nan")),
        opening(0, temperature=-1.0),
        opening(0, top_p=0.0),
        opening(0, min_p=2.0),
        opening(0, top_k=-3),
        opening(0, repetition_penalty=0.0),
        opening(0, frequency_penalty=float("inf")),
        opening(0, logit_bias=((1, float("nan")),)),
        opening(0, allowed_token_ids=(1 << 40,)),
        opening(0, stop_token_ids=(1 << 70,)),
        opening(0, bad_words=((1, -(1 << 70)),)),
    ],
)
def test_a_sequence_that_makes_no_sense_is_not_followed(bad: Open) -> None:
    drafter = make_drafter()
    drafter.open(A, 1)
    assert losses_in(drafter.handle(A, bad)) == {"unknown": (0,)}
    assert drafter.run_ahead.snapshot().num_sequences == 1


@pytest.mark.parametrize("verify_s", [0.0, -1.0, float("nan"), float("inf"), 1e300])
def test_a_verify_time_that_makes_no_sense_still_gives_tables(verify_s: float) -> None:
    drafter = make_drafter()
    drafter.open(A, 0)
    drafter.round(A, row(0, 3), verify_s=verify_s)
    assert len(drafter.tables()) == 1


def test_the_last_row_of_a_sequence_in_a_round_counts() -> None:
    drafter = make_drafter()
    drafter.open(A, 0)
    drafter.round(A, row(0, 3), row(0, 4, (9,), (5,)))
    (table,) = drafter.tables().values()
    assert (table.base_length, table.draft_hash) == (4, draft_hash((5,)))
    assert losses_in(drafter.round(A, row(0, 4), row(0, 4, epoch=3))) == {"unknown": (0,)}
    assert drafter.run() == []


ids = st.integers(0, VOCAB - 1) | st.sampled_from([-1, VOCAB, 1 << 31])
good_ids = st.lists(st.integers(0, VOCAB - 1), max_size=6)
some_ids = st.lists(ids, max_size=6)


@st.composite
def messages(draw: st.DrawFn) -> Message:
    sequence = draw(st.integers(0, 3))
    kind = draw(st.integers(0, 9))
    if kind <= 2:
        return opening(sequence, draw(good_ids | some_ids), epoch=draw(st.integers(0, 1)), max_tokens=40)
    if kind <= 7:
        # Base lengths of -1 stand for the right one, see `_mended`.
        rows = draw(
            st.lists(
                st.builds(
                    row,
                    st.integers(0, 3),
                    st.just(-1) | st.integers(0, 40),
                    good_ids | some_ids,
                    good_ids | some_ids,
                    num_tokens=st.integers(-1, 6),
                    epoch=st.integers(0, 1),
                ),
                max_size=4,
            )
        )
        return Round(number=draw(st.integers(0, 5)), verify_s=draw(st.sampled_from([0.001, 0.01, 1.0])), rows=(*rows,))
    if kind == 8:
        return Close(sequences=(sequence,))
    wrong = draw(st.sampled_from([hello(), hello(incarnation=2), hello(version=5), Table(1, 2, ())]))
    assert isinstance(wrong, Hello | Table)
    return wrong


actions = st.lists(
    st.tuples(st.sampled_from([A, B]), messages() | st.sampled_from(["step", "drop", "evict", "wait"])), max_size=40
)


@settings(max_examples=150, deadline=None)
@given(actions)
def test_no_order_of_messages_breaks_the_books(script: list[tuple[bytes, Message | str]]) -> None:
    drafter = make_drafter(num_blocks=10, max_model_len=48, max_sequences=5, max_sequences_per_peer=3, chunk_tokens=8)
    lengths: dict[tuple[bytes, int], tuple[int, int]] = {}
    for peer, action in script:
        if isinstance(action, str):
            _act(drafter, peer, action)
            continue
        action = _mended(lengths, peer, action)  # noqa: PLW2901 -- the same action, its blanks filled in
        for answer in drafter.handle(peer, action):
            assert isinstance(answer, Welcome | Refusal | Lost)
    for peer, message in drafter.run():
        assert isinstance(message, Table | Lost)
        assert peer in (A, B)
    for peer in (A, B):
        drafter.run_ahead.drop_peer(peer)
    drafter.run_ahead.check_integrity()
    assert drafter.model.num_used_blocks == 0


def _act(drafter: Drafter, peer: bytes, action: str) -> None:
    if action == "step":
        drafter.step()
    elif action == "drop":
        drafter.run_ahead.drop_peer(peer)
    elif action == "evict":
        drafter.run_ahead.evict_idle()
    else:
        drafter.clock.advance(3.0)
    drafter.run_ahead.check_integrity()


def _mended(lengths: dict[tuple[bytes, int], tuple[int, int]], peer: bytes, message: Message) -> Message:
    """Fill in what a faithful verifier would say where -1 stands: random lengths would hardly ever fit."""
    if isinstance(message, Open):
        lengths[peer, message.sequence] = message.epoch, len(message.token_ids)
    if not isinstance(message, Round):
        return message
    rows = []
    for item in message.rows:
        epoch, length = lengths.get((peer, item.sequence), (0, 0))
        length += len(item.new_token_ids)
        if item.base_length == -1:
            lengths[peer, item.sequence] = epoch, length
            rows.append(row(item.sequence, length, item.new_token_ids, item.draft_token_ids, epoch=epoch))
        else:
            rows.append(item)
    return Round(number=message.number, verify_s=message.verify_s, rows=tuple(rows))


def test_the_harness_reaches_tables_too() -> None:
    """The property above would be empty if its sequences were always lost."""
    script: list[Message] = [opening(0, (1, 2, 3)), Round(number=1, verify_s=1.0, rows=(row(0, -1, (4,), (5,)),))]
    drafter = make_drafter()
    lengths: dict[tuple[bytes, int], tuple[int, int]] = {}
    for message in script:
        assert drafter.handle(A, _mended(lengths, A, message)) == []
    (table,) = drafter.tables().values()
    assert all(isinstance(entry, Entry) for entry in table.entries)
