"""A verifier that changes its role, and the drafter actor that it leaves and comes back to."""

import pytest

from cluster.messages import Close, Message, Round
from cluster.types import Role
from deployments.drafter_core import Outgoing
from tests.deployments.test_draft_client_run_ahead import Pair, check, requests_of

NUM_SEQUENCES = 3


def flip(pair: Pair, role: Role) -> None:
    pair.engine.set_role(role, max_num_seqs=16)


def steps(pair: Pair, num_rounds: int) -> tuple[int, int]:
    """Draft tokens verified and accepted in so many rounds."""
    num_drafted = num_accepted = 0
    for _ in range(num_rounds):
        pair.step()
        num_drafted += pair.engine.last_step.num_draft_tokens
        num_accepted += sum(pair.engine.last_step.accepted_per_position)
    return num_drafted, num_accepted


def test_in_role_batch_the_drafter_follows_nobody_and_hears_nothing() -> None:
    requests = requests_of(NUM_SEQUENCES, max_tokens=90)
    pair = Pair()
    pair.serve(requests, num_rounds=6)
    assert pair.ahead.snapshot().num_sequences == NUM_SEQUENCES
    flip(pair, Role.BATCH)
    pair.draft()
    assert pair.client.num_sequences == pair.ahead.snapshot().num_sequences == 0
    assert pair.ahead.snapshot().kv_cache_usage_ratio == 0
    num_sent = pair.client.stats().num_sent
    assert steps(pair, 20) == (0, 0)
    assert pair.client.stats().num_sent == num_sent
    assert pair.client.stats().is_connected
    pair.serve([])
    check(pair, requests)


@pytest.mark.parametrize("batch_s", [0.2, 60.0])
def test_drafts_come_back_with_the_role_and_are_accepted_as_before(batch_s: float) -> None:
    """Case A10, with a change of role instead of a burst."""
    requests = requests_of(NUM_SEQUENCES, max_tokens=210)
    pair = Pair()
    pair.serve(requests, num_rounds=6)
    before = steps(pair, 15)
    flip(pair, Role.BATCH)
    steps(pair, 10)
    pair.clock.advance(batch_s)
    flip(pair, Role.SPECULATIVE)
    steps(pair, 2)  # Told of the sequences, and of their first round.
    after = steps(pair, 15)
    assert min(before[0], after[0]) > 120
    assert after[1] / after[0] >= 0.95 * before[1] / before[0]
    stats = pair.client.stats()
    assert not stats.is_quarantined
    assert stats.transitions["silent"] == stats.transitions["late"] == 0
    pair.serve([])
    check(pair, requests)


def test_the_time_in_role_batch_is_not_taken_for_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Pair()
    sent: list[Message] = []
    handle = pair.ahead.handle

    def note(peer: bytes, message: Message) -> Outgoing:
        sent.append(message)
        return handle(peer, message)

    monkeypatch.setattr(pair.ahead, "handle", note)
    pair.serve(requests_of(2, max_tokens=90), num_rounds=6)
    flip(pair, Role.BATCH)
    steps(pair, 3)
    pair.clock.advance(60.0)
    flip(pair, Role.SPECULATIVE)
    steps(pair, 4)
    rounds = [message for message in sent if isinstance(message, Round)]
    assert len(rounds) > 6
    assert max(message.verify_s for message in rounds) < 0.1
    assert sum(isinstance(message, Close) for message in sent) > 0
    pair.serve([])


def test_fifty_flips_leave_one_copy_of_each_sequence_with_the_drafter() -> None:
    requests = requests_of(NUM_SEQUENCES, max_tokens=120)
    pair = Pair()
    pair.serve(requests, num_rounds=6)
    for number in range(50):
        flip(pair, Role.BATCH if number % 2 == 0 else Role.SPECULATIVE)
        if number % 3 == 0:
            pair.step()
    flip(pair, Role.SPECULATIVE)
    steps(pair, 3)
    assert pair.ahead.snapshot().num_sequences == pair.client.num_sequences == NUM_SEQUENCES
    pair.serve([])
    check(pair, requests)
