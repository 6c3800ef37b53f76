"""Small tokenizers of the kinds that models ship with, built in memory."""

from functools import cache

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

TEXTS = [
    "The quick brown fox jumps over the lazy dog. The dog sleeps, the fox runs.",
    "ab aab abab the stop STOP stops here. Hello world, hello there!",
    "日本語のテキスト 中文文本 한국어 Привет мир naïve café",
    "👩‍👩‍👧‍👦 👍🏽 🏳️‍🌈 🇩🇪",
]
SPECIAL = ["<|im_start|>", "<|im_end|>"]


def _wrap(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>")


@cache
def byte_level() -> PreTrainedTokenizerFast:
    """Byte-level BPE with single-byte tokens for most non-Latin text, as in SmolLM2."""
    return _byte_level(decoders.ByteLevel())


@cache
def nested_byte_level() -> PreTrainedTokenizerFast:
    """The same vocabulary behind a decoder that is not recognised as byte-level."""
    return _byte_level(decoders.Sequence([decoders.ByteLevel()]))


def _byte_level(decoder: decoders.Decoder) -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoder
    trainer = trainers.BpeTrainer(
        vocab_size=330,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=SPECIAL,
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    tokenizer.add_tokens([AddedToken("<tool 工具>", special=False)])
    return _wrap(tokenizer)


@cache
def byte_fallback() -> PreTrainedTokenizerFast:
    """Sentencepiece style (Llama 2): "▁" for spaces, bytes for unknown characters, the first space dropped."""
    pieces = [*SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256)), "", "▁", *"abcdefghijklmnopqrstuvwxyz.,é日\ufffd"]
    merges = [("▁", "t"), ("h", "e"), ("▁t", "he"), ("a", "b")]
    pieces += ["".join(merge) for merge in merges]
    tokenizer = Tokenizer(
        models.BPE(
            vocab={piece: index for index, piece in enumerate(pieces)}, merges=merges, byte_fallback=True, fuse_unk=True
        )
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first", split=False)
    strip = decoders.Strip(" ", 1, 0)
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), strip])
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL])
    return _wrap(tokenizer)


def pieces(*, byte_strings: list[str]) -> PreTrainedTokenizerFast:
    """A byte-level tokenizer whose tokens are exactly these ASCII strings, by index, then the special tokens."""
    vocab = {token: index for index, token in enumerate(byte_strings)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL])
    return _wrap(tokenizer)
