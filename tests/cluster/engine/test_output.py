"""When a choice ends, and what text it shows, token by token."""

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from cluster.engine.output import OutputProcessor, StopStrings
from cluster.errors import InvalidRequestError
from cluster.types import FinishReason, Request, SamplingParams
from tests.cluster.engine import toy_tokenizers

PIECES = ["a", "b", "ab", "ba", "aab", "bb", "c", "abcab", "STOP", "xSTOPy", "S", "TO", "P"]
TOKENIZER = toy_tokenizers.pieces(byte_strings=PIECES)
IM_START, IM_END = len(PIECES), len(PIECES) + 1
EOS = frozenset({IM_END})


def processor(
    sampling: SamplingParams,
    *,
    tokenizer: PreTrainedTokenizerFast = TOKENIZER,
    eos: frozenset[int] = EOS,
    num_prompt_tokens: int = 1,
    max_model_len: int = 1000,
) -> OutputProcessor:
    request = Request(request_id="r", prompt_token_ids=(0,) * num_prompt_tokens, sampling=sampling)
    return OutputProcessor(tokenizer, request, eos, max_model_len)


@dataclass(frozen=True, kw_only=True)
class Result:
    """What one choice showed, as the engine would collect it."""

    text: str
    token_ids: list[int]
    finish_reason: FinishReason | None
    stop_reason: str | int | None


def run(output: OutputProcessor, block: list[int]) -> Result:
    """Append tokens until the choice ends, as the engine does with a block of accepted tokens."""
    text, used = "", []
    for token_id in block:
        output.append(token_id)
        used.append(token_id)
        text += output.take_text()
        if output.finish_reason is not None:
            break
    assert output.num_output_tokens == len(used)
    return Result(text=text, token_ids=used, finish_reason=output.finish_reason, stop_reason=output.stop_reason)


def ids(*names: str) -> list[int]:
    return [PIECES.index(name) for name in names]


def test_a_stop_earlier_in_the_block_wins_over_the_length_cap() -> None:
    # C1: block [10, 11, STOP, 20, 21, 22] under a cap of 5 tokens.
    output = processor(SamplingParams(max_tokens=5, seed=0, stop_token_ids=tuple(ids("c"))))
    result = run(output, ids("a", "b", "c", "a", "a", "a"))
    assert (result.finish_reason, result.stop_reason) == (FinishReason.STOP, ids("c")[0])
    assert result.token_ids == ids("a", "b", "c")
    assert result.text == "ab"


@pytest.mark.parametrize("max_tokens", [3, 4])
def test_a_stop_on_the_very_last_allowed_token_is_a_stop(max_tokens: int) -> None:
    by_eos = run(processor(SamplingParams(max_tokens=max_tokens, seed=0)), [*ids("a", "b"), IM_END])
    by_text = run(processor(SamplingParams(max_tokens=max_tokens, seed=0, stop=("STOP",))), ids("a", "b", "STOP"))
    assert by_eos.finish_reason == by_text.finish_reason == FinishReason.STOP


def test_text_and_token_ids_agree_when_a_stop_string_ends_inside_a_token() -> None:
    # C3: ids count up to the token that completed the stop string, the text ends before it, and nothing follows.
    output = processor(SamplingParams(max_tokens=50, seed=0, stop=("STOP",), logprobs=2))
    result = run(output, ids("a", "xSTOPy", "b", "c"))
    assert result.token_ids == ids("a", "xSTOPy")
    assert result.text == "ax"
    assert result.stop_reason == "STOP"


def test_a_stop_string_is_kept_on_request_and_text_behind_it_dropped() -> None:
    output = processor(SamplingParams(max_tokens=50, seed=0, stop=("STOP",), include_stop_str_in_output=True))
    assert run(output, ids("a", "xSTOPy", "b")).text == "axSTOP"


def test_an_eos_accepted_inside_a_block_ends_the_choice_there() -> None:
    # C4: EOS as second of four drafts, and on the bonus slot.
    for block in ([*ids("a"), IM_END, *ids("b", "c")], [*ids("a", "b", "a", "b"), IM_END]):
        result = run(processor(SamplingParams(max_tokens=50, seed=0)), block)
        assert (result.finish_reason, result.stop_reason) == (FinishReason.STOP, None)
        assert result.token_ids[-1] == IM_END
        assert "<|" not in result.text


