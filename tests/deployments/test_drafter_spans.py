from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from cluster.engine.sequence import Sequence
from cluster.engine.sequence_budget import LearnedPriors
from cluster.messages import Close, Entry, Lost, Message, Open, Round, Row, SequenceTable, Table
from cluster.telemetry.tracing import Tracing, pack_context
from cluster.telemetry.tracing_config import TracingConfig
from cluster.transport.channel import PeerId
from cluster.types import Request, SamplingParams
from deployments import drafter_spans
from deployments.draft_follow import PRIORS, Followed
from deployments.drafter_core import Outgoing
from deployments.drafter_spans import TracedAhead

A, B = b"a", b"b"


class Mind:
    """Answers what it is told to."""

    def __init__(self) -> None:
        self.handled: list[Message] = []
        self.answers: list[tuple[PeerId, Message]] = []
        self.has_work = True

    def handle(self, peer: PeerId, message: Message) -> Outgoing:
        self.handled.append(message)
        yield from self.answers

    def step(self) -> Outgoing:
        return self.answers

    def drop_peer(self, peer: PeerId) -> None:
        pass

    def evict_idle(self) -> int:
        return 3


class Traced:
    """A watched mind, and the spans that ended."""

    def __init__(self) -> None:
        self._exporter, self.mind = InMemorySpanExporter(), Mind()
        config = TracingConfig(endpoint="http://unused:1", export_interval_s=60.0)
        self.tracing = Tracing(config, component="drafter", replica="d", exporter=self._exporter)
        self.ahead = TracedAhead(self.mind, self.tracing, model="draft")
        self.parent = self.tracing.start("verifier.choice")

    def say(self, message: Message, peer: PeerId = A) -> list[tuple[PeerId, Message]]:
        return list(self.ahead.handle(peer, message))

    def open(self, sequence: int, peer: PeerId = A, *, is_traced: bool = True) -> None:
        message = Open(
            sequence=sequence,
            epoch=2,
            num_prompt_tokens=2,
            token_ids=(1, 2, 3),
            sampling=SamplingParams(max_tokens=9, seed=1),
            trace=pack_context(self.parent) if is_traced else b"",
        )
        self.say(message, peer)

    def ended(self) -> list[dict[str, Any]]:
        self.tracing.flush()
        spans = self._exporter.get_finished_spans()
        assert all(span.parent and span.parent.span_id == self.parent.get_span_context().span_id for span in spans)
        assert {span.name for span in spans} <= {"drafter.sequence"}
        return [dict(span.attributes or {}) for span in spans]


@pytest.fixture
def traced() -> Iterator[Traced]:
    traced = Traced()
    yield traced
    traced.tracing.stop()


def rows(*sequences: int) -> Round:
    made = (
        Row(sequence=s, epoch=2, base_length=3, new_token_ids=(), draft_token_ids=(), num_tokens=4) for s in sequences
    )
    return Round(number=1, verify_s=0.01, rows=tuple(made))


def table(sequence: int, *drafts: tuple[int, ...]) -> Table:
    entries = tuple(Entry(num_accepted=0, token_ids=draft) for draft in drafts)
    found = SequenceTable(sequence=sequence, epoch=2, base_length=3, draft_hash=0, entries=entries)
    return Table(incarnation=1, number=1, sequences=(found,))


def test_a_span_lasts_from_open_to_close_and_counts_what_was_drafted(traced: Traced) -> None:
    traced.open(7)
    traced.say(rows(7, 8))
    traced.say(rows(7))
    traced.mind.answers = [(A, table(7, (1, 2, 3), (4, 5))), (B, table(7, (1, 2)))]
    assert list(traced.ahead.step()) == traced.mind.answers
    traced.mind.answers = []
    assert traced.ended() == []
    traced.say(Close(sequences=(7, 9)))
    assert traced.ended() == [
        {
            "gen_ai.request.model": "draft",
            "outrider.drafter.epoch": 2,
            "outrider.prompt_tokens": 2,
            "outrider.output_tokens": 1,
            "outrider.drafter.rounds": 2,
            "outrider.drafter.tables": 1,
            "outrider.drafter.outcomes": 2,
            "outrider.drafter.draft_tokens": 3,
            "outrider.drafter.end": "closed",
        }
    ]
    assert traced.ahead.num_open == 0
    assert len(traced.mind.handled) == 4


@pytest.mark.parametrize("reason", ["capacity", "length", "unknown"])
def test_a_lost_sequence_says_why(traced: Traced, reason: str) -> None:
    traced.mind.answers = [(A, Lost(sequences=(7,), reason=reason))]
    traced.open(7)
    assert [found["outrider.drafter.end"] for found in traced.ended()] == [reason]


def test_the_same_sequence_opened_again_begins_a_new_span(traced: Traced) -> None:
    traced.open(7)
    traced.open(7, B)
    traced.open(7)
    assert [found["outrider.drafter.end"] for found in traced.ended()] == ["opened_again"]
    assert traced.ahead.num_open == 2


def test_a_verifier_that_is_gone_and_a_drafter_that_stops_end_their_spans(traced: Traced) -> None:
    traced.open(1)
    traced.open(2)
    traced.open(3, B)
    traced.ahead.drop_peer(A)
    traced.ahead.stop()
    assert [found["outrider.drafter.end"] for found in traced.ended()] == [*["verifier_gone"] * 2, "drafter_stopped"]


def test_sequences_without_a_context_have_no_span_and_answers_pass_unchanged(traced: Traced) -> None:
    traced.open(7, is_traced=False)
    traced.mind.answers = [(A, table(7, (1, 2)))]
    assert traced.ahead.step() is traced.mind.answers
    assert traced.say(rows(7)) == traced.mind.answers
    assert (traced.ahead.num_open, traced.ahead.evict_idle(), traced.ahead.has_work) == (0, 3, True)


def test_a_verifier_tells_its_drafter_of_the_choices_context() -> None:
    request = Request(
        request_id="r", prompt_token_ids=(1, 2), sampling=SamplingParams(max_tokens=9, seed=1), trace=b"context"
    )
    followed = Followed.of(7, Sequence.from_request(request), LearnedPriors(PRIORS))
    assert followed.open_message().trace == b"context"


def test_spans_are_bounded(traced: Traced, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drafter_spans, "MAX_SPANS", 2)
    for sequence in range(4):
        traced.open(sequence)
    assert traced.ahead.num_open == 2
    assert [found["outrider.drafter.end"] for found in traced.ended()] == ["too_many"] * 2
