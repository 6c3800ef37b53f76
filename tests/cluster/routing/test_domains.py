import time
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.routing.domains import FORM_CHARS, INSTRUCTION_CHARS, detect, detect_chat
from cluster.routing.types import Domain
from tests.cluster.routing.labelled_prompts import LABELLED

steady = settings(derandomize=True, deadline=None)
STORY = "Write a short story about a lighthouse keeper who finds a letter."


def test_prompts_of_our_own_are_taken_for_what_they_are() -> None:
    right = Counter(domain for domain, prompt in LABELLED if detect(prompt).domain is domain)
    total = Counter(domain for domain, _ in LABELLED)
    assert right.total() >= 0.95 * total.total()
    for domain in Domain:
        assert total[domain] >= 25
        assert right[domain] >= 0.9 * total[domain], domain


@steady
@given(st.text(max_size=400))
def test_any_text_has_one_domain_and_a_confidence(text: str) -> None:
    found = detect(text)
    assert found == detect(text)
    assert 0.2 <= found.confidence <= 1.0
    assert found.scores[found.domain] == max(found.scores.values())
    for domain in Domain:
        assert found.scores[domain] == pytest.approx(sum(w for _, d, w in found.evidence if d is domain))


def test_nothing_in_particular_is_general_chat_without_confidence() -> None:
    for text in ("", "ok", "????", "再见"):
        found = detect(text)
        assert (found.domain, found.confidence < 0.6) == (Domain.GENERAL_CHAT, True)


def test_a_demanded_form_outweighs_words() -> None:
    assert detect(STORY).domain is Domain.CREATIVE_WRITING
    assert detect(STORY, "json_object").domain is Domain.STRUCTURED_JSON
    assert detect(STORY, "text") == detect(STORY)


def test_a_follow_up_belongs_to_the_conversation_and_a_new_subject_does_not() -> None:
    assert detect_chat([STORY, "Make it shorter."]).domain is Domain.CREATIVE_WRITING
    assert detect_chat([STORY, "Make it shorter.", "And more cheerful."]).domain is Domain.CREATIVE_WRITING
    code = "Write a Python function that reverses a list."
    assert detect_chat([STORY, code]).domain is Domain.CODE_SYNTHESIS
    assert detect_chat([STORY, *["Thanks."] * 3]).domain is Domain.GENERAL_CHAT
    assert detect_chat([]).domain is Domain.GENERAL_CHAT


def test_the_system_prompt_counts() -> None:
    system = "You extract entities. Answer in JSON that fits the schema."
    assert detect_chat(["Ann Lee works for Initech in Rome."], system).domain is Domain.STRUCTURED_JSON
    assert detect_chat(["Ann Lee works for Initech in Rome."], "You are a helpful assistant.").domain is (
        Domain.GENERAL_CHAT
    )


def test_words_in_the_middle_of_long_material_do_not_count() -> None:
    filler = "The committee met again and put the matter off until spring. " * 40
    material = f"{filler}\nWrite a poem, a story and a song about JSON in Python.\n{filler}"
    found = detect(f"Summarize this.\n\n{material}")
    assert found.domain is Domain.RAG_SUMMARY
    assert not {"word: poem", "word: json", "word: python"} & {feature for feature, _, _ in found.evidence}


def test_only_the_ends_of_a_long_prompt_are_looked_at() -> None:
    head, tail = "x" * FORM_CHARS, "y" * FORM_CHARS
    middle = "\ndef f(x):\n    return x\n"
    assert detect(f"{head}{middle}{tail}") == detect(f"{head}{' ' * len(middle)}{tail}")
    assert INSTRUCTION_CHARS < FORM_CHARS


@pytest.mark.parametrize(
    "unit", ["a", "a ", "a.", "a\n", "write ", "[1]", "```", '"a":', "def f(", "x = ", "Question: ", "select a from "]
)
def test_no_prompt_of_two_million_characters_takes_long(unit: str) -> None:
    text = unit * (2_000_000 // len(unit))
    best_s = min(_time_s(text) for _ in range(3))
    assert best_s < 0.05


def _time_s(text: str) -> float:
    started_s = time.perf_counter()
    detect(text)
    return time.perf_counter() - started_s
