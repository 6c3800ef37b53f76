"""Client, channel and a drafter that really runs ahead, in one process: the drafter works during the forward pass."""

from collections.abc import Callable

import pytest
import torch

from cluster.clock import ManualClock
from cluster.engine.drafters.draft_ahead import DraftModel
from cluster.engine.drafters.run_ahead import RunAhead
from cluster.engine.model_input import ModelInput
from cluster.messages import PROTOCOL_VERSION, Hello
from cluster.transport.address import Address
from cluster.transport.channel import PeerGone
from cluster.transport.memory import MemoryChannel, MemoryListener, garble, lose
from cluster.types import Request
from deployments.draft_client import DraftClient
from deployments.pairing import Candidate
from tests.cluster.engine.engine_harness import (
    BLOCK_SIZE,
    Result,
    make_engine,
    random_prompt,
    request,
    run_alone,
    tiny_runner,
)
from tests.tiny import EOS_TOKEN_ID, VOCAB_SIZE

ROUND_S = 0.02


class DuringForward:
    """A runner that lets somebody else work while it computes."""

    def __init__(self, meanwhile: Callable[[], None]) -> None:
        runner = tiny_runner(256)
        self.vocab_size, self.num_kv_blocks, self.block_size = VOCAB_SIZE, 256, BLOCK_SIZE
        self.max_model_len, self.dtype, self.numerics = runner.max_model_len, runner.dtype, runner.numerics
        self._runner, self._meanwhile = runner, meanwhile

    def forward(self, batch: ModelInput) -> torch.Tensor:
        self._meanwhile()
        return self._runner.forward(batch)

    def close(self) -> None:
        """Nothing of its own."""


class Pair:
    """A verifier's engine and a drafter, joined by a channel in memory."""

    def __init__(self) -> None:
        self.clock = ManualClock(1000.0)
        self.listener = MemoryListener(clock=self.clock)
        self.channels: list[MemoryChannel] = []
        self.start_drafter(incarnation=1)
        self.client = DraftClient(
            hello=Hello(version=PROTOCOL_VERSION, incarnation=5, model_hash="m", tokenizer_hash="t", name="verifier"),
            node_id="n",
            connect=self._connect,
            vocab_size=VOCAB_SIZE,
            clock=self.clock,
        )
        address = Address(node_id="n")
        self.client.set_peers([Candidate(replica="d", incarnation=1, node_id="n", address=address, max_sequences=64)])
        self.is_hung = False
        self.engine = make_engine(runner=DuringForward(self.draft), drafter=self.client, clock=self.clock)
        self.results: dict[str, Result] = {}

    def start_drafter(self, incarnation: int) -> None:
        """A new one behind the same listener; the one before is forgotten with all that it knew."""
        self.ahead = RunAhead(
            DraftModel(tiny_runner(512), eos_token_ids=frozenset({EOS_TOKEN_ID})),
            clock=self.clock,
            incarnation=incarnation,
            tokenizer_hash="t",
            vocab_size=VOCAB_SIZE,
        )

    def draft(self) -> None:
        """All that the drafter can do before the pass is over."""
        if self.is_hung:
            return
        for peer, message in self.listener.receive():
            if isinstance(message, PeerGone):
                self.ahead.drop_peer(peer)
                continue
            for receiver, answer in self.ahead.handle(peer, message):
                self.listener.send(receiver, answer)
        while self.ahead.has_work:
            for receiver, answer in self.ahead.step():
                self.listener.send(receiver, answer)

    def step(self) -> None:
        for output in self.engine.step():
            self.results.setdefault(output.request_id, Result()).take(output)
        assert self.engine.last_step.num_drafter_failures == 0
        self.clock.advance(ROUND_S)

    def serve(self, requests: list[Request], num_rounds: int = 10_000) -> None:
        for item in requests:
            self.engine.add(item)
        for _ in range(num_rounds):
            if not self.engine.has_work:
                break
            self.step()

    def _connect(self, address: Address) -> MemoryChannel:
        self.channels.append(self.listener.connect())
        return self.channels[-1]


def requests_of(number: int, max_tokens: int = 60) -> list[Request]:
    return [
        request(f"r{i}", random_prompt(i, 20 + i), max_tokens=max_tokens, seed=i, temperature=i % 2, ignore_eos=True)
        for i in range(number)
    ]