def test_c7_appending_to_a_finished_choice_is_an_error() -> None:
    output = processor(SamplingParams(max_tokens=1, seed=0))
    output.append(0)
    with pytest.raises(RuntimeError, match="finished with length"):
        output.append(0)


@pytest.mark.parametrize(("max_tokens", "max_model_len"), [(4, 100), (100, 7)])
def test_the_choice_ends_at_the_nearer_of_max_tokens_and_model_length(max_tokens: int, max_model_len: int) -> None:
    sampling = SamplingParams(max_tokens=max_tokens, seed=0)
    result = run(processor(sampling, num_prompt_tokens=3, max_model_len=max_model_len), [0] * 20)
    assert (result.finish_reason, len(result.token_ids)) == (FinishReason.LENGTH, 4)


def test_ignored_eos_is_skipped_in_the_text_and_does_not_stop() -> None:
    result = run(processor(SamplingParams(max_tokens=3, seed=0, ignore_eos=True)), [*ids("a"), IM_END, *ids("b")])
    assert (result.finish_reason, result.text) == (FinishReason.LENGTH, "ab")


def test_an_ignored_eos_that_is_also_a_stop_token_stops() -> None:
    sampling = SamplingParams(max_tokens=9, seed=0, ignore_eos=True, stop_token_ids=(IM_END,))
    assert run(processor(sampling), [IM_END]).stop_reason == IM_END


def test_nothing_stops_before_min_tokens() -> None:
    sampling = SamplingParams(max_tokens=9, seed=0, min_tokens=2, stop=("S",), stop_token_ids=tuple(ids("c")))
    result = run(processor(sampling), [*ids("S", "c", "a"), IM_END])
    assert result.text == "Sca"
    assert len(result.token_ids) == 4


def test_a_stop_string_begun_before_min_tokens_counts_when_it_ends_after() -> None:
    sampling = SamplingParams(max_tokens=9, seed=0, min_tokens=2, stop=("STOP",))
    result = run(processor(sampling), ids("S", "TO", "P", "a"))
    assert (result.text, result.stop_reason) == ("", "STOP")


def test_a_stop_string_that_passed_before_min_tokens_stays_text() -> None:
    # "ba" passes as text, but is still held back with "aba", the possible start of "abab".
    sampling = SamplingParams(max_tokens=9, seed=0, min_tokens=2, stop=("abab", "ba"))
    result = run(processor(sampling), ids("ab", "a", "c", "ab", "a"))
    assert (result.text, result.stop_reason) == ("abaca", "ba")


@pytest.mark.parametrize(
    ("skip", "include", "text"),
    [(True, False, "a"), (False, False, "a"), (True, True, "a"), (False, True, "a<|im_end|>")],
)
def test_eos_text_is_shown_only_when_stops_and_special_tokens_are_wanted(skip: bool, include: bool, text: str) -> None:
    sampling = SamplingParams(max_tokens=9, seed=0, skip_special_tokens=skip, include_stop_str_in_output=include)
    assert run(processor(sampling), [*ids("a"), IM_END]).text == text


@pytest.mark.parametrize(("include", "text"), [(False, "a"), (True, "ac")])
def test_the_text_of_a_stop_token_is_left_out_unless_wanted(include: bool, text: str) -> None:
    sampling = SamplingParams(max_tokens=9, seed=0, stop_token_ids=tuple(ids("c")), include_stop_str_in_output=include)
    assert run(processor(sampling), ids("a", "c")).text == text


@pytest.mark.parametrize("reason", [FinishReason.ABORT, FinishReason.DEADLINE])
def test_ending_from_outside_flushes_what_was_held_back(reason: FinishReason) -> None:
    output = processor(SamplingParams(max_tokens=9, seed=0, stop=("STOP",)))
    for token_id in ids("a", "S", "TO"):
        output.append(token_id)
    assert output.take_text() == "a"
    output.finish(reason)
    assert (output.take_text(), output.finish_reason) == ("STO", reason)


def test_an_end_from_outside_does_not_change_a_finished_choice() -> None:
    output = processor(SamplingParams(max_tokens=1, seed=0))
    output.append(0)
    output.finish(FinishReason.ABORT)
    assert output.finish_reason is FinishReason.LENGTH


