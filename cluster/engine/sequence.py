"""The state of one choice inside the engine. Only `Engine.commit` and the scheduler change it."""

from dataclasses import dataclass, field
from enum import Enum, auto

from cluster.grammar.matcher import GrammarMatcher
from cluster.types import Request


class SequenceStatus(Enum):
    """Where a sequence is."""

    WAITING = auto()
    RUNNING = auto()
    FINISHED = auto()


@dataclass(slots=True, eq=False)
class Sequence:
    """Tokens, KV blocks and counters of one choice.

    Attributes:
        request: what was asked for.
        token_ids: prompt plus committed output.
        num_computed_tokens: leading tokens whose KV is written and final.
        num_cached_tokens: leading prompt tokens taken from the prefix cache at first admission.
        block_table: KV block ids in order; block i holds positions [i * block_size, ...).
        status: waiting, running or finished.
        epoch: restarts by preemption; results of an older epoch are dropped.
        num_preemptions: how often it lost its blocks.
        first_scheduled_s: clock time of the first scheduling, for queue-time metrics.
        grammar: what the output must follow, behind its committed tokens; None for anything.
    """

    request: Request
    token_ids: list[int]
    num_computed_tokens: int = 0
    num_cached_tokens: int = 0
    block_table: list[int] = field(default_factory=list)
    status: SequenceStatus = SequenceStatus.WAITING
    epoch: int = 0
    num_preemptions: int = 0
    first_scheduled_s: float | None = None
    grammar: GrammarMatcher | None = None

    @classmethod
    def from_request(cls, request: Request, grammar: GrammarMatcher | None = None) -> "Sequence":
        """A waiting sequence that holds the prompt, and what an earlier attempt brought."""
        token_ids = [*request.prompt_token_ids, *request.output_token_ids]
        return cls(request=request, token_ids=token_ids, grammar=grammar)

    @property
    def request_id(self) -> str:
        """The choice's id."""
        return self.request.request_id

    @property
    def num_prompt_tokens(self) -> int:
        """Length of the prompt."""
        return len(self.request.prompt_token_ids)

    @property
    def num_tokens(self) -> int:
        """Prompt plus committed output."""
        return len(self.token_ids)

    @property
    def num_output_tokens(self) -> int:
        """Committed output tokens; the next token's output index."""
        return len(self.token_ids) - len(self.request.prompt_token_ids)

    @property
    def has_new_output(self) -> bool:
        """True once a token was committed here, and not only by an earlier attempt."""
        return self.num_output_tokens > len(self.request.output_token_ids)

    @property
    def num_uncomputed_tokens(self) -> int:
        """Tokens whose KV must still be written; 1 while plainly decoding."""
        return len(self.token_ids) - self.num_computed_tokens

    @property
    def is_decoding(self) -> bool:
        """True when exactly one token is left to compute: the next pass samples."""
        return self.status is SequenceStatus.RUNNING and self.num_uncomputed_tokens == 1
