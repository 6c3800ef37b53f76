"""The baselines of the benchmark `run_ahead` must be honest, and its arithmetic right."""

import pytest

from cluster.clock import ManualClock
from cluster.engine.budget import DraftCost
from cluster.engine.drafters.base import Wanted
from cluster.engine.drafters.draft_ahead import DraftModel
from cluster.engine.drafters.run_ahead import RunAhead
from cluster.engine.drafters.run_ahead_state import RunAheadLimits
from cluster.engine.sequence import Sequence
from cluster.messages import PROTOCOL_VERSION, Hello, Message
from cluster.transport.channel import Traffic
from cluster.types import StepStats
from tests.benchmarks.asking_drafter import AskingDrafter
from tests.benchmarks.measure import Rounds
from tests.benchmarks.run_ahead import Window, hit_ratios, round_ratios
from tests.benchmarks.run_ahead_harness import NUM_TOKENS, PaddingDrafter, split_cores
from tests.cluster.engine.engine_harness import Result, make_engine, random_prompt, request, run_alone, tiny_runner
from tests.tiny import EOS_TOKEN_ID, VOCAB_SIZE


class DirectChannel:
    """A drafter that works while somebody waits for it, and never otherwise; no answer means that none will come."""

    def __init__(self) -> None:
        self.traffic, self.last_heard_s = Traffic(), 0.0
        self._ahead = RunAhead(
            DraftModel(tiny_runner(512), eos_token_ids=frozenset({EOS_TOKEN_ID})),
            clock=ManualClock(),
            incarnation=1,
            tokenizer_hash="t",
            vocab_size=VOCAB_SIZE,
            limits=RunAheadLimits(max_fan_out=1),
        )
        self._answers: list[Message] = []

    def send(self, message: Message) -> bool:
        self._answers += [answer for _, answer in self._ahead.handle(b"verifier", message)]
        return True

    def receive(self, timeout_s: float = 0.0) -> list[Message]:
        while timeout_s and not self._answers and self._ahead.has_work:
            self._answers += [answer for _, answer in self._ahead.step()]
        answers, self._answers = self._answers, []
        return answers

    def close(self) -> None:
        """Nothing to release."""


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_an_actor_asked_in_turn_answers_for_every_round_up_to_the_last_token(temperature: float) -> None:
    hello = Hello(version=PROTOCOL_VERSION, incarnation=5, model_hash="m", tokenizer_hash="t", name="v")
    drafter = AskingDrafter(DirectChannel(), hello, max_draft_tokens=NUM_TOKENS, cost=DraftCost())
    engine = make_engine(drafter=drafter)
    requests = [
        request(f"r{n}", random_prompt(n, 20), max_tokens=n, seed=n, temperature=temperature, ignore_eos=True)
        for n in range(1, 14)
    ]
    results: dict[str, Result] = {item.request_id: Result() for item in requests}
    for item in requests:
        engine.add(item)
    while engine.has_work:
        for output in engine.step():
            results[output.request_id].take(output)
        assert engine.last_step.num_drafter_failures == 0
    assert all(results[item.request_id].same_as(run_alone(item)) for item in requests)
    found = [result.speculation for result in results.values() if result.speculation]
    assert sum(s.num_accepted_tokens for s in found) > 0.9 * sum(s.num_draft_tokens for s in found) > 30


def test_padding_makes_rounds_of_every_size() -> None:
    sequences = [Sequence.from_request(request(f"r{i}", (5, 6, 7))) for i in range(3)]
    wanted = [Wanted(sequence=sequence, max_tokens=NUM_TOKENS) for sequence in sequences]
    drafter = PaddingDrafter()
    rounds = [drafter.propose(wanted) for _ in range(3 * NUM_TOKENS + 1)]
    lengths = [sorted(len(draft.token_ids) for draft in drafts.values()) for drafts in rounds]
    assert [sum(of_round) for of_round in lengths] == list(range(3 * NUM_TOKENS + 1))
    assert all(longest - shortest <= 1 for shortest, _, longest in lengths)


@pytest.mark.parametrize(("allowed", "verifier", "drafter"), [({3, 1, 2}, 1, 2), ({7, 4}, 4, 7), ({5}, 5, 5)])
def test_verifier_and_drafter_share_a_core_only_where_there_is_one(
    allowed: set[int], verifier: int, drafter: int
) -> None:
    cores = split_cores(allowed)
    assert (cores.verifier, cores.drafter) == ((verifier,), (drafter,))
    assert cores.are_apart is (len(allowed) > 1)


def test_a_round_is_compared_with_rounds_of_as_many_rows() -> None:
    samples = Rounds()
    samples.add({"a: 1 rows": [2.0], "a: 5 rows": [9.0, 12.0], "a: 3 rows": [99.0]})
    samples.add({"b: 1 rows": [1.0, 2.0, 3.0], "b: 5 rows": [6.0]})
    assert round_ratios(samples, "a", "b", 5) == [1.0, 1.5, 2.0]


def test_late_and_missing_tables_count_against_the_hits() -> None:
    samples = Rounds()
    for hit, late in ((3.0, 1.0), (0.0, 0.0)):
        samples.add({"a: hit": [hit], "a: late": [late], "a: stale": [0.0], "a: miss": [1.0], "a: none": [1.0]})
    assert hit_ratios(samples, "a") == [0.5, 0.0]


def test_only_rounds_of_the_whole_batch_count() -> None:
    window = Window(2, None)
    for num_running in (2, 2, 2, 2, 2, 2, 1, 1):
        window.add(
            StepStats(duration_s=0.5, num_rows=4, num_output_tokens=3, num_running=num_running, draft_wait_s=0.1)
        )
    assert window.samples("a") == {
        "a": [6.0],
        "a: tokens/round": [1.5],
        "a: wait": [pytest.approx(0.2)],
        "a: 4 rows": [0.5, 0.5],
    }
