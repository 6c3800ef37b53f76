"""Verifiers that speak with a drafter over a manual clock, and a draft model whose passes take a known time."""

import random
from collections.abc import Iterable
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from typing import Any

import torch

from cluster.clock import Clock, ManualClock
from cluster.engine.drafters.draft_ahead import DraftModel
from cluster.engine.drafters.run_ahead import RunAhead
from cluster.engine.drafters.run_ahead_state import RunAheadLimits
from cluster.engine.model_input import ModelInput
from cluster.messages import (
    PROTOCOL_VERSION,
    Close,
    Hello,
    Lost,
    Message,
    Open,
    Round,
    Row,
    SequenceTable,
    Table,
    draft_hash,
)
from cluster.types import SamplingParams

VOCAB, BLOCK_SIZE, MAX_LEN = 64, 16, 256
INCARNATION, TOKENIZER = 77, "tokens"


class BigramRunner:
    """Logits that depend on the last token only; a pass takes `fixed_s` and `row_s` for each row."""

    vocab_size, block_size, dtype, numerics = VOCAB, BLOCK_SIZE, "float32", "invariant"

    def __init__(
        self, clock: ManualClock, *, fixed_s: float, row_s: float, num_kv_blocks: int, max_model_len: int
    ) -> None:
        self.num_kv_blocks, self.max_model_len = num_kv_blocks, max_model_len
        self.fixed_s, self.row_s = fixed_s, row_s
        self.rows_of_passes: list[int] = []
        self._clock = clock
        self._logits_VV = torch.randn(VOCAB, VOCAB, generator=torch.Generator().manual_seed(1))

    def forward(self, batch: ModelInput) -> torch.Tensor:
        num_rows = len(batch.token_ids)
        self.rows_of_passes.append(num_rows)
        self._clock.advance(self.fixed_s + self.row_s * num_rows)
        return self._logits_VV[torch.from_numpy(batch.token_ids[batch.logit_rows]).long()]

    def copy_kv_blocks(self, sources: Seq[int], destinations: Seq[int]) -> None:
        assert not set(sources) & set(destinations)

    def close(self) -> None:
        """Nothing to release."""


@dataclass
class Drafter:
    """A drafter over a runner of known cost, and its clock."""

    clock: ManualClock
    runner: BigramRunner
    model: DraftModel
    run_ahead: RunAhead

    def handle(self, peer: bytes, message: Message) -> list[Message]:
        answers = self.run_ahead.handle(peer, message)
        self.run_ahead.check_integrity()
        assert all(to == peer for to, _ in answers)
        return [answer for _, answer in answers]

    def step(self) -> list[tuple[bytes, Message]]:
        out = self.run_ahead.step()
        self.run_ahead.check_integrity()
        return out

    def run(self, max_steps: int = 1000) -> list[tuple[bytes, Message]]:
        """Step until nothing is left to do."""
        out: list[tuple[bytes, Message]] = []
        for _ in range(max_steps):
            if not self.run_ahead.has_work:
                return out
            out += self.step()
        raise AssertionError("the work does not end")

    def tables(self) -> dict[tuple[bytes, int], SequenceTable]:
        """Tables of all that can be done now, by peer and sequence."""
        return tables_in(self.run())

    def open(self, peer: bytes, sequence: int, token_ids: Seq[int] = (1, 2, 3), **fields: Any) -> list[Message]:
        return self.handle(peer, opening(sequence, token_ids, **fields))

    def round(self, peer: bytes, *rows: Row, number: int = 1, verify_s: float = 10.0) -> list[Message]:
        return self.handle(peer, Round(number=number, verify_s=verify_s, rows=rows))


def make_drafter(
    *,
    fixed_s: float = 0.001,
    row_s: float = 0.00005,
    num_blocks: int = 256,
    max_model_len: int = MAX_LEN,
    chunk_tokens: int = 64,
    **limits: Any,
) -> Drafter:
    clock = ManualClock(100.0)
    runner = BigramRunner(clock, fixed_s=fixed_s, row_s=row_s, num_kv_blocks=num_blocks, max_model_len=max_model_len)
    model = DraftModel(runner, prefill_chunk_tokens=chunk_tokens)
    return Drafter(clock, runner, model, make_run_ahead(model, clock, vocab_size=VOCAB, **limits))


def make_run_ahead(model: DraftModel, clock: Clock, *, vocab_size: int, **limits: Any) -> RunAhead:
    return RunAhead(
        model,
        clock=clock,
        incarnation=INCARNATION,
        tokenizer_hash=TOKENIZER,
        vocab_size=vocab_size,
        limits=RunAheadLimits(**limits),
    )


def hello(**fields: Any) -> Hello:
    values = {
        "version": PROTOCOL_VERSION,
        "incarnation": 1,
        "model_hash": "any",
        "tokenizer_hash": TOKENIZER,
        "name": "verifier",
    }
    return Hello(**{**values, **fields})


def opening(sequence: int, token_ids: Seq[int] = (1, 2, 3), *, epoch: int = 0, **fields: Any) -> Open:
    num_prompt_tokens = fields.pop("num_prompt_tokens", len(token_ids))
    return Open(
        sequence=sequence,
        epoch=epoch,
        num_prompt_tokens=num_prompt_tokens,
        token_ids=tuple(token_ids),
        sampling=SamplingParams(**{"max_tokens": 1000, "seed": 7, "temperature": 0.0, **fields}),
    )