def check(pair: Pair, requests: list[Request]) -> None:
    for item in requests:
        assert pair.results[item.request_id].same_as(run_alone(item)), item.request_id
    pair.engine.check_integrity()
    pair.draft()  # The last closes.
    assert pair.client.num_sequences == pair.ahead.snapshot().num_sequences == 0


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_with_a_perfect_draft_model_nearly_every_round_is_a_hit(temperature: float) -> None:
    requests = [
        request(f"r{i}", random_prompt(i, 20), max_tokens=60, seed=i, temperature=temperature, ignore_eos=True)
        for i in range(4)
    ]
    pair = Pair()
    pair.serve(requests)
    check(pair, requests)
    stats = pair.client.stats()
    assert stats.lookups["hit"] > 0.9 * sum(stats.lookups.values())
    speculation = [result.speculation for result in pair.results.values() if result.speculation]
    assert sum(s.num_accepted_tokens for s in speculation) > 0.9 * sum(s.num_draft_tokens for s in speculation) > 0
    assert not stats.is_quarantined


def test_a_link_that_loses_and_garbles_messages_costs_speed_only() -> None:
    requests = requests_of(6)
    pair = Pair()
    pair.serve(requests, num_rounds=3)
    (channel,) = pair.channels
    faults = [None, lose, garble, None, None]
    for number in range(200):
        channel.uplink.tamper, channel.downlink.tamper = faults[number % 5], faults[number // 2 % 5]
        pair.step()
    channel.uplink.tamper = channel.downlink.tamper = None
    pair.serve([], num_rounds=1000)
    check(pair, requests)
    assert pair.client.stats().num_malformed > 0


def test_a_cut_link_and_its_return() -> None:
    requests = requests_of(4, max_tokens=300)
    pair = Pair()
    pair.serve(requests, num_rounds=5)
    (channel,) = pair.channels
    channel.uplink.is_cut = channel.downlink.is_cut = True
    for _ in range(150):
        pair.step()
    stats = pair.client.stats()
    assert stats.is_quarantined
    assert stats.transitions["silent"] == 1
    sent = stats.num_sent
    pair.step()
    assert pair.client.stats().num_sent == sent
    channel.uplink.is_cut = channel.downlink.is_cut = False
    hits = stats.lookups["hit"]
    for _ in range(20):
        pair.step()
    assert pair.client.stats().lookups["hit"] > hits + 20
    assert not pair.client.stats().is_quarantined
    pair.serve([])
    check(pair, requests)


def test_d14_a_hung_drafter_stops_no_verifier_and_is_used_again_when_it_wakes() -> None:
    requests = requests_of(4, max_tokens=400)
    pair = Pair()
    pair.serve(requests, num_rounds=5)
    pair.is_hung = True
    before = sum(len(result.token_ids) for result in pair.results.values())
    for _ in range(60):
        pair.step()
    after = sum(len(result.token_ids) for result in pair.results.values())
    assert after >= before + 4 * 60
    assert pair.client.stats().transitions["late"] == 1
    pair.is_hung = False
    for _ in range(120):
        if not pair.client.stats().is_quarantined:
            break
        pair.step()
    assert pair.client.stats().transitions["recovered"] == 1
    pair.serve([])
    check(pair, requests)


def test_a_drafter_that_is_killed_and_started_anew_serves_the_running_sequences() -> None:
    requests = requests_of(4, max_tokens=300)
    pair = Pair()
    pair.serve(requests, num_rounds=5)
    pair.start_drafter(incarnation=2)
    for _ in range(15):
        pair.step()
    stats = pair.client.stats()
    assert stats.transitions["restarted"] == 1
    hits = stats.lookups["hit"]
    for _ in range(10):
        pair.step()
    assert pair.client.stats().lookups["hit"] >= hits + 20
    pair.serve([])
    check(pair, requests)


def test_another_tokenizer_is_refused_and_the_text_is_written_all_the_same() -> None:
    requests = requests_of(3)
    pair = Pair()
    pair.ahead._tokenizer_hash = "another"
    pair.serve(requests)
    check(pair, requests)
    assert pair.client.stats().transitions["refused"] == 1
    assert sum(pair.client.stats().lookups.values()) == 0
