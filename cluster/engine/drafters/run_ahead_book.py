"""Which sequences a drafter follows for whom, and the work in progress: the one place that opens and closes them.

Bounded: so many sequences in all and for each verifier, and the draft model's KV blocks. When room runs out, what was
without news for longest goes, if it was for a while; its verifier learns it by its next row, and may open it again.
"""

from collections.abc import Iterable
from typing import Literal

from cluster.clock import Clock
from cluster.engine.drafters.draft_ahead import DraftCapacityError, DraftLengthError, DraftModel
from cluster.engine.drafters.run_ahead_state import Counters, Followed, Peer, PeerSnapshot, RunAheadLimits, Task
from cluster.messages import Lost, Open

Reason = Literal["unknown", "capacity", "length"]
Key = tuple[bytes, int]
"""A verifier and the id of one of its sequences."""


class Losses:
    """Sequences of one verifier that are not followed (any more), by reason."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._ids: dict[Reason, list[int]] = {}

    def add(self, sequence_id: int, reason: Reason) -> None:
        """Note a loss, once told."""
        self._ids.setdefault(reason, []).append(sequence_id)
        name = f"num_lost_{reason}"
        setattr(self._counters, name, getattr(self._counters, name) + 1)

    def messages(self) -> list[Lost]:
        """One message for each reason."""
        return [Lost(sequences=tuple(ids), reason=reason) for reason, ids in self._ids.items()]


class SequenceBook:
    """Verifiers, their sequences and tasks. Not thread safe.

    Args:
        model: the draft model; nobody else opens sequences in it.
        clock: for idle times.
        limits: of sequences.

    Attributes:
        peers: verifiers by connection.
        tasks: work in progress.
    """

    def __init__(self, model: DraftModel, *, clock: Clock, limits: RunAheadLimits) -> None:
        self._model, self._clock, self._limits = model, clock, limits
        self._departed = Counters()
        self.peers: dict[bytes, Peer] = {}
        self.tasks: dict[Key, Task] = {}

    @property
    def num_sequences(self) -> int:
        """Sequences followed. May be read from any thread, as the counters may."""
        return sum(len(peer.sequences) for peer in self._peers_now())

    @property
    def counters(self) -> Counters:
        """Totals, verifiers that are gone included."""
        return sum((peer.counters for peer in self._peers_now()), self._departed)

    def peer(self, peer_id: bytes) -> Peer:
        """The verifier, noted as here."""
        return self.peers.setdefault(peer_id, Peer())

    def peer_snapshots(self) -> tuple[PeerSnapshot, ...]:
        """The verifiers that are here."""
        return tuple(
            PeerSnapshot(name=peer.name, num_sequences=len(peer.sequences), counters=peer.counters + Counters())
            for peer in self._peers_now()
        )

    def open(self, peer_id: bytes, message: Open) -> Followed | Reason:
        """Follow a sequence, in place of what was known under its id.

        Returns:
            The sequence, or why it is not followed. One that is too long stays known, so that this is told once.
        """
        self.forget((peer_id, message.sequence))
        if not self._has_place(peer_id):
            return "capacity"
        followed = Followed(epoch=message.epoch, sequence=None, last_used_s=self._clock.now_s())
        refused: Reason | None = None
        while followed.sequence is None and refused is None:
            try:
                followed.sequence = self._model.open(message.token_ids, message.num_prompt_tokens, message.sampling)
            except DraftLengthError:
                refused = "length"
            except DraftCapacityError:
                if not self.evict_oldest(self._limits.evictable_s):
                    return "capacity"
        peer = self.peer(peer_id)
        peer.sequences[message.sequence] = followed
        peer.counters.num_opened += refused is None
        return refused or followed

    def forget(self, key: Key) -> None:
        """Free everything of a sequence; unknown ones are ignored."""
        peer_id, sequence_id = key
        peer = self.peers.get(peer_id)
        followed = peer.sequences.pop(sequence_id, None) if peer else None
        if followed is None:
            return
        self.end_task(key)
        if followed.sequence is not None:
            self._model.close(followed.sequence)

    def end_task(self, key: Key) -> None:
        """Cancel the work on a sequence, if there is any."""
        task = self.tasks.pop(key, None)
        if task is None:
            return
        self._model.cancel(task.job)
        if task.due is not None:
            self.peers[key[0]].counters.num_cancelled_jobs += 1

    def drop_peer(self, peer_id: bytes) -> None:
        """Free everything of a verifier; unknown ones are ignored."""
        if peer := self.peers.get(peer_id):
            for sequence_id in tuple(peer.sequences):
                self.forget((peer_id, sequence_id))
            self._departed += self.peers.pop(peer_id).counters

    def evict_oldest(self, idle_s: float, *, of: Iterable[bytes] | None = None) -> bool:
        """Drop the sequence without news for longest, if it has been for `idle_s`.

        Args:
            idle_s: least time without news.
            of: verifiers to look at; None for all.
        """
        oldest = [
            (followed.last_used_s, peer_id, sequence_id)
            for peer_id in (self.peers if of is None else of)
            for sequence_id, followed in list(self.peers[peer_id].sequences.items())[:1]
        ]
        if not oldest:
            return False
        last_used_s, peer_id, sequence_id = min(oldest)
        if self._clock.now_s() - last_used_s < idle_s:
            return False
        self.peers[peer_id].counters.num_evicted += 1
        self.forget((peer_id, sequence_id))
        return True

    def check_integrity(self) -> None:
        """Check that sequences, tasks and KV blocks belong together.

        Raises:
            AssertionError: the books do not balance.
        """
        self._model.check_integrity()
        followed = [item for peer in self.peers.values() for item in peer.sequences.values()]
        num_open = sum(item.sequence is not None for item in followed)
        assert num_open == self._model.num_sequences, "a sequence is open that nobody follows"
        assert num_open or not self._model.num_used_blocks, "blocks are in use without a sequence"
        for (peer_id, sequence_id), task in self.tasks.items():
            job = task.job
            assert self.peers[peer_id].sequences[sequence_id].sequence is job.sequence, "a task without its sequence"
            assert job.sequence.job is job and not job.is_done, "a task that nothing is left to do of"

    def _peers_now(self) -> tuple[Peer, ...]:
        """The verifiers in one go: they may come and go while another thread looks at each."""
        return tuple(self.peers.values())

    def _has_place(self, peer_id: bytes) -> bool:
        """True when there may be one more sequence, perhaps in the place of an idle one."""
        evictable_s = self._limits.evictable_s
        while len(self.peer(peer_id).sequences) >= self._limits.max_sequences_per_peer:
            if not self.evict_oldest(evictable_s, of=(peer_id,)):
                return False
        while self.num_sequences >= self._limits.max_sequences:
            if not self.evict_oldest(evictable_s):
                return False
        return True
