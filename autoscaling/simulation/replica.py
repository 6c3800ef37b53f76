"""A verifier replica on simulated time.

Between two changes (a request comes, its prompt is read, it ends, the role changes) nothing about a round changes, so
sequences are not stepped: each class has a virtual clock that counts the tokens every sequence of it has written, a
sequence ends when its class's clock reaches a number known in advance, and the next change can be computed. One change
costs microseconds, however many rounds lie before it.
"""

from collections import deque
from heapq import heappop, heappush
from math import inf

from autoscaling.simulation.rates import RateBook
from autoscaling.simulation.workload import SimRequest
from cluster.routing.ranking import ReplicaLoad
from cluster.types import Role

_EPSILON = 1e-9


class Tally:
    """Counts over all replicas, by traffic class (the last entry: sequences that did not draft).

    Attributes:
        tokens: written while decoding; the first token of a request belongs to its prompt.
        drafted: draft tokens verified.
        accepted: of those.
        rounds: of sequences with drafts.
    """

    __slots__ = ("accepted", "drafted", "rounds", "tokens")

    def __init__(self, num_classes: int) -> None:
        self.tokens, self.drafted, self.accepted, self.rounds = ([0.0] * num_classes for _ in range(4))


class SimReplica:
    """One replica. Mutable.

    Args:
        replica_id: its name.
        role: what it does first.
        rates: how fast its sequences grow.
        tally: where it counts.
        seats: sequences in its batch by role.
        kv_capacity: KV entries by role; a request takes what it needs at its end, so that none is ever preempted.
        prompt_rows: most prompt tokens in a pass.
    """

    __slots__ = (
        "_book",
        "_counts",
        "_deltas",
        "_ends",
        "_kv_capacity",
        "_promised",
        "_prompt_rows",
        "_prompt_tokens",
        "_read_rate",
        "_seats",
        "_serial",
        "_tally",
        "_unread",
        "_virtual",
        "_written",
        "busy_s",
        "clock_s",
        "context_tokens",
        "kv_tokens",
        "num_accepted",
        "num_decoding",
        "num_drafted",
        "num_rows",
        "output_tokens",
        "prompts",
        "queued_tokens",
        "replica_id",
        "role",
        "round_s",
        "row_rate",
        "version",
        "waiting",
    )

    def __init__(
        self,
        replica_id: str,
        role: Role,
        *,
        rates: RateBook,
        tally: Tally,
        seats: dict[Role, int],
        kv_capacity: dict[Role, int],
        prompt_rows: int,
    ) -> None:
        self.replica_id, self.role = replica_id, role
        self._book, self._tally = rates, tally
        self._seats, self._kv_capacity, self._prompt_rows = seats, kv_capacity, prompt_rows
        num_classes = rates.num_classes
        self._counts = [0] * num_classes
        self._virtual = [0.0] * num_classes
        self._ends: list[list[tuple[float, int, SimRequest]]] = [[] for _ in range(num_classes)]
        self._deltas: list[tuple[int, float, int, float, float]] = []
        self._serial = self._prompt_tokens = 0
        self._unread = self._read_rate = self._written = 0.0
        self.waiting: deque[SimRequest] = deque()
        self.prompts: deque[SimRequest] = deque()
        self.clock_s = self.busy_s = self.num_rows = self.row_rate = 0.0
        self.num_decoding = self.kv_tokens = self.version = self._promised = self.queued_tokens = 0
        self.context_tokens = self.output_tokens = self.num_drafted = self.num_accepted = 0.0
        self.round_s = 0.0

    @property
    def num_running(self) -> int:
        """Requests with a place in the batch."""
        return self.num_decoding + len(self.prompts)

    @property
    def num_queued(self) -> int:
        """Requests without a first token; `queued_tokens` are their prompt tokens."""
        return len(self.prompts) + len(self.waiting)

    @property
    def num_ongoing(self) -> int:
        """Those and the ones that wait."""
        return self.num_decoding + len(self.prompts) + len(self.waiting)

    @property
    def kv_usage_ratio(self) -> float:
        """Used share of the KV entries of the present role."""
        return min(1.0, self.kv_tokens / self._kv_capacity[self.role])

    @property
    def mean_context_tokens(self) -> float:
        """KV entries of a decoding sequence."""
        return self.context_tokens / self.num_decoding if self.num_decoding else 0.0

    @property
    def num_outstanding_tokens(self) -> int:
        """Prompt tokens to read and tokens to write at most, as of the last change."""
        return max(0, self._promised - int(self._written))

    def load(self) -> ReplicaLoad:
        """What a router knows of it."""
        return ReplicaLoad(
            replica_id=self.replica_id,
            role=self.role,
            num_outstanding_tokens=max(0, self._promised - int(self._written)),
            num_ongoing=self.num_decoding + len(self.prompts) + len(self.waiting),
        )

    def add(self, request: SimRequest, now_s: float) -> bool:
        """A request comes; returns whether anything changed for those that run."""
        self.waiting.append(request)
        self._promised += request.num_prompt_tokens + request.max_tokens
        self.queued_tokens += request.num_prompt_tokens
        if not self._can_admit():
            return False
        self.advance(now_s)
        before = min(self._prompt_tokens, self._prompt_rows)
        self._admit()
        return min(self._prompt_tokens, self._prompt_rows) != before

    def set_role(self, role: Role, now_s: float) -> None:
        """Change what it does; those that run stay, more than the seats of the new role if need be."""
        self.advance(now_s)
        self.role = role
        self._admit()

    def advance(self, now_s: float) -> None:
        """Let time pass."""
        elapsed_s = now_s - self.clock_s
        self.clock_s = now_s
        if elapsed_s <= 0.0 or not (self.num_decoding or self.prompts):
            return
        self.busy_s += elapsed_s
        self.num_rows += elapsed_s * self.row_rate
        self._unread -= elapsed_s * self._read_rate
        virtual, tally = self._virtual, self._tally
        for index, rate, count, drafted_rate, round_rate in self._deltas:
            grown = rate * elapsed_s
            virtual[index] += grown
            tokens = grown * count
            self._written += tokens
            self.output_tokens += tokens
            tally.tokens[index] += tokens
            if drafted_rate:
                drafted, rounds = drafted_rate * elapsed_s * count, round_rate * elapsed_s * count
                tally.rounds[index] += rounds
                tally.drafted[index] += drafted
                tally.accepted[index] += tokens - rounds
                self.num_drafted += drafted
                self.num_accepted += tokens - rounds

    def settle(self, now_s: float) -> tuple[list[SimRequest], list[SimRequest]]:
        """Do what is due.

        Returns:
            Requests whose prompt was read now, and requests that ended now.
        """
        self.advance(now_s)
        began: list[SimRequest] = []
        ended: list[SimRequest] = []
        while self.prompts and self._unread <= _EPSILON * self.prompts[0].num_prompt_tokens:
            self._finish_prompt(now_s, began, ended)
        for index, ends in enumerate(self._ends):
            while ends and ends[0][0] <= self._virtual[index] + _EPSILON * (1 + self._virtual[index]):
                self._finish(heappop(ends)[2], index, ended)
        self._admit()
        return began, ended

    def plan(self) -> float:
        """Seconds until the next change; infinite when idle. Call it after anything changed."""
        self.version += 1
        self._deltas = []
        if not (self.num_decoding or self.prompts):
            self.row_rate = self.round_s = 0.0
            return inf
        num_prompt_rows = min(self._prompt_tokens, self._prompt_rows)
        flow = self._book.flow(self.role, self._counts, self.context_tokens, num_prompt_rows)
        self.round_s = flow.round_s
        per_s = 1.0 / flow.round_s
        self.row_rate = flow.num_rows * per_s
        # Prompts share the rows of a pass in the order of their arrival; the last rows of one are those of the next.
        self._read_rate = num_prompt_rows * per_s
        next_s = self._unread / self._read_rate if self.prompts else inf
        for index, count in enumerate(self._counts):
            if count:
                rate = flow.tokens[index] * per_s
                self._deltas.append((index, rate, count, flow.drafted[index] * per_s, per_s))
                next_s = min(next_s, (self._ends[index][0][0] - self._virtual[index]) / rate)
        return max(next_s, 0.0)

    def slowest_tpot_s(self) -> float | None:
        """Time per token of the class that grows slowest; None while nothing decodes."""
        return max((1 / delta[1] for delta in self._deltas), default=None)

    def _can_admit(self) -> bool:
        if not self.waiting or self.num_running >= self._seats[self.role]:
            return False
        # One that is larger than the whole cache runs alone rather than never.
        return not self.num_running or self.kv_tokens + self.waiting[0].kv_tokens <= self._kv_capacity[self.role]

    def _admit(self) -> None:
        while self._can_admit():
            request = self.waiting.popleft()
            if not self.prompts:
                self._unread = float(request.num_prompt_tokens)
            self.prompts.append(request)
            self._prompt_tokens += request.num_prompt_tokens
            self.kv_tokens += request.kv_tokens

    def _finish_prompt(self, now_s: float, began: list[SimRequest], ended: list[SimRequest]) -> None:
        request = self.prompts.popleft()
        self._prompt_tokens -= request.num_prompt_tokens
        self._promised -= request.num_prompt_tokens
        self.queued_tokens -= request.num_prompt_tokens
        self._unread = float(self.prompts[0].num_prompt_tokens) if self.prompts else 0.0
        request.first_token_s = now_s
        self.output_tokens += 1
        began.append(request)
        index = request.class_index if request.drafts else len(self._counts) - 1
        self.num_decoding += 1
        self._counts[index] += 1
        self.context_tokens += _mean_context(request)
        if request.num_output_tokens == 1:
            self._finish(request, index, ended)
            return
        self._serial += 1
        heappush(self._ends[index], (self._virtual[index] + request.num_output_tokens - 1, self._serial, request))

    def _finish(self, request: SimRequest, index: int, ended: list[SimRequest]) -> None:
        self.num_decoding -= 1
        self._counts[index] -= 1
        self.context_tokens -= _mean_context(request)
        self.kv_tokens -= request.kv_tokens
        self._promised -= request.max_tokens
        self._written -= request.num_output_tokens - 1
        ended.append(request)


def _mean_context(request: SimRequest) -> float:
    """KV entries over the request's life, on average: what it costs in all is right, though not at each moment."""
    return request.num_prompt_tokens + request.num_output_tokens / 2
