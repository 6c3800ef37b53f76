"""Who hears how far a run is."""

from typing import Protocol


class Reporter(Protocol):
    """Hears of phases and of what is done in them."""

    def begin(self, phase: str, done: int, total: int) -> None:
        """A phase begins; `done` of its `total` tokens or texts are there from an earlier run."""
        ...

    def advance(self, amount: int, note: str = "") -> None:
        """So many more."""
        ...
