"""What an engine notes about a choice for its trace."""

from typing import Any

from cluster.clock import ManualClock
from cluster.engine.drafters.ngram import NgramDrafter
from cluster.types import ChoiceRecord, RequestOutput
from tests.cluster.engine.engine_harness import make_engine, random_prompt, request


def drain_outputs(engine_settings: dict[str, Any], clock: ManualClock, prompt: tuple[int, ...]) -> list[RequestOutput]:
    engine = make_engine(clock=clock, **engine_settings)
    engine.add(request("a", prompt, max_tokens=24))
    outputs = []
    while engine.has_work:
        clock.advance(1.0)
        outputs += engine.step()
    return outputs


def test_the_last_output_and_no_other_tells_how_the_choice_went() -> None:
    outputs = drain_outputs({"drafter": NgramDrafter(max_draft_tokens=4)}, ManualClock(5.0), (7, 8, 9) * 8)
    *others, last = outputs
    assert all(output.record is None for output in others)
    assert last.record == ChoiceRecord(first_scheduled_s=6.0, num_preemptions=0, draft_sources=("ngram",))


def test_a_choice_that_was_never_drafted_for_names_no_source() -> None:
    outputs = drain_outputs({"num_speculative_tokens": 0}, ManualClock(), random_prompt(1, 12))
    assert outputs[-1].record == ChoiceRecord(first_scheduled_s=1.0)


def test_a_choice_that_is_aborted_in_the_queue_was_never_scheduled() -> None:
    engine = make_engine()
    engine.add(request("a", random_prompt(1, 12)))
    engine.abort("a")
    (last,) = engine.step()
    assert last.record == ChoiceRecord()
