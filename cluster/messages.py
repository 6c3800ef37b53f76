"""What verifiers and drafters say to each other: typed, versioned, msgpack, token ids only (DESIGN section 7).

A verifier opens a sequence, then sends one `Round` before each of its forward passes: what was committed since the last
one, and the draft that it verifies now. The drafter answers with a `Table`: continuations of the possible outcomes.
Everything is a plain value here; sockets are in `cluster.transport`.

Sequence ids are small numbers that a verifier gives out and never uses twice. `base_length` counts committed tokens,
prompt included. A message about another epoch or base length than the receiver's is stale and is dropped.
"""

import zlib
from collections.abc import Sequence

import msgspec

from cluster.types import SamplingParams

PROTOCOL_VERSION = 2
"""Raised when a message changes its meaning; ends of different versions refuse each other."""

MAX_MESSAGE_BYTES = 8 << 20
"""Longest message that is sent or decoded: a prompt of a million tokens fits."""

MAX_TRACE_BYTES = 25 + 512
"""Longest trace context: ids and flags, and the `tracestate` of the client."""


class Hello(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """Verifier to drafter, first message of a connection.

    Attributes:
        version: `PROTOCOL_VERSION` of the sender.
        incarnation: random number drawn when the verifier started.
        model_hash: names the target's weights.
        tokenizer_hash: of the vocabulary, id by id (`vocabulary_hash`).
        name: of the verifier, for logs and metrics.
    """

    version: int
    incarnation: int
    model_hash: str
    tokenizer_hash: str
    name: str


class Welcome(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Drafter to verifier: the connection stands.

    Attributes:
        version: `PROTOCOL_VERSION` of the sender.
        incarnation: random number drawn when the drafter started.
        num_speculative_tokens: longest draft it makes.
        max_model_len: longest sequence it follows, in tokens.
    """

    version: int
    incarnation: int
    num_speculative_tokens: int
    max_model_len: int


class Refusal(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Drafter to verifier: this pair cannot work (version, tokenizer, model); never again with this incarnation."""

    reason: str


class Open(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Verifier to drafter: a sequence to follow; replaces what was known under this id.

    Attributes:
        sequence: its id.
        epoch: restarts of it.
        num_prompt_tokens: leading tokens that are prompt; the next output index is len(token_ids) - num_prompt_tokens.
        token_ids: all committed tokens.
        sampling: how tokens are drawn; holds the seed.
        trace: context of the choice's span; empty where the request is not traced.
    """

    sequence: int
    epoch: int
    num_prompt_tokens: int
    token_ids: tuple[int, ...]
    sampling: SamplingParams
    trace: bytes = b""


class Row(msgspec.Struct, frozen=True, array_like=True):
    """One sequence in a round.

    Attributes:
        sequence: its id.
        epoch: restarts of it.
        base_length: committed tokens, the new ones included.
        new_token_ids: tokens committed since the last row or `Open` of this sequence.
        draft_token_ids: the draft in flight: it is verified now.
        num_tokens: draft tokens wanted for the next round, 0 for none.
    """

    sequence: int
    epoch: int
    base_length: int
    new_token_ids: tuple[int, ...]
    draft_token_ids: tuple[int, ...]
    num_tokens: int


class Round(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """Verifier to drafter: a forward pass begins.

    Attributes:
        number: counts up by one for each `Round` of this connection.
        verify_s: how long the pass will probably take.
        rows: the sequences in it that want drafts or have news.
    """

    number: int
    verify_s: float
    rows: tuple[Row, ...]


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """What may follow one outcome of a round.

    Attributes:
        num_accepted: draft tokens that were accepted, k.
        token_ids: the token that the target then draws, and the draft that follows it.
    """

    num_accepted: int
    token_ids: tuple[int, ...]


class SequenceTable(msgspec.Struct, frozen=True, array_like=True):
    """Continuations of one sequence.

    Attributes:
        sequence: its id.
        epoch: as in the row that is answered.
        base_length: as in the row that is answered.
        draft_hash: `draft_hash` of the draft that was in flight.
        entries: likeliest outcome first.
    """

    sequence: int
    epoch: int
    base_length: int
    draft_hash: int
    entries: tuple[Entry, ...]


class Table(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """Drafter to verifier: continuations of sequences of one round.

    Attributes:
        incarnation: of the drafter.
        number: of the round that is answered.
        sequences: one entry per sequence that is ready; the others follow or were given up.
    """

    incarnation: int
    number: int
    sequences: tuple[SequenceTable, ...]


class Lost(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """Drafter to verifier: these sequences are not followed (any more).

    Attributes:
        sequences: ids.
        reason: "unknown" (evicted, restarted, out of step: open it again if it still matters), "capacity" (try again
            later) or "length" (longer than the drafter's limit: never).
    """

    sequences: tuple[int, ...]
    reason: str


class Close(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """Verifier to drafter: these sequences ended."""

    sequences: tuple[int, ...]


class Ping(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """Either way: still there; answered by `Pong` with the same number. Silence for too long means gone."""

    number: int


class Pong(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """Answer to `Ping`."""

    number: int


Message = Hello | Welcome | Refusal | Open | Round | Table | Lost | Close | Ping | Pong


def draft_hash(token_ids: Sequence[int]) -> int:
    """32-bit hash of a draft, the same everywhere."""
    return zlib.crc32(b"".join(token_id.to_bytes(4, "little") for token_id in token_ids))
