"""When verifiers move from a drafter that works to one that has more room."""

from collections.abc import Mapping

from cluster.clock import ManualClock
from cluster.messages import PROTOCOL_VERSION, Hello
from deployments.discovery import LOAD_PERIOD_S
from deployments.draft_peers import DraftPeers
from deployments.pairing import PATIENCE_S, PATIENCE_SPREAD_S, Candidate, patience_s
from tests.deployments.scripted_drafter import ScriptedDrafter

TURN_S = 0.1


class Fleet:
    """Verifiers with open sequences, and drafters with room for 64, whose loads are told now and then."""

    def __init__(self, num_verifiers: int, num_open: int = 8) -> None:
        self._num_open = num_open
        self.clock = ManualClock(1000.0)
        self.drafters = {1: ScriptedDrafter({}, self.clock)}
        self.verifiers = [self._verifier(f"verifier-{number}") for number in range(num_verifiers)]
        self._tell_s = self.clock.now_s()

    def run(self, seconds: float) -> None:
        end_s = self.clock.now_s() + seconds
        while self.clock.now_s() < end_s:
            if self.clock.now_s() >= self._tell_s:
                self._tell()
            for verifier in self.verifiers:
                verifier.receive(self.clock.now_s())
                verifier.update(self.clock.now_s(), lambda: range(self._num_open))
            self.clock.advance(TURN_S)

    @property
    def pairs(self) -> Mapping[int, int]:
        """Verifiers by drafter."""
        used = [verifier._link.candidate.incarnation for verifier in self.verifiers if verifier._link is not None]
        return {number: used.count(number) for number in self.drafters}

    @property
    def num_moves(self) -> int:
        return sum(verifier.transitions["connected"] - 1 for verifier in self.verifiers)

    def _verifier(self, name: str) -> DraftPeers:
        hello = Hello(version=PROTOCOL_VERSION, incarnation=5, model_hash="m", tokenizer_hash="t", name=name)
        return DraftPeers(
            hello=hello, node_id="n", connect=lambda address: self.drafters[int(address.ipc or 0)].connect(address)
        )

    def _tell(self) -> None:
        self._tell_s += LOAD_PERIOD_S
        loads = self.pairs
        candidates: list[Candidate] = [
            drafter.candidate(str(number), num_sequences=self._num_open * loads[number])
            for number, drafter in self.drafters.items()
        ]
        for verifier in self.verifiers:
            verifier.offer(candidates)


def test_as_many_move_to_a_new_drafter_as_it_takes_and_none_moves_back() -> None:
    fleet = Fleet(7)
    fleet.run(5)
    assert fleet.pairs == {1: 7}
    fleet.drafters[2] = ScriptedDrafter({}, fleet.clock, incarnation=2)
    fleet.run(PATIENCE_S - 1)
    assert fleet.pairs == {1: 7, 2: 0}
    fleet.run(PATIENCE_SPREAD_S + 5)
    settled = fleet.pairs
    assert settled in ({1: 5, 2: 2}, {1: 4, 2: 3}, {1: 3, 2: 4})
    fleet.run(100)
    assert fleet.pairs == settled
    assert fleet.num_moves == settled[2]


def test_a_verifier_alone_does_not_carry_its_load_back_and_forth() -> None:
    fleet = Fleet(1, num_open=40)
    fleet.drafters[2] = ScriptedDrafter({}, fleet.clock, incarnation=2)
    fleet.run(100)
    assert fleet.num_moves == 0


def test_a_drafter_that_is_gone_is_left_at_once() -> None:
    fleet = Fleet(3)
    fleet.run(5)
    fleet.drafters = {2: ScriptedDrafter({}, fleet.clock, incarnation=2)}
    fleet.run(LOAD_PERIOD_S + TURN_S)
    assert fleet.pairs == {2: 3}


def test_patience_differs_from_verifier_to_verifier_within_bounds() -> None:
    all_s = [patience_s(f"verifier-{number}") for number in range(100)]
    assert all(PATIENCE_S <= each_s <= PATIENCE_S + PATIENCE_SPREAD_S for each_s in all_s)
    assert max(all_s) - min(all_s) > 0.8 * PATIENCE_SPREAD_S
