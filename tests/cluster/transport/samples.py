"""Messages to send: one of every kind, the two of a usual round, and strategies for all that is valid."""

from hypothesis import strategies as st

from cluster.messages import (
    Close,
    Entry,
    Hello,
    Lost,
    Message,
    Open,
    Ping,
    Pong,
    Refusal,
    Round,
    Row,
    SequenceTable,
    Table,
    Welcome,
    draft_hash,
)
from cluster.types import SamplingParams

ROW = Row(sequence=7, epoch=0, base_length=300, new_token_ids=(5, 40_000), draft_token_ids=(1, 2, 3, 4), num_tokens=4)
ENTRIES = tuple(Entry(num_accepted=k, token_ids=(40_000 + rank,) * 5) for k in range(5) for rank in range(4))
SEQUENCE_TABLE = SequenceTable(
    sequence=7, epoch=0, base_length=300, draft_hash=draft_hash(ROW.draft_token_ids), entries=ENTRIES
)
SAMPLING = SamplingParams(max_tokens=5, seed=2**64 - 1, logit_bias=((3, -1.5),), bad_words=((1, 2),), stop=("x",))

SAMPLES: tuple[Message, ...] = (
    Hello(version=1, incarnation=2**63, model_hash="m", tokenizer_hash="t", name="verifier ☃"),
    Welcome(version=1, incarnation=2**64 - 1, num_speculative_tokens=4, max_model_len=2048),
    Refusal(reason="another tokenizer"),
    Open(sequence=7, epoch=1, num_prompt_tokens=2, token_ids=(1, 2**31 - 1, 3), sampling=SAMPLING),
    Round(number=9, verify_s=0.0213, rows=(ROW,)),
    Table(incarnation=2**64 - 1, number=9, sequences=(SEQUENCE_TABLE,)),
    Lost(sequences=(7, 8), reason="unknown"),
    Close(sequences=(7,)),
    Ping(number=0),
    Pong(number=2**64 - 1),
)


def round_of(number: int) -> Round:
    """A usual round with a number of its own."""
    return Round(number=number, verify_s=0.02, rows=(ROW,))


def table_of(number: int) -> Table:
    """The answer to `round_of`."""
    return Table(incarnation=1, number=number, sequences=(SEQUENCE_TABLE,))


_int32 = st.integers(0, 2**31 - 1)
_uint64 = st.integers(0, 2**64 - 1)
_positive = st.integers(1, 2**31 - 1)
_ids = st.lists(_int32, max_size=6).map(tuple)
_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
_ratio = st.floats(0.0, 1.0)
_number = st.floats(-1e6, 1e6)

samplings = st.builds(
    SamplingParams,
    max_tokens=_positive,
    seed=_uint64,
    temperature=st.floats(0.0, 100.0),
    top_k=_int32,
    top_p=_ratio,
    min_p=_ratio,
    repetition_penalty=_number,
    presence_penalty=_number,
    frequency_penalty=_number,
    logit_bias=st.lists(st.tuples(_int32, _number), max_size=3).map(tuple),
    allowed_token_ids=_ids,
    bad_words=st.lists(_ids, max_size=3).map(tuple),
    min_tokens=_int32,
    ignore_eos=st.booleans(),
    stop_token_ids=_ids,
    stop=st.lists(_texts, max_size=2).map(tuple),
    include_stop_str_in_output=st.booleans(),
    skip_special_tokens=st.booleans(),
    logprobs=st.none() | st.integers(0, 20),
    prompt_logprobs=st.none() | st.integers(0, 20),
)


@st.composite
def _opens(draw: st.DrawFn) -> Open:
    token_ids = draw(st.lists(_int32, min_size=1, max_size=40).map(tuple))
    return Open(
        sequence=draw(_int32),
        epoch=draw(_int32),
        num_prompt_tokens=draw(st.integers(0, len(token_ids))),
        token_ids=token_ids,
        sampling=draw(samplings),
        trace=draw(st.binary(max_size=64)),
    )


_rows = st.builds(
    Row,
    sequence=_int32,
    epoch=_int32,
    base_length=st.integers(6, 2**31 - 1),
    new_token_ids=_ids,
    draft_token_ids=_ids,
    num_tokens=_int32,
)
_entries = st.builds(Entry, num_accepted=_int32, token_ids=st.lists(_int32, min_size=1, max_size=6).map(tuple))
_tables = st.builds(
    SequenceTable,
    sequence=_int32,
    epoch=_int32,
    base_length=_positive,
    draft_hash=st.integers(0, 2**32 - 1),
    entries=st.lists(_entries, max_size=5).map(tuple),
)

messages: st.SearchStrategy[Message] = st.one_of(
    st.builds(Hello, version=_uint64, incarnation=_uint64, model_hash=_texts, tokenizer_hash=_texts, name=_texts),
    st.builds(Welcome, version=_uint64, incarnation=_uint64, num_speculative_tokens=_uint64, max_model_len=_uint64),
    st.builds(Refusal, reason=_texts),
    _opens(),
    st.builds(Round, number=_uint64, verify_s=st.floats(0.0, 1e6), rows=st.lists(_rows, max_size=4).map(tuple)),
    st.builds(Table, incarnation=_uint64, number=_uint64, sequences=st.lists(_tables, max_size=3).map(tuple)),
    st.builds(Lost, sequences=_ids, reason=_texts),
    st.builds(Close, sequences=_ids),
    st.builds(Ping, number=_uint64),
    st.builds(Pong, number=_uint64),
)