def row(
    sequence: int,
    base_length: int,
    new: Seq[int] = (),
    draft: Seq[int] = (),
    *,
    num_tokens: int = 4,
    epoch: int = 0,
) -> Row:
    return Row(
        sequence=sequence,
        epoch=epoch,
        base_length=base_length,
        new_token_ids=tuple(new),
        draft_token_ids=tuple(draft),
        num_tokens=num_tokens,
    )


def tables_in(out: Iterable[tuple[bytes, Message]]) -> dict[tuple[bytes, int], SequenceTable]:
    return {
        (peer, table.sequence): table
        for peer, message in out
        if isinstance(message, Table)
        for table in message.sequences
    }


def losses_in(messages: Iterable[Message]) -> dict[str, tuple[int, ...]]:
    return {message.reason: message.sequences for message in messages if isinstance(message, Lost)}


@dataclass
class Line:
    """One sequence of a simulated verifier: its length, the draft in flight, and news that were not sent yet."""

    sequence: int
    length: int
    draft: tuple[int, ...] = ()
    news: tuple[int, ...] = ()


@dataclass
class Verifier:
    """Verifies round after round on a manual clock. Whether drafts are accepted is drawn, with chance `acceptance`.

    Attributes:
        num_hits: verdicts for which the table held a draft in time.
        num_verdicts: verdicts.
    """

    peer: bytes
    num_lines: int
    verify_s: float
    acceptance: float = 0.7
    pause_s: float = 0.001
    prompt_tokens: int = 8
    num_hits: int = 0
    num_verdicts: int = 0
    next_s: float = 0.0
    _number: int = 0
    _is_verifying: bool = False
    _lines: list[Line] = field(default_factory=list)
    _tables: dict[int, SequenceTable] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._random = random.Random(self.peer)

    def start(self, drafter: Drafter) -> None:
        self.next_s = drafter.clock.now_s()
        drafter.handle(self.peer, hello(name=self.peer.decode()))
        self._lines = [self._open(drafter, sequence) for sequence in range(self.num_lines)]

    def advance(self, drafter: Drafter) -> None:
        """The next event of its loop is due: a verdict, or the round after it."""
        if self._is_verifying:
            for line in self._lines:
                self._judge(line)
            self._lines = [self._renewed(drafter, line) for line in self._lines]
            self.next_s += self.pause_s
        else:
            self._number += 1
            self._tables.clear()
            rows = [row(line.sequence, line.length, line.news, line.draft) for line in self._lines]
            assert not drafter.round(self.peer, *rows, number=self._number, verify_s=self.verify_s)
            self.next_s += self.verify_s
        self._is_verifying = not self._is_verifying

    def take(self, message: Message) -> None:
        assert isinstance(message, Table)
        if message.number == self._number and self._is_verifying:
            self._tables.update({table.sequence: table for table in message.sequences})

    def _open(self, drafter: Drafter, sequence: int) -> Line:
        prompt = [self._random.randrange(VOCAB) for _ in range(self.prompt_tokens)]
        assert not drafter.open(self.peer, sequence, prompt)
        return Line(sequence, len(prompt))

    def _renewed(self, drafter: Drafter, line: Line) -> Line:
        """A text that is long enough makes place for the next one."""
        if line.length < MAX_LEN - 32:
            return line
        assert not drafter.handle(self.peer, close(line.sequence))
        return self._open(drafter, line.sequence + self.num_lines)

    def _judge(self, line: Line) -> None:
        num_accepted = 0
        while num_accepted < len(line.draft) and self._random.random() < self.acceptance:
            num_accepted += 1
        token_id = self._random.randrange(VOCAB)
        table = self._tables.get(line.sequence)
        answers = [entry.token_ids for entry in table.entries if entry.num_accepted == num_accepted] if table else []
        self.num_verdicts += 1
        if table is not None:
            assert table.base_length == line.length
            assert table.draft_hash == draft_hash(line.draft)
        draft: tuple[int, ...] = ()
        line.news = (*line.draft[:num_accepted], token_id)
        if answers and self._random.random() < 0.9:
            self.num_hits += 1
            line.news, draft = (*line.draft[:num_accepted], answers[0][0]), answers[0][1:]
        line.draft = draft
        line.length += len(line.news)


def simulate(drafter: Drafter, verifiers: Seq[Verifier], seconds: float) -> None:
    """Verifiers and drafter in turn until the time is over; the drafter takes messages between its passes."""
    for verifier in verifiers:
        verifier.start(drafter)
    by_peer = {verifier.peer: verifier for verifier in verifiers}
    end_s = drafter.clock.now_s() + seconds
    while drafter.clock.now_s() < end_s:
        for verifier in verifiers:
            while verifier.next_s <= drafter.clock.now_s():
                verifier.advance(drafter)
        if drafter.run_ahead.has_work:
            for peer, message in drafter.step():
                # What came while the pass ran waited for its end; a table is in time if no verdict was due before.
                if by_peer[peer].next_s > drafter.clock.now_s():
                    by_peer[peer].take(message)
        else:
            wait_s = min(verifier.next_s for verifier in verifiers) - drafter.clock.now_s()
            drafter.clock.advance(max(0.0, wait_s) + 1e-9)


def close(*sequences: int) -> Close:
    return Close(sequences=sequences)
