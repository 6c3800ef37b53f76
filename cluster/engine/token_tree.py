"""Draft trees: token ids, and for each the index of the node that it follows. Pure.

`parents[i]` is an index below i, or `ROOT`, which stands for the sequence's last committed token. `()` is a chain: each
token follows the one before it. A tree is never written in any other way when it is a chain. Since parents come first,
the first n nodes of a tree are a tree.
"""

from collections.abc import Callable, Iterable
from collections.abc import Sequence as Seq

ROOT = -1

MAX_NODES = 256
"""Most nodes of one draft that are verified, whatever its drafter says."""

Parents = tuple[int, ...]


def check_tree(token_ids: Seq[int], parents: Seq[int]) -> None:
    """Check that a draft is what this module says.

    Raises:
        ValueError: lengths differ, a parent does not come first, or siblings have the same token.
    """
    if not parents:
        return
    if len(parents) != len(token_ids):
        raise ValueError(f"{len(token_ids)} tokens have {len(parents)} parents")
    for node, parent in enumerate(parents):
        if not ROOT <= parent < node:
            raise ValueError(f"parents[{node}]: {parent}; expected {ROOT} to {node - 1}")
    if len(set(zip(parents, token_ids, strict=True))) < len(parents):
        raise ValueError("siblings have the same token")


def normal(parents: Seq[int]) -> Parents:
    """The parents, or `()` where the nodes follow each other."""
    is_chain = all(parent == node - 1 for node, parent in enumerate(parents))
    return () if is_chain else tuple(parents)


def parents_of(num_nodes: int, parents: Parents) -> Seq[int]:
    """The parent of each node, of a chain as well."""
    return parents or range(ROOT, num_nodes - 1)


def first(parents: Parents, num_nodes: int) -> Parents:
    """Parents of a draft that is cut to its first nodes."""
    return normal(parents[:num_nodes]) if parents else ()


def depths(num_nodes: int, parents: Parents) -> list[int]:
    """How many tokens each node's path has, itself included."""
    found: list[int] = []
    for parent in parents_of(num_nodes, parents):
        found.append(1 if parent == ROOT else found[parent] + 1)
    return found


def depth(num_nodes: int, parents: Parents) -> int:
    """Tokens of the longest path."""
    return max(depths(num_nodes, parents), default=0) if parents else num_nodes


def paths(token_ids: Seq[int], parents: Parents) -> list[tuple[int, ...]]:
    """The tokens from behind the root to each node, itself included."""
    found: list[tuple[int, ...]] = []
    for token_id, parent in zip(token_ids, parents_of(len(token_ids), parents), strict=True):
        found.append((token_id,) if parent == ROOT else (*found[parent], token_id))
    return found


def main_line(token_ids: tuple[int, ...], parents: Parents) -> tuple[int, ...]:
    """The tokens on the way from the root to the first child each time: in a draft the likeliest one."""
    if not parents:
        return token_ids
    line, at = [], ROOT
    for node, parent in enumerate(parents):
        if parent == at:
            line.append(token_ids[node])
            at = node
    return tuple(line)


def walk(token_ids: Seq[int], parents: Parents, next_of: Callable[[int], int]) -> Parents:
    """Indices of the nodes on the way from the root to the child that comes next, as long as there is one.

    Args:
        token_ids: the nodes.
        parents: theirs.
        next_of: the token that follows a node, or `ROOT`; asked on the way only.
    """
    path: list[int] = []
    at, token_id = ROOT, next_of(ROOT)
    for node, parent in enumerate(parents_of(len(token_ids), parents)):
        if parent == at and token_ids[node] == token_id:
            path.append(node)
            at, token_id = node, next_of(node)
    return tuple(path)


def follow(token_ids: Seq[int], parents: Parents, text: Seq[int]) -> Parents:
    """Indices of the nodes that spell the beginning of a text, as far as they do."""
    path: list[int] = []
    at = ROOT
    for node, parent in enumerate(parents_of(len(token_ids), parents)):
        if len(path) < len(text) and parent == at and token_ids[node] == text[len(path)]:
            path.append(node)
            at = node
    return tuple(path)


def num_tried(num_nodes: int, parents: Parents, path: Seq[int]) -> int:
    """Levels of a draft that were put to the test, when the nodes in `path` were accepted."""
    last = path[-1] if path else ROOT
    return len(path) + (last in parents if parents else len(path) < num_nodes)


def is_prefix(path: Seq[int]) -> bool:
    """True where the nodes of a path are the first ones: their rows lie where those of a chain do."""
    return not path or path[-1] == len(path) - 1


def select(parents: Parents, kept: Seq[int]) -> Parents:
    """Parents of the nodes that are kept, by their new indices.

    Args:
        parents: of a draft.
        kept: indices; with each node its parent, and that first.
    """
    if not parents:
        return ()
    place = {ROOT: ROOT} | {node: index for index, node in enumerate(kept)}
    return normal([place[parents[node]] for node in kept])


def closed(num_nodes: int, parents: Parents, is_good: Iterable[bool]) -> list[int]:
    """Indices of the nodes that are good, and so is every node before them."""
    kept = {ROOT}
    for node, (parent, good) in enumerate(zip(parents_of(num_nodes, parents), is_good, strict=True)):
        if good and parent in kept:
            kept.add(node)
    return sorted(kept)[1:]


def products(factors: Seq[float], parents: Parents) -> list[float]:
    """For each node the product of the factors on its path, itself included."""
    found: list[float] = []
    for factor, parent in zip(factors, parents_of(len(factors), parents), strict=True):
        found.append(factor if parent == ROOT else found[parent] * factor)
    return found
