"""Ref-counted KV blocks with a prefix cache: who holds which block, and which full blocks can be found by content.

A block is *used* while somebody holds a reference, *withheld* while it is out of circulation, else *free*. A free block
that was published keeps its hash, so that a later request can take it up again, until `allocate` needs the space:
blocks without a hash go first, then the published ones in least-recently-used order.
"""

import struct
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from hashlib import blake2b

_DIGEST_BYTES = 16


def extend_block_hashes(hashes: list[bytes], token_ids: Sequence[int], block_size: int, salt: str) -> None:
    """Append the hashes of the full blocks of `token_ids` that `hashes` does not hold yet.

    Each hash covers its parent's hash and its own token ids, hence the whole prefix; the first one covers the salt,
    so chains of different salts never meet. Costs nothing while no new block is full.

    Args:
        hashes: hashes of the leading full blocks so far; extended in place.
        token_ids: all tokens from position 0; the part that is already hashed must not have changed.
        block_size: tokens per block.
        salt: namespace of the chain.
    """
    num_full_blocks = len(token_ids) // block_size
    if len(hashes) >= num_full_blocks:
        return
    parent = hashes[-1] if hashes else _root_hash(salt)
    pack = struct.Struct(f"<{block_size}q").pack
    for start in range(len(hashes) * block_size, num_full_blocks * block_size, block_size):
        parent = blake2b(parent + pack(*token_ids[start : start + block_size]), digest_size=_DIGEST_BYTES).digest()
        hashes.append(parent)


def _root_hash(salt: str) -> bytes:
    # Salts come from clients: a lone surrogate is a valid JSON string and must not raise here.
    return blake2b(salt.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_BYTES, person=b"block-root").digest()


