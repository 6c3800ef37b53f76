import pytest

from cluster.training.corpus import Passage
from cluster.training.prompts import INVENTED, PromptWriter, TrainingPrompt
from tests.tiny import build_tokenizer

TOKENIZER = build_tokenizer()
PASSAGES = [
    Passage(text=f"passage number {n} of this text", source="book", is_code=n % 2 == 0, licence="MIT") for n in range(7)
]


def prompts(seed: int, indices: range = range(60)) -> list[TrainingPrompt]:
    writer = PromptWriter(TOKENIZER, PASSAGES, seed=seed, max_tokens=64)
    return [writer.prompt(index) for index in indices]


def text(prompt: TrainingPrompt) -> str:
    return str(TOKENIZER.decode(list(prompt.token_ids)))


def test_prompts_are_the_seeds() -> None:
    assert prompts(1) == prompts(1)
    assert prompts(1) != prompts(2)


def test_a_prompt_depends_on_its_number_alone() -> None:
    assert prompts(1)[40:] == prompts(1, range(40, 60))
    writer = PromptWriter(TOKENIZER, PASSAGES, seed=1, max_tokens=64)
    assert writer.answer("why?", 7) == writer.answer("why?", 7)
    temperatures = {writer.answer("why?", index).temperature for index in range(40)}
    assert temperatures == {0.0, 0.7, 1.0}


def test_all_three_kinds_occur_with_their_sources() -> None:
    found = prompts(1)
    uses = {prompt.source.use for prompt in found}
    assert uses == {"questions and their answers", "tasks on passages", "continuations of passages"}
    assert {(p.source.name, p.source.licence) for p in found if not p.asks_user} == {("book", "MIT")}


def test_the_target_is_left_at_the_users_turn_or_at_its_own() -> None:
    for prompt in prompts(1):
        if prompt.asks_user:
            assert prompt.source == INVENTED
            assert text(prompt).endswith("<|im_start|>user\n")
        elif prompt.source.use == "tasks on passages":
            assert text(prompt).endswith("<|im_start|>assistant\n")
            assert "passage number" in text(prompt)
        else:
            assert "<|im_start|>" not in text(prompt)


def test_a_question_is_answered_in_the_chat_template() -> None:
    answer = PromptWriter(TOKENIZER, PASSAGES, seed=1, max_tokens=64).answer("what is an outrider?", 3)
    assert text(answer) == ("<|im_start|>user\nwhat is an outrider?<|im_end|>\n<|im_start|>assistant\n")


@pytest.mark.parametrize("index", range(20))
def test_without_a_chat_template_there_are_continuations_only(index: int) -> None:
    plain = build_tokenizer()
    plain.chat_template = None
    prompt = PromptWriter(plain, PASSAGES, seed=1, max_tokens=64).prompt(index)
    assert prompt.source.use == "continuations of passages"
