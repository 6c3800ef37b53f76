"""A drafter without a model, behind the interface of a channel: it answers at once, and as badly as it is told to."""

import random
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field, replace

from cluster.clock import ManualClock
from cluster.messages import (
    PROTOCOL_VERSION,
    Close,
    Entry,
    Hello,
    Lost,
    Message,
    Open,
    Round,
    Row,
    SequenceTable,
    Table,
    Welcome,
    draft_hash,
)
from cluster.transport.address import Address
from cluster.transport.channel import Traffic
from cluster.transport.codec import MalformedMessageError, decode, encode
from deployments.pairing import Candidate

Texts = Mapping[tuple[int, ...], Seq[int]]
"""What the target writes after each prompt."""

Answers = list[Message | bytes]
Edit = Callable[[Answers], Answers]
"""Changes what is sent for one round: nothing, later, nonsense."""


class ScriptedDrafter:
    """Knows what the target will write, and answers each row with the table of the true outcome.

    Args:
        texts: output by prompt.
        clock: gives the time of signs of life.
        incarnation: of this drafter.

    Attributes:
        edit: changes the answers to a round.
        is_alive: False: says nothing at all any more.
        opened: the sequences that it follows.
        log: every message that came.
        is_full: the queue towards it takes nothing.
    """

    def __init__(self, texts: Texts, clock: ManualClock, incarnation: int = 1) -> None:
        self.texts, self.clock, self.incarnation = texts, clock, incarnation
        self.edit: Edit = list
        self.welcomes = True
        self.num_speculative_tokens, self.max_model_len = 4, 512
        self.is_alive, self.is_full = True, False
        self.opened: dict[int, Open] = {}
        self.log: list[Message] = []
        self.channels: list[ScriptedChannel] = []

    def connect(self, address: Address) -> "ScriptedChannel":
        channel = ScriptedChannel(self)
        self.channels.append(channel)
        return channel

    def candidate(self, replica: str = "d", num_sequences: int = 0, node_id: str = "n") -> Candidate:
        return Candidate(
            replica=replica,
            incarnation=self.incarnation,
            node_id=node_id,
            address=Address(node_id=node_id, ipc=replica),
            max_sequences=64,
            num_sequences=num_sequences,
        )

    def restart(self, incarnation: int) -> None:
        """All is forgotten; the connection stands."""
        self.incarnation = incarnation
        self.opened.clear()

    def count(self, kind: type[Message]) -> int:
        return sum(isinstance(message, kind) for message in self.log)

    def answer(self, message: Message) -> Answers:
        self.log.append(message)
        match message:
            case Hello():
                return [self.welcome()] if self.welcomes else []
            case Open():
                self.opened[message.sequence] = message
            case Close():
                for sequence in message.sequences:
                    self.opened.pop(sequence, None)
            case Round():
                return self.edit(self.answer_round(message))
        return []

    def welcome(self) -> Welcome:
        return Welcome(
            version=PROTOCOL_VERSION,
            incarnation=self.incarnation,
            num_speculative_tokens=self.num_speculative_tokens,
            max_model_len=self.max_model_len,
        )

    def answer_round(self, message: Round) -> Answers:
        lost = tuple(row.sequence for row in message.rows if row.sequence not in self.opened)
        answers: Answers = [Lost(sequences=lost, reason="unknown")] if lost else []
        tables = tuple(self.table(row) for row in message.rows if row.sequence in self.opened)
        if tables:
            answers.append(Table(incarnation=self.incarnation, number=message.number, sequences=tables))
        return answers

    def table(self, row: Row) -> SequenceTable:
        known = self.opened[row.sequence]
        prompt = known.token_ids[: known.num_prompt_tokens]
        text = (*prompt, *self.texts[prompt])
        # What the verifier says must be what happened.
        assert (known.epoch, row.epoch) == (row.epoch, known.epoch)
        assert text[row.base_length - len(row.new_token_ids) : row.base_length] == row.new_token_ids
        rest = text[row.base_length :]
        accepted = 0
        while accepted < min(len(rest), len(row.draft_token_ids)) and rest[accepted] == row.draft_token_ids[accepted]:
            accepted += 1
        ids = rest[accepted : accepted + 1 + row.num_tokens]
        return SequenceTable(
            sequence=row.sequence,
            epoch=row.epoch,
            base_length=row.base_length,
            draft_hash=draft_hash(row.draft_token_ids),
            entries=(Entry(num_accepted=accepted, token_ids=tuple(ids)),) if ids else (),
        )


