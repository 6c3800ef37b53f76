"""What of a draft the target may see: a wrong drafter must never reach the embedding. Free of torch."""

from cluster.engine import token_tree
from cluster.engine.drafters.base import Draft


def valid_draft(draft: Draft, *, vocab_size: int, max_tokens: int, max_tree_nodes: int) -> Draft:
    """A draft without ids that are no tokens, without what is too long, and without what follows these.

    Args:
        draft: as its drafter made it.
        vocab_size: ids are below this.
        max_tokens: most tokens of a chain, or of a path.
        max_tree_nodes: most nodes of a tree; 0 for no trees.

    Returns:
        What is left, maybe nothing.
    """
    if draft.parents:
        return _valid_tree(draft.first(max_tree_nodes), vocab_size, max_tokens)
    token_ids = draft.token_ids[:max_tokens]
    if token_ids and (min(token_ids) < 0 or max(token_ids) >= vocab_size):
        bad = next(index for index, token_id in enumerate(token_ids) if not 0 <= token_id < vocab_size)
        return draft.first(bad)
    return draft.first(max_tokens)


def _valid_tree(draft: Draft, vocab_size: int, max_tokens: int) -> Draft:
    num_nodes = len(draft.token_ids)
    depths = token_tree.depths(num_nodes, draft.parents)
    good = (
        0 <= token_id < vocab_size and depth <= max_tokens
        for token_id, depth in zip(draft.token_ids, depths, strict=True)
    )
    return draft.select(token_tree.closed(num_nodes, draft.parents, good))
