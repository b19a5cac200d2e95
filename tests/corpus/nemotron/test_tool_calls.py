"""Tool replies find their calls: by id, else by name, else by order."""

import cProfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_assets.corpus.nemotron.open_calls import OpenCalls
from pipeline_assets.corpus.nemotron.row_values import RowFault


def build_calls(*names: str, first_id: int = 0) -> list[dict[str, object]]:
    return [
        {"id": f"call_{number}", "function": {"name": name, "arguments": "{}"}}
        for number, name in enumerate(names, first_id)
    ]


def match_replies(open_calls: OpenCalls, *keys: tuple[object, object]) -> list[tuple[str, str]]:
    """Return the tool of each reply, an id and a name, and how it matched."""
    matches = [open_calls.add_reply("", call_id, name) for call_id, name in keys]
    assert all(str(message.name).startswith("functions.") for message, _ in matches)
    return [(str(message.name).removeprefix("functions."), matched) for message, matched in matches]


ID, NAME, ORDER, NOTHING = "id", "name", "order", "nothing"


@pytest.mark.parametrize(
    ("called", "keys", "found"),
    [
        (["ab"], [(None, None), (None, "")], [("a", ORDER), ("b", ORDER)]),
        (["ab"], [("call_1", "a"), (None, None)], [("b", ID), ("a", ORDER)]),  # an id is stronger than a name
        (["ab"], [("unknown", "b"), (None, None)], [("b", NAME), ("a", ORDER)]),
        ([], [(None, "c")], [("c", NOTHING)]),  # nobody called it
        (["a", "b"], [(None, None), (None, None)], [("b", ORDER), ("a", ORDER)]),  # the last message's calls first
        (["a", "b"], [("call_0", None)], [("b", ID)]),  # ids start again in each message
        (["a"], [("call_0", None), ("call_0", None)], [("a", ID), ("a", ID)]),
    ],
)
def test_a_reply_finds_its_call(
    called: list[str], keys: list[tuple[object, object]], found: list[tuple[str, str]]
) -> None:
    open_calls = OpenCalls()
    for names in called:
        open_calls.add_calls(build_calls(*names))

    assert match_replies(open_calls, *keys) == found


@pytest.mark.parametrize(
    ("called", "expected", "found"),
    [
        ("ab", [{}, {"tool_call_id": "call_0"}], [("b", ORDER), ("a", ID)]),
        ("ab", [{}, {"name": "a"}], [("b", ORDER), ("a", NAME)]),
        ("aab", [{}, {"name": "a"}, {}], [("a", ORDER), ("a", NAME), ("b", ORDER)]),
        ("a", [{}, {"tool_call_id": "call_0"}], [("a", ORDER), ("a", ID)]),  # every call is named later
    ],
)
def test_a_reply_without_a_name_skips_calls_that_later_replies_name(
    called: str, expected: list[dict[str, object]], found: list[tuple[str, str]]
) -> None:
    open_calls = OpenCalls()
    open_calls.add_calls(build_calls(*called))
    open_calls.reserve(expected)

    assert match_replies(open_calls, *((reply.get("tool_call_id"), reply.get("name")) for reply in expected)) == found


def test_a_reply_to_nothing_is_refused() -> None:
    with pytest.raises(RowFault, match="reply_without_call"):
        OpenCalls().add_reply("4", "call_0", None)


def count_steps(call_count: int) -> int:
    """Count function calls while unnamed replies precede as many named ones."""
    open_calls, profile = OpenCalls(), cProfile.Profile()
    open_calls.add_calls(build_calls(*"a" * 2 * call_count))
    open_calls.reserve([*[{}] * call_count, *({"tool_call_id": f"call_{number}"} for number in range(call_count))])
    profile.runcall(match_replies, open_calls, *[(None, None)] * call_count)
    return sum(entry.callcount for entry in profile.getstats())


def test_matching_unnamed_replies_takes_linear_time() -> None:
    assert count_steps(2_000) < 4.5 * count_steps(500)


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=8), st.data())
def test_unique_ids_find_their_calls_in_any_order_of_the_replies(names: list[str], data: st.DataObject) -> None:
    open_calls = OpenCalls()
    open_calls.add_calls(build_calls(*names))
    order = data.draw(st.permutations(range(len(names))))

    found = match_replies(open_calls, *((f"call_{index}", None) for index in order))

    assert found == [(names[index], ID) for index in order]


@given(st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=4), min_size=1, max_size=4))
def test_matches_by_order_equal_matches_by_id(turns: list[list[str]]) -> None:
    by_order, by_id = OpenCalls(), OpenCalls()

    for number, names in enumerate(turns):
        by_order.add_calls(build_calls(*names))
        by_id.add_calls(build_calls(*names, first_id=10 * number))
        found = match_replies(by_order, *[(None, None)] * len(names))
        known = match_replies(by_id, *((f"call_{10 * number + index}", None) for index in range(len(names))))

        assert [name for name, _ in found] == [name for name, _ in known] == names
