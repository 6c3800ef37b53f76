import asyncio
import threading

import pytest

from cluster.errors import InvalidRequestError, UnavailableError
from deployments.chat_template import MAX_WORKERS, ChatRenderer, check_kwargs
from deployments.schema_openai import ChatMessage

pytestmark = pytest.mark.anyio

HI = [ChatMessage(role="user", content="hi")]


class Tokenizer:
    chat_template: object = "x"

    def __init__(self, gate: threading.Event | None = None, error: Exception | None = None) -> None:
        self.gate, self.error = gate, error
        self.calls: list[tuple[list[dict[str, str]], dict[str, object]]] = []

    def apply_chat_template(self, conversation: list[dict[str, str]], **kwargs: object) -> object:
        self.calls.append((conversation, kwargs))
        if self.gate is not None:
            self.gate.wait(10)
        if self.error is not None:
            raise self.error
        return "text"


async def test_messages_become_plain_dicts_and_developer_is_system() -> None:
    tokenizer = Tokenizer()
    messages = [ChatMessage.model_validate({"role": "developer", "content": [{"type": "text", "text": "a"}]}), *HI]
    assert await ChatRenderer(tokenizer, 1.0).render(messages, add_generation_prompt=True) == "text"
    conversation, kwargs = tokenizer.calls[0]
    assert conversation == [{"role": "system", "content": "a"}, {"role": "user", "content": "hi"}]
    assert kwargs == {"tokenize": False, "add_generation_prompt": True, "continue_final_message": False}


async def test_continuing_the_last_message_adds_no_prompt() -> None:
    tokenizer = Tokenizer()
    await ChatRenderer(tokenizer, 1.0).render(HI, add_generation_prompt=True, continue_final_message=True)
    assert tokenizer.calls[0][1]["add_generation_prompt"] is False


async def test_a_model_without_a_template_is_a_clear_400() -> None:
    tokenizer = Tokenizer()
    tokenizer.chat_template = None
    with pytest.raises(InvalidRequestError, match="completions"):
        await ChatRenderer(tokenizer, 1.0).render(HI, add_generation_prompt=True)


async def test_a_template_that_raises_is_a_400_with_a_capped_reason() -> None:
    renderer = ChatRenderer(Tokenizer(error=ValueError("roles must alternate " + "x" * 1000)), 1.0)
    with pytest.raises(InvalidRequestError, match="roles must alternate") as caught:
        await renderer.render(HI, add_generation_prompt=True)
    assert len(caught.value.message) < 300


async def test_a_template_that_hangs_costs_its_caller_the_time_limit_and_nobody_the_loop() -> None:
    gate = threading.Event()
    renderer = ChatRenderer(Tokenizer(gate), 0.05)
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.005)
            ticks += 1

    ticker = asyncio.ensure_future(tick())
    for _ in range(MAX_WORKERS):
        with pytest.raises(InvalidRequestError, match="too long"):
            await renderer.render(HI, add_generation_prompt=True)
    assert ticks > 5
    with pytest.raises(UnavailableError):
        await renderer.render(HI, add_generation_prompt=True)
    gate.set()
    async with asyncio.timeout(5):
        while True:
            try:
                assert await renderer.render(HI, add_generation_prompt=True) == "text"
                break
            except UnavailableError:
                await asyncio.sleep(0.01)
    ticker.cancel()


@pytest.mark.parametrize(
    "kwargs",
    [
        {"chat_template": "x"},
        {"tools": "x"},
        {"add_generation_prompt": False},
        {"enable_thinking": "x" * 65},
        {"range": 5},
    ],
)
def test_template_arguments_that_are_not_on_the_list_are_refused(kwargs: dict[str, bool | int | str]) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        check_kwargs(kwargs)
    assert caught.value.param == "chat_template_kwargs"


def test_listed_template_arguments_pass() -> None:
    assert check_kwargs({"enable_thinking": False}) == {"enable_thinking": False}
    assert check_kwargs(None) == {}


async def test_a_real_template_cannot_leave_its_sandbox(tmp_path: object) -> None:
    from tokenizers import Tokenizer as RawTokenizer
    from tokenizers.models import BPE
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(tokenizer_object=RawTokenizer(BPE()))
    tokenizer.chat_template = "{{ ''.__class__.__mro__[1].__subclasses__() }}"
    with pytest.raises(InvalidRequestError, match="unsafe"):
        await ChatRenderer(tokenizer, 5.0).render(HI, add_generation_prompt=True)
