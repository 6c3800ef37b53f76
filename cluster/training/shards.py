"""Training text on disk: shards of whole texts with the target's labels, and where their words come from."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from cluster.errors import ConfigError, LoadError
from cluster.training.prompts import Source, TrainingPrompt
from cluster.types import RequestOutput

NUM_LABELS = 20
PROMPTS_PER_SHARD = 100
_SOURCES = "sources"


@dataclass(slots=True)
class Text:
    """A text in the making: a prompt, and what the target writes behind it, with labels.

    Attributes:
        index: number of the prompt.
        prompt: what comes first.
        token_ids: what the target wrote.
        label_ids: its likeliest tokens at each place.
        label_logprobs: their log-probabilities at temperature 1.
    """

    index: int
    prompt: TrainingPrompt
    token_ids: list[int] = field(default_factory=list)
    label_ids: list[list[int]] = field(default_factory=list)
    label_logprobs: list[list[float]] = field(default_factory=list)

    def take(self, output: RequestOutput) -> None:
        """Append a round's tokens."""
        for entry in output.logprobs:
            self.token_ids.append(entry.token_id)
            self.label_ids.append([token_id for token_id, _ in entry.top])
            self.label_logprobs.append([logprob for _, logprob in entry.top])


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceCount:
    """How much text has one source.

    Attributes:
        source: where the words of the prompts come from; None where the shard does not say.
        num_texts: texts.
        num_tokens: tokens that the target wrote.
    """

    source: Source | None
    num_texts: int
    num_tokens: int


class ShardWriter:
    """Collects texts and writes them in shards: `shard-00000.safetensors` and so on. A shard is there whole or not.

    Tensors of a shard, T tokens in D texts: `token_ids` int32 [T], `text_starts` int32 [D], `label_starts` int32 [D]
    (first token of each text that the target wrote), `label_ids` int32 [T, NUM_LABELS] and `label_logprobs` f16 of the
    same shape: the target's distribution at temperature 1 from which the token was drawn, zero for prompt tokens. The
    file's metadata holds the numbers of texts and tokens by source.

    Args:
        folder: where shards lie; those of other prefixes count as text, too.
        prompts_per_shard: prompts of one shard.
        prefix: of the file names.

    Attributes:
        num_shards: complete shards of this prefix.
        num_tokens: tokens that the target wrote, in all shards of the folder.

    Raises:
        LoadError: a shard is damaged.
    """

    def __init__(self, folder: Path, prompts_per_shard: int = PROMPTS_PER_SHARD, prefix: str = "shard") -> None:
        self._folder, self._prompts_per_shard, self._prefix = folder, prompts_per_shard, prefix
        folder.mkdir(parents=True, exist_ok=True)
        self._texts: dict[int, Sequence[Text]] = {}
        self.num_shards = len(list(folder.glob(f"{prefix}-*.safetensors")))
        self.num_tokens = sum(count.num_tokens for count in count_sources(shard_files(folder)))

    @property
    def first_index(self) -> int:
        """Number of the first prompt whose texts are in no shard."""
        return self.num_shards * self._prompts_per_shard

    def add(self, index: int, texts: Sequence[Text]) -> None:
        """Take all texts of a prompt, in any order of prompts."""
        self._texts[index] = texts

    def write_next(self) -> bool:
        """Write the next shard if all texts of its prompts are there.

        Raises:
            ConfigError: it would be empty.
        """
        prompts = range(self.first_index, self.first_index + self._prompts_per_shard)
        if not all(index in self._texts for index in prompts):
            return False
        texts = [text for index in prompts for text in self._texts.pop(index)]
        if not texts:
            raise ConfigError(field="--target", value="", allowed="a model that has room for prompts and their texts")
        path = self._folder / f"{self._prefix}-{self.num_shards:05d}.safetensors"
        part = path.with_suffix(".part")
        save_file(_tensors(texts), part, metadata={_SOURCES: _sources_json(texts)})
        part.rename(path)
        self.num_shards += 1
        self.num_tokens += sum(len(text.token_ids) for text in texts)
        return True


def shard_files(folder: Path) -> list[Path]:
    """All shards of a folder, in order of name."""
    return sorted(folder.glob("*.safetensors"))


def count_sources(paths: Sequence[Path]) -> list[SourceCount]:
    """Texts and tokens by source, most tokens first.

    Raises:
        LoadError: a shard is damaged.
    """
    num_texts: Counter[Source | None] = Counter()
    num_tokens: Counter[Source | None] = Counter()
    for path in paths:
        for count in _shard_sources(path):
            num_texts[count.source] += count.num_texts
            num_tokens[count.source] += count.num_tokens
    return [
        SourceCount(source=source, num_texts=num_texts[source], num_tokens=tokens)
        for source, tokens in num_tokens.most_common()
    ]


def _tensors(texts: Sequence[Text]) -> dict[str, npt.NDArray[Any]]:
    tokens: list[int] = []
    labels, logprobs, starts, label_starts = [], [], [], []
    for text in texts:
        padding = np.zeros((len(text.prompt.token_ids), NUM_LABELS))
        starts.append(len(tokens))
        label_starts.append(len(tokens) + len(padding))
        tokens += [*text.prompt.token_ids, *text.token_ids]
        labels += [padding, np.array(text.label_ids)]
        logprobs += [padding, np.array(text.label_logprobs)]
    return {
        "token_ids": np.array(tokens, np.int32),
        "text_starts": np.array(starts, np.int32),
        "label_starts": np.array(label_starts, np.int32),
        "label_ids": np.concatenate(labels).astype(np.int32),
        "label_logprobs": np.concatenate(logprobs).astype(np.float16),
    }


def _sources_json(texts: Sequence[Text]) -> str:
    num_texts = Counter(text.prompt.source for text in texts)
    num_tokens: Counter[Source] = Counter()
    for text in texts:
        num_tokens[text.prompt.source] += len(text.token_ids)
    entries = [{**asdict(source), "num_texts": n, "num_tokens": num_tokens[source]} for source, n in num_texts.items()]
    return json.dumps(entries)


def _shard_sources(path: Path) -> Iterator[SourceCount]:
    try:
        with safe_open(path, framework="np") as file:
            metadata = file.metadata() or {}
            starts, label_starts = file.get_tensor("text_starts"), file.get_tensor("label_starts")
            (num_rows,) = file.get_slice("token_ids").get_shape()
    except (SafetensorError, OSError) as error:
        raise LoadError(
            f"{path} is damaged ({error}): delete it and all later ones, and they are written again"
        ) from error
    if _SOURCES not in metadata:
        ends = np.append(starts[1:], num_rows)
        yield SourceCount(source=None, num_texts=len(starts), num_tokens=int((ends - label_starts).sum()))
        return
    for entry in json.loads(metadata[_SOURCES]):
        source = Source(use=entry["use"], name=entry["name"], licence=entry["licence"])
        yield SourceCount(source=source, num_texts=entry["num_texts"], num_tokens=entry["num_tokens"])