def test_a_character_cut_by_the_length_cap_is_flushed() -> None:
    tokenizer = toy_tokenizers.byte_fallback()
    thumb = [tokenizer.get_vocab()[f"<0x{byte:02X}>"] for byte in "👍".encode()]
    result = run(processor(SamplingParams(max_tokens=3, seed=0), tokenizer=tokenizer), thumb)
    assert result.text == "\ufffd" * 3  # byte-fallback decoders show one for each byte


def test_a_stop_string_that_only_the_last_flush_completes_is_a_stop() -> None:
    # Byte-fallback text is held back while its run of bytes goes on; the length cap ends the run here.
    tokenizer = toy_tokenizers.byte_fallback()
    thumb = [tokenizer.get_vocab()[f"<0x{byte:02X}>"] for byte in "👍".encode()]
    result = run(processor(SamplingParams(max_tokens=4, seed=0, stop=("👍",)), tokenizer=tokenizer), thumb)
    assert (result.text, result.finish_reason, result.stop_reason) == ("", FinishReason.STOP, "👍")


def test_no_piece_of_a_streamed_emoji_sequence_holds_a_replacement_character() -> None:
    # C10 through the whole output path, read after every token.
    tokenizer = toy_tokenizers.byte_level()
    text = "a family 👩‍👩‍👧‍👦, a flag 🏳️‍🌈 and 日本"
    block = list(tokenizer.encode(text, add_special_tokens=False))
    output = processor(SamplingParams(max_tokens=500, seed=0, stop=("🏳️‍🌈!",)), tokenizer=tokenizer, eos=frozenset())
    parts = []
    for token_id in block:
        output.append(token_id)
        parts.append(output.take_text())
    output.finish(FinishReason.ABORT)
    assert "".join(parts) + output.take_text() == text
    assert not any("\ufffd" in part for part in parts)


def test_of_two_stop_strings_the_first_complete_one_wins_then_the_longest() -> None:
    assert StopStrings(("abcab", "bc"), include=False).push("xabcab", may_stop=True) == ("xa", "bc")
    assert StopStrings(("b", "ab"), include=False).push("xab", may_stop=True) == ("x", "ab")


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="empty"):
        processor(SamplingParams(max_tokens=1, seed=0, stop=("",)))


stop_strings = st.lists(st.text("abc", min_size=1, max_size=5), min_size=1, max_size=3).map(tuple)
blocks = st.lists(st.integers(0, 7), min_size=1, max_size=25)


@settings(max_examples=400, deadline=None, derandomize=True)
@given(block=blocks, stops=stop_strings, min_tokens=st.integers(0, 5), include=st.booleans())
def test_stop_strings_equal_a_search_of_the_full_text(
    block: list[int], stops: tuple[str, ...], min_tokens: int, include: bool
) -> None:
    sampling = SamplingParams(
        max_tokens=len(block), seed=0, stop=stops, min_tokens=min_tokens, include_stop_str_in_output=include
    )
    result = run(processor(sampling), block)
    num_tokens, text, stop = naive_stop(block, stops, min_tokens=min_tokens, include=include)
    assert (len(result.token_ids), result.text, result.stop_reason) == (num_tokens, text, stop)
    assert result.finish_reason == (FinishReason.STOP if stop else FinishReason.LENGTH)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(block=blocks, stops=stop_strings)
def test_only_a_tail_that_may_begin_a_stop_string_is_held_back(block: list[int], stops: tuple[str, ...]) -> None:
    output = processor(SamplingParams(max_tokens=100, seed=0, stop=stops))
    shown = full = ""
    for token_id in block:
        output.append(token_id)
        if output.finish_reason is not None:
            return
        shown, full = shown + output.take_text(), full + PIECES[token_id]
        starts = {stop[:size] for stop in stops for size in range(1, len(stop))}
        held = next((full[at:] for at in range(len(full)) if full[at:] in starts), "")
        assert shown + held == full


def naive_stop(
    block: list[int], stops: tuple[str, ...], *, min_tokens: int, include: bool
) -> tuple[int, str, str | None]:
    """Tokens, text and stop string: try every character of the whole text as the end of every stop string."""
    text = ""
    for index, token_id in enumerate(block):
        for char in PIECES[token_id]:
            text += char
            ending = [stop for stop in stops if text.endswith(stop)]
            if ending and index >= min_tokens:
                stop = max(ending, key=len)
                return index + 1, text if include else text.removesuffix(stop), stop
    return len(block), text, None
