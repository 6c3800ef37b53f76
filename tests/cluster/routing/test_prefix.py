from cluster.routing.prefix import PREFIX_LENGTHS, PrefixTable, prefix_keys


def test_prompts_that_begin_alike_share_the_keys_of_their_beginning() -> None:
    one, other = prefix_keys(range(300)), prefix_keys([*range(100), *range(900, 1100)])
    assert len(one) == len(other) == 2
    assert one[-1] == other[-1]
    assert one[0] != other[0]


def test_keys_come_longest_first_and_short_prompts_have_none() -> None:
    assert [len(prefix_keys(range(size))) for size in (63, 64, 256, 5000)] == [0, 1, 2, 3]
    assert list(PREFIX_LENGTHS) == sorted(PREFIX_LENGTHS, reverse=True)
    assert prefix_keys(range(5000))[1:] == prefix_keys(range(256))


def test_namespaces_of_the_prefix_cache_have_keys_of_their_own() -> None:
    assert not set(prefix_keys(range(64), "a")) & set(prefix_keys(range(64), "b"))


def test_the_longest_known_beginning_decides() -> None:
    table = PrefixTable()
    table.put((3, 2, 1), "long")
    table.put((1,), "short")
    assert table.find((3, 2, 1)) == "long"
    assert table.find((9, 8, 1)) == "short"
    assert table.find((9, 8, 7)) is None


def test_the_table_forgets_what_was_used_longest_ago() -> None:
    table = PrefixTable(max_entries=3)
    for key in (1, 2, 3):
        table.put((key,), f"r{key}")
    table.find((1,))
    table.put((4,), "r4")
    assert [table.find((key,)) for key in (1, 2, 3, 4)] == ["r1", None, "r3", "r4"]
    assert len(table) == 3
