"""Which drafter a verifier takes."""

from collections import Counter
from dataclasses import replace

from cluster.transport.address import Address
from deployments.discovery import DrafterRecord
from deployments.pairing import Candidate, candidates_of, choose, coarse_load


def candidate(number: int, *, node_id: str = "here", num_sequences: int = 0, max_sequences: int = 100) -> Candidate:
    return Candidate(
        replica=f"d{number}",
        incarnation=number,
        node_id=node_id,
        address=Address(node_id=node_id),
        max_sequences=max_sequences,
        num_sequences=num_sequences,
    )


def chosen(*candidates: Candidate, current: int | None = None, excluded: tuple[int, ...] = ()) -> int | None:
    found = choose(candidates, verifier="v", node_id="here", current=current, excluded=excluded)
    return found.incarnation if found else None


def test_without_candidates_there_is_none() -> None:
    assert chosen() is None
    assert chosen(candidate(1), excluded=(1,)) is None


def test_the_own_node_comes_first_until_it_is_much_fuller() -> None:
    near, far = candidate(1), candidate(2, node_id="there")
    assert chosen(near, far) == chosen(far, near) == 1
    assert chosen(replace(near, num_sequences=20), far) == 1
    assert chosen(replace(near, num_sequences=40), far) == 2


def test_the_emptier_of_two_is_taken_by_share_of_its_capacity() -> None:
    assert chosen(candidate(1, num_sequences=30), candidate(2, num_sequences=10)) == 2
    assert chosen(candidate(1, num_sequences=30, max_sequences=1000), candidate(2, num_sequences=10)) == 1


def test_a_full_drafter_is_the_last_choice_but_better_than_none() -> None:
    full = candidate(1, num_sequences=100)
    assert chosen(full, candidate(2, node_id="there", num_sequences=90)) == 2
    assert chosen(full) == 1


def test_a_drafter_is_kept_unless_another_one_is_clearly_better() -> None:
    current, other = candidate(1, num_sequences=25), candidate(2)
    assert chosen(current, other) == 2
    assert chosen(current, other, current=1) == 1
    assert chosen(replace(current, num_sequences=80), other, current=1) == 2
    assert chosen(current, other, current=1, excluded=(1,)) == 2


def test_what_a_verifier_would_bring_along_counts_where_it_would_go() -> None:
    drafters = [candidate(1, num_sequences=60), candidate(2)]

    def after(num_own: int) -> int | None:
        found = choose(drafters, verifier="v", node_id="here", current=1, num_own=num_own)
        return found.incarnation if found else None

    assert after(10) == 2
    assert after(60) == 1, "it would be as full there"


def test_a_coarse_load_is_full_when_the_drafter_is_full_and_not_before() -> None:
    assert [coarse_load(number, 256) for number in (0, 15, 16, 31, 255, 256)] == [0, 0, 16, 16, 240, 256]
    assert [coarse_load(number, 100) for number in (99, 100)] == [96, 100]
    assert [coarse_load(number, 4) for number in range(5)] == [0, 1, 2, 3, 4]


def test_a_drafter_started_anew_is_not_the_current_one() -> None:
    assert chosen(replace(candidate(1), incarnation=9), current=1) == 9


def test_verifiers_spread_over_equal_drafters_and_each_stays_with_its_own() -> None:
    drafters = [candidate(number) for number in range(4)]
    names = [f"verifier-{number}" for number in range(400)]
    picks = {name: choose(drafters, verifier=name, node_id="here") for name in names}
    counts = Counter(pick.incarnation for pick in picks.values() if pick)
    assert all(60 < counts[number] < 140 for number in range(4))
    # One drafter less moves only those that it served.
    for name, pick in picks.items():
        assert pick is not None
        if pick.incarnation != 3:
            assert choose(drafters[:3], verifier=name, node_id="here") == pick


def test_published_drafters_with_a_broken_address_are_left_out() -> None:
    good = DrafterRecord(
        replica="d1",
        node_id="here",
        incarnation=1,
        address=Address(node_id="here", tcp="tcp://1.2.3.4:5").to_json(),
        model_id="m",
        target="t",
        tokenizer_hash="h",
        max_sequences=8,
    )
    assert candidates_of([replace(good, num_sequences=5)])[0].num_sequences == 5
    found = candidates_of([good, replace(good, address={"tcp": "tcp://1.2.3.4:5"})])
    assert [(each.replica, each.address.tcp, each.max_sequences) for each in found] == [("d1", "tcp://1.2.3.4:5", 8)]
