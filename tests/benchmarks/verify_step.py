"""What does it cost to verify 8 tokens instead of decoding 1?"""

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from itertools import count
from statistics import median

from cluster.engine.drafters.base import Draft, Wanted
from cluster.engine.engine import Engine
from cluster.engine.plan import ScheduledSequence
from cluster.engine.sequence import Sequence
from cluster.types import SpeculationMode
from tests.benchmarks.linears import PackedLinears
from tests.benchmarks.measure import THREADS, interleave
from tests.benchmarks.report import Answer, Limit, Row
from tests.benchmarks.workloads import PROMPTS, chat_ids, engine_config, generate, make_request, timed_steps

NUM_ROWS = 8
DECODE, VERIFY = "decode 1: engine.step", f"verify {NUM_ROWS}, all accepted: engine.step"
DECODE_FORWARD, VERIFY_FORWARD = "decode 1: forward pass", f"verify {NUM_ROWS}: forward pass"
LINEARS_1, LINEARS_8 = "packed linears alone, 1 row", f"packed linears alone, {NUM_ROWS} rows"


class ReplayDrafter:
    """Proposes what the target is known to write, so that every draft is accepted and every row is sampled."""

    name = "replay"

    def __init__(self, token_ids: Seq[int]) -> None:
        self._token_ids = tuple(token_ids)

    def propose(self, wanted: Seq[Wanted]) -> Mapping[str, Draft]:
        """The next tokens of the recording."""
        drafts = {}
        for want in wanted:
            start = want.sequence.num_tokens
            token_ids = self._token_ids[start : start + want.max_tokens]
            drafts[want.sequence.request_id] = Draft(token_ids=token_ids, source=self.name)
        return drafts

    def begin_round(self, items: Seq[ScheduledSequence]) -> None:
        """Nothing to do."""

    def observe(self, sequence: Sequence, draft: Draft, num_accepted: int) -> None:
        """Nothing to learn."""

    def forget(self, request_id: str) -> None:
        """Nothing to drop."""

    def close(self) -> None:
        """Nothing to release."""


def measure(*, quick: bool) -> Answer:
    """Interleave blocks of plain and of verifying steps, and of the products alone for 1 and 8 rows."""
    num_rounds, num_steps = (1, 2) if quick else (25, 8)
    engine, linears = Engine.from_config(engine_config(enable_prefix_cache=True)), PackedLinears()
    prompt = chat_ids(engine.tokenizer, PROMPTS["copy"])
    num_tokens = NUM_ROWS * (num_steps + 4)
    ids = count()
    recorded = generate(engine, [make_request("record", prompt, num_tokens)]).token_ids["record"]
    engine.use_drafter(ReplayDrafter((*prompt, *recorded)))

    def decode() -> Mapping[str, Seq[float]]:
        times = timed_steps(engine, make_request(f"r{next(ids)}", prompt, num_tokens), num_steps=num_steps)
        return {DECODE: times.step_s, DECODE_FORWARD: times.forward_s}

    def verify() -> Mapping[str, Seq[float]]:
        request = make_request(f"r{next(ids)}", prompt, num_tokens, mode=SpeculationMode.ON)
        times = timed_steps(engine, request, num_steps=num_steps, num_tokens_per_step=NUM_ROWS)
        return {VERIFY: times.step_s, VERIFY_FORWARD: times.forward_s}

    def multiply() -> Mapping[str, Seq[float]]:
        return {LINEARS_1: linears.times_s(1, num_steps), LINEARS_8: linears.times_s(NUM_ROWS, num_steps)}

    rounds = interleave((decode, verify, multiply), num_rounds=num_rounds)
    names = (DECODE, VERIFY, DECODE_FORWARD, VERIFY_FORWARD, LINEARS_1, LINEARS_8)
    linears_ratio = median(rounds.ratios(LINEARS_8, LINEARS_1))
    return Answer(
        question=f"What does verifying {NUM_ROWS} tokens cost against decoding 1 ({len(prompt)} tokens of context)?",
        model=engine.model_id,
        rows=tuple(Row.of(name, rounds) for name in names),
        limits=(
            Limit.at_most_of("verify 8 / decode 1, whole step", rounds.ratios(VERIFY, DECODE), 1.15),
            Limit.at_most_of("verify 8 / decode 1, forward", rounds.ratios(VERIFY_FORWARD, DECODE_FORWARD), 1.15),
        ),
        counts={"rounds": num_rounds, "steps_per_round": num_steps, "rows": NUM_ROWS, "threads": THREADS},
        notes=(f"oneDNN's packed linears alone take {linears_ratio:.2f} times as long for {NUM_ROWS} rows as for 1",),
    )
