"""Drafts from texts that are known: accepted and refused wherever one likes."""

import random
from collections.abc import Mapping
from collections.abc import Sequence as Seq

from cluster.engine import token_tree
from cluster.engine.drafters.base import Draft, Wanted
from cluster.engine.plan import ScheduledSequence
from cluster.engine.sequence import Sequence

_WRONG_SHARE = 1 / 8
_MAX_SIBLINGS = 2


class ReplayDrafter:
    """Drafts from known texts, one token in eight wrong: accepts and rejects at every place of a draft.

    Args:
        texts: output token ids by request id.
        vocab_size: of the target.
    """

    name = "replay"

    def __init__(self, texts: Mapping[str, Seq[int]], vocab_size: int) -> None:
        self._texts, self._vocab_size, self._random = texts, vocab_size, random.Random(0)

    def propose(self, wanted: Seq[Wanted]) -> Mapping[str, Draft]:
        """The next known tokens, some of them changed."""
        return {want.sequence.request_id: self._draft(self._guess(want.sequence, want.max_tokens)) for want in wanted}

    def begin_round(self, items: Seq[ScheduledSequence]) -> None:
        """Nothing to do."""

    def observe(self, sequence: Sequence, draft: Draft, num_accepted: int) -> None:
        """Nothing to learn."""

    def forget(self, request_id: str) -> None:
        """Nothing is kept."""

    def close(self) -> None:
        """Nothing to release."""

    def _guess(self, sequence: Sequence, max_tokens: int) -> tuple[int, ...]:
        start = sequence.num_output_tokens
        known = self._texts.get(sequence.request_id, ())[start : start + max_tokens]
        return tuple(
            (token_id + 1) % self._vocab_size if self._random.random() < _WRONG_SHARE else token_id
            for token_id in known
        )

    def _draft(self, guess: tuple[int, ...]) -> Draft:
        return Draft(token_ids=guess, source=self.name)


class ReplayTrees(ReplayDrafter):
    """The same as trees: each token stands somewhere among wrong siblings, some of which have a child."""

    name = "trees"

    def _draft(self, guess: tuple[int, ...]) -> Draft:
        token_ids: list[int] = []
        parents: list[int] = []
        at = token_tree.ROOT
        for token_id in guess:
            siblings = [token_id, *self._others(token_id)]
            self._random.shuffle(siblings)
            first = len(token_ids)
            token_ids += siblings
            parents += [at] * len(siblings)
            at = first + siblings.index(token_id)
            if first != at:  # The wrong one before it goes on, as far as it is concerned.
                token_ids.append(token_id)
                parents.append(first)
        return Draft(token_ids=tuple(token_ids), source=self.name, parents=tuple(parents))

    def _others(self, token_id: int) -> list[int]:
        """Up to two ids that are not this one, each different."""
        count = self._random.randint(0, _MAX_SIBLINGS)
        return [(token_id + 1 + distance) % self._vocab_size for distance in range(count)]
