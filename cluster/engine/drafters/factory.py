"""The one place where a drafter is chosen by name."""

from cluster.engine.drafters.base import Drafter
from cluster.engine.drafters.ngram import NgramDrafter
from cluster.errors import ConfigError


def build_drafter(name: str, *, max_draft_tokens: int) -> Drafter | None:
    """The drafter of that name; None for "off" or when no draft token is allowed.

    Args:
        name: "ngram" or "off".
        max_draft_tokens: most tokens of one draft; 0 turns drafting off.

    Raises:
        ConfigError: the name is unknown.
    """
    match name:
        case "off":
            return None
        case "ngram":
            return NgramDrafter(max_draft_tokens=max_draft_tokens) if max_draft_tokens > 0 else None
        case _:
            raise ConfigError(field="drafter", value=name, allowed="one of ngram, off")
