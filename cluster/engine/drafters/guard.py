"""Keeps the engine alive whatever a drafter does: an error costs drafts, never a round."""

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from typing import TypeVar

from cluster.engine.drafters.base import Draft, Drafter, FeatureDrafter, Features, Wanted
from cluster.engine.plan import ScheduledSequence
from cluster.engine.sequence import Sequence

# Rounds without a drafter that raised; doubled with each further error, back to the first after as many good rounds.
FIRST_PAUSE_ROUNDS, LONGEST_PAUSE_ROUNDS = 32, 4096

_logger = logging.getLogger(__name__)
_T = TypeVar("_T")


class GuardedDrafter:
    """A drafter whose errors are counted, logged once per kind, and followed by a pause.

    Args:
        drafter: what is guarded.

    Attributes:
        name: the drafter's.
        names: the drafter's name alone; what requests may ask for.
        feature_layers: whose hidden states the drafter reads; most read none.
        num_failures: errors so far, by the name of the method that raised.
    """

    def __init__(self, drafter: Drafter) -> None:
        self.name, self.names = drafter.name, (drafter.name,)
        self._reader = drafter if isinstance(drafter, FeatureDrafter) else None
        self.feature_layers: tuple[int, ...] = () if self._reader is None else self._reader.feature_layers
        self.num_failures: Counter[str] = Counter()
        self._drafter = drafter
        self._logged: set[tuple[str, type[Exception]]] = set()
        self._pause_rounds = FIRST_PAUSE_ROUNDS
        self._num_paused_rounds = self._num_good_rounds = 0

    @property
    def is_paused(self) -> bool:
        """True while the drafter is left alone after an error."""
        return self._num_paused_rounds > 0

    def propose(self, wanted: Seq[Wanted]) -> Mapping[str, Draft]:
        """The drafter's drafts; none after an error or during the pause that follows it."""
        if self.is_paused:
            return {}
        return self._call("propose", lambda: self._drafter.propose(wanted)) or {}

    def begin_round(self, items: Seq[ScheduledSequence]) -> None:
        """Pass it on, and count the round."""
        if self.is_paused:
            self._num_paused_rounds -= 1
            return
        self._num_good_rounds += 1
        if self._num_good_rounds >= self._pause_rounds:
            self._pause_rounds = FIRST_PAUSE_ROUNDS
        self._call("begin_round", lambda: self._drafter.begin_round(items))

    def take_features(self, items: Seq[ScheduledSequence], features: Features, accepted: Seq[tuple[int, ...]]) -> None:
        """Pass it on where the drafter reads any."""
        if (reader := self._reader) is not None and not self.is_paused:
            self._call("take_features", lambda: reader.take_features(items, features, accepted))

    def observe(self, sequence: Sequence, draft: Draft, num_accepted: int) -> None:
        """Pass it on."""
        if not self.is_paused:
            self._call("observe", lambda: self._drafter.observe(sequence, draft, num_accepted))

    def forget(self, request_id: str) -> None:
        """Pass it on, during a pause too: state must not pile up."""
        self._call("forget", lambda: self._drafter.forget(request_id))

    def close(self) -> None:
        """Pass it on."""
        self._call("close", self._drafter.close)

    def _call(self, method: str, function: Callable[[], _T]) -> _T | None:
        try:
            return function()
        except Exception as error:  # noqa: BLE001 -- whatever a drafter raises, decoding goes on without it
            self._count(method, error)
            return None

    def _count(self, method: str, error: Exception) -> None:
        self.num_failures[method] += 1
        if not self.is_paused:
            self._num_paused_rounds, self._num_good_rounds = self._pause_rounds, 0
            self._pause_rounds = min(2 * self._pause_rounds, LONGEST_PAUSE_ROUNDS)
        kind = (method, type(error))
        if kind not in self._logged:
            self._logged.add(kind)
            _logger.error(
                "drafter %s failed in %s and is left alone for %d rounds; later errors of this kind are counted only",
                self.name,
                method,
                self._num_paused_rounds,
                exc_info=error,
            )