@dataclass
class ScriptedChannel:
    """The verifier's end. Messages pass the codec both ways."""

    drafter: ScriptedDrafter
    waiting: list[bytes] = field(default_factory=list)
    traffic: Traffic = field(default_factory=Traffic)
    is_closed: bool = False
    num_waits: int = 0
    heard_s: float = float("-inf")

    @property
    def last_heard_s(self) -> float:
        if self.drafter.is_alive:
            self.heard_s = self.drafter.clock.now_s()
        return self.heard_s

    def send(self, message: Message) -> bool:
        assert not self.is_closed
        data = encode(message)
        if self.drafter.is_full:
            self.traffic = replace(self.traffic, dropped=self.traffic.dropped + 1)
            return False
        self.traffic = replace(self.traffic, sent=self.traffic.sent + 1, bytes_sent=self.traffic.bytes_sent + len(data))
        if self.drafter.is_alive:
            for answer in self.drafter.answer(decode(data)):
                self.push(answer)
        return True

    def push(self, answer: Message | bytes) -> None:
        self.waiting.append(answer if isinstance(answer, bytes) else encode(answer))

    def receive(self, timeout_s: float = 0.0) -> list[Message]:
        assert not self.is_closed
        if timeout_s > 0 and not self.waiting:
            self.num_waits += 1
            self.drafter.clock.advance(timeout_s)
        messages, waiting = [], self.waiting
        self.waiting = []
        for data in waiting:
            try:
                messages.append(decode(data))
            except MalformedMessageError:
                self.traffic = replace(self.traffic, malformed=self.traffic.malformed + 1)
        self.traffic = replace(self.traffic, received=self.traffic.received + len(messages))
        return messages

    def close(self) -> None:
        self.is_closed = True


def edit_tables(change: Callable[[SequenceTable], SequenceTable]) -> Edit:
    """Changes each table of an answer."""

    def edit(answers: Answers) -> Answers:
        return [
            Table(
                incarnation=answer.incarnation,
                number=answer.number,
                sequences=tuple(change(table) for table in answer.sequences),
            )
            if isinstance(answer, Table)
            else answer
            for answer in answers
        ]

    return edit


def with_entries(table: SequenceTable, *entries: tuple[int, tuple[int, ...]]) -> SequenceTable:
    return SequenceTable(
        sequence=table.sequence,
        epoch=table.epoch,
        base_length=table.base_length,
        draft_hash=table.draft_hash,
        entries=tuple(Entry(num_accepted=k, token_ids=ids) for k, ids in entries),
    )


def never(answers: Answers) -> Answers:
    return []


class OneRoundLate:
    """Sends what belongs to the round before."""

    def __init__(self) -> None:
        self._held: Answers = []

    def __call__(self, answers: Answers) -> Answers:
        held, self._held = self._held, answers
        return held


def swapped(answers: Answers) -> Answers:
    """Each sequence gets the continuation of another one."""
    return [_swap(answer) if isinstance(answer, Table) else answer for answer in answers]


def _swap(table: Table) -> Table:
    entries = [each.entries for each in table.sequences]
    turned = [*entries[1:], *entries[:1]]
    sequences = (
        SequenceTable(each.sequence, each.epoch, each.base_length, each.draft_hash, other)
        for each, other in zip(table.sequences, turned, strict=True)
    )
    return Table(incarnation=table.incarnation, number=table.number, sequences=tuple(sequences))


def old_incarnation(answers: Answers) -> Answers:
    return [
        Table(incarnation=99, number=answer.number, sequences=answer.sequences) if isinstance(answer, Table) else answer
        for answer in answers
    ]


class RandomBytes:
    """Sends noise beside the answers, and in their place."""

    def __init__(self) -> None:
        self._random = random.Random(0)

    def __call__(self, answers: Answers) -> Answers:
        return [self._random.randbytes(self._random.randrange(60)) for _ in range(3)]