class BlockPool:
    """A fixed number of KV blocks, named 0 .. num_blocks - 1.

    Args:
        num_blocks: number of blocks, >= 1.
        block_size: tokens per block, >= 1.
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        assert num_blocks >= 1, num_blocks
        assert block_size >= 1, block_size
        self.num_blocks = num_blocks
        self.block_size = block_size
        self._num_references = [0] * num_blocks
        self._hash_of: list[bytes | None] = [None] * num_blocks
        self._block_of: dict[bytes, int] = {}
        self._plain_free = list(range(num_blocks - 1, -1, -1))
        self._cached_free: OrderedDict[int, None] = OrderedDict()
        self._withheld: list[int] = []
        self._num_to_withhold = 0

    @property
    def num_free_blocks(self) -> int:
        """Blocks in circulation that nobody holds, published or not: what `allocate` can give."""
        return len(self._plain_free) + len(self._cached_free)

    @property
    def num_withheld_blocks(self) -> int:
        """Blocks out of circulation; fewer than `withhold` asked for until enough have been released."""
        return len(self._withheld)

    @property
    def num_used_blocks(self) -> int:
        """Blocks that somebody holds; a shared block counts once."""
        return self.num_blocks - self.num_free_blocks - self.num_withheld_blocks

    @property
    def usage_ratio(self) -> float:
        """Used share of the blocks in circulation, 0..1."""
        return self.num_used_blocks / (self.num_blocks - self.num_withheld_blocks)

    def num_references(self, block_id: int) -> int:
        """How many holders a block has."""
        return self._num_references[block_id]

    def is_published(self, block_id: int) -> bool:
        """True when the block can be found by its content."""
        return self._hash_of[block_id] is not None

    def match_prefix(self, hashes: Sequence[bytes]) -> list[int]:
        """Take a reference to each block of the longest published run that starts `hashes`.

        Returns:
            Block ids in order; the caller holds one reference to each and gives it back by `release`.
        """
        matched = []
        for block_hash in hashes:
            block_id = self._block_of.get(block_hash)
            if block_id is None:
                break
            if self._num_references[block_id] == 0:
                del self._cached_free[block_id]
            self._num_references[block_id] += 1
            matched.append(block_id)
        return matched

    def withhold(self, num_blocks: int) -> None:
        """Keep so many blocks out of circulation from now on, instead of as many as before.

        Free ones leave at once, in the order in which `allocate` would give them; what is missing is collected as
        blocks are released, so nobody loses a block. Withheld blocks have no content.

        Args:
            num_blocks: 0 to one less than all.
        """
        assert 0 <= num_blocks < self.num_blocks, num_blocks
        self._num_to_withhold = num_blocks
        while len(self._withheld) > num_blocks:
            self._plain_free.append(self._withheld.pop())
        self._collect()

    def _collect(self) -> None:
        while len(self._withheld) < self._num_to_withhold and self.num_free_blocks:
            self._withheld.append(self._take_free())

    def allocate(self, num_blocks: int, *, may_borrow: bool = False) -> list[int] | None:
        """Take `num_blocks` blocks of undefined content, evicting published free blocks if need be.

        Args:
            num_blocks: how many.
            may_borrow: take withheld blocks when no other is free; they are collected again as blocks are released.

        Returns:
            Block ids, each with one reference and no hash; None (and no change) when there are too few.
        """
        if num_blocks > self.num_free_blocks + (self.num_withheld_blocks if may_borrow else 0):
            return None
        block_ids = [self._take_free() if self.num_free_blocks else self._withheld.pop() for _ in range(num_blocks)]
        for block_id in block_ids:
            self._num_references[block_id] = 1
        return block_ids

    def _take_free(self) -> int:
        return self._plain_free.pop() if self._plain_free else self._evict()

    def _evict(self) -> int:
        block_id, _ = self._cached_free.popitem(last=False)
        block_hash = self._hash_of[block_id]
        assert block_hash is not None
        del self._block_of[block_hash]
        self._hash_of[block_id] = None
        return block_id

    def release(self, block_ids: Sequence[int]) -> None:
        """Drop one reference to each block; a block without references is free but keeps its hash.

        The last block counts as the least recently used: a prefix is of use without its tail, never the other way.

        Args:
            block_ids: blocks in sequence order.
        """
        for block_id in reversed(block_ids):
            assert self._num_references[block_id] > 0, f"block {block_id} is released more often than taken"
            self._num_references[block_id] -= 1
            if self._num_references[block_id]:
                continue
            if self._hash_of[block_id] is None:
                self._plain_free.append(block_id)
            else:
                self._cached_free[block_id] = None
        self._collect()

    def publish(self, block_id: int, block_hash: bytes) -> None:
        """Make a full block of committed tokens findable.

        When another block of the same content is published already, that one stays the findable one.

        Args:
            block_id: a block that the caller holds.
            block_hash: its hash, from `extend_block_hashes`.
        """
        assert self._num_references[block_id] > 0, f"block {block_id} is published by nobody"
        if self._block_of.setdefault(block_hash, block_id) != block_id:
            return
        assert self._hash_of[block_id] in (None, block_hash), f"block {block_id} is published with two contents"
        self._hash_of[block_id] = block_hash

    def check_integrity(self) -> None:
        """Check that every block is once either used, free or withheld, and that hashes and blocks agree.

        Raises:
            AssertionError: the books do not balance.
        """
        plain, cached, withheld = set(self._plain_free), set(self._cached_free), set(self._withheld)
        used = {block_id for block_id, count in enumerate(self._num_references) if count > 0}
        assert min(self._num_references) >= 0, "negative reference count"
        assert len(plain) == len(self._plain_free), "a block is free twice"
        assert len(withheld) == len(self._withheld), "a block is withheld twice"
        assert len(plain) + len(cached) + len(used) + len(withheld) == self.num_blocks, (
            "a block is lost or in two states"
        )
        assert plain | cached | used | withheld == set(range(self.num_blocks)), "a block is lost or unknown"
        assert self.num_free_blocks + self.num_used_blocks + self.num_withheld_blocks == self.num_blocks
        is_collected = len(withheld) == self._num_to_withhold
        assert is_collected or (len(withheld) < self._num_to_withhold and not plain | cached), "withheld wrongly"
        published = {block_id: value for block_id, value in enumerate(self._hash_of) if value is not None}
        assert {value: block_id for block_id, value in published.items()} == self._block_of, "hashes disagree"
        assert cached <= published.keys(), "a cached block has no hash"
        assert not (plain | withheld) & published.keys(), "a block without content has a hash"

    def check_holders(self, block_tables: Iterable[Sequence[int]]) -> None:
        """Check that block tables account for every reference, and that only published blocks are shared.

        Args:
            block_tables: all there are.

        Raises:
            AssertionError: the books do not balance.
        """
        num_holders = Counter(block_id for block_table in block_tables for block_id in block_table)
        assert len(num_holders) == self.num_used_blocks, "a used block is in no block table"
        for block_id, count in num_holders.items():
            assert self._num_references[block_id] == count, f"block {block_id} has a wrong reference count"
            assert count == 1 or self.is_published(block_id), f"block {block_id} is shared but not published"
