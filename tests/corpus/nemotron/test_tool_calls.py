"""Which call a tool replies to: by id, else by name, else by order."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_assets.corpus.nemotron.open_calls import OpenCalls
from pipeline_assets.corpus.nemotron.row_values import RowFault


def calls(*names: str, first_id: int = 0) -> list[dict[str, object]]:
    return [
        {"id": f"call_{number}", "function": {"name": name, "arguments": "{}"}}
        for number, name in enumerate(names, first_id)
    ]


def replies(opened: OpenCalls, *keys: tuple[object, object]) -> list[tuple[str, str]]:
    """The tools that reply, of ids and names that replies have, and how each was found."""
    found = [opened.add_reply("", call_id, name) for call_id, name in keys]
    assert all(str(message.name).startswith("functions.") for message, _ in found)
    return [(str(message.name).removeprefix("functions."), matched) for message, matched in found]


ID, NAME, ORDER, NOTHING = "id", "name", "order", "nothing"


@pytest.mark.parametrize(
    ("called", "keys", "found"),
    [
        (["ab"], [(None, None), (None, "")], [("a", ORDER), ("b", ORDER)]),
        (["ab"], [("call_1", "a"), (None, None)], [("b", ID), ("a", ORDER)]),
        (["ab"], [("unknown", "b"), (None, None)], [("b", NAME), ("a", ORDER)]),
        ([], [(None, "c")], [("c", NOTHING)]),
        (["a", "b"], [(None, None), (None, None)], [("b", ORDER), ("a", ORDER)]),
        (["a", "b"], [("call_0", None)], [("b", ID)]),
        (["a"], [("call_0", None), ("call_0", None)], [("a", ID), ("a", ID)]),
    ],
    ids=[
        "without id and name in the order of calls",
        "an id is stronger than order and name",
        "a name is stronger than order",
        "a name that nobody called is kept",
        "calls that were never answered come after the last ones",
        "ids that start again in each message mean its own calls",
        "a call may be answered twice by its id",
    ],
)
def test_a_reply_finds_its_call(
    called: list[str], keys: list[tuple[object, object]], found: list[tuple[str, str]]
) -> None:
    opened = OpenCalls()
    for names in called:
        opened.add_calls(calls(*names))

    assert replies(opened, *keys) == found


@pytest.mark.parametrize(
    ("called", "expected", "found"),
    [
        ("ab", [{}, {"tool_call_id": "call_0"}], [("b", ORDER), ("a", ID)]),
        ("ab", [{}, {"name": "a"}], [("b", ORDER), ("a", NAME)]),
        ("aab", [{}, {"name": "a"}, {}], [("a", ORDER), ("a", NAME), ("b", ORDER)]),
        ("a", [{}, {"tool_call_id": "call_0"}], [("a", ORDER), ("a", ID)]),  # every call is named later
    ],
)
def test_a_reply_that_names_no_call_leaves_those_that_later_ones_name(
    called: str, expected: list[dict[str, object]], found: list[tuple[str, str]]
) -> None:
    opened = OpenCalls()
    opened.add_calls(calls(*called))
    opened.reserve(expected)

    assert replies(opened, *((one.get("tool_call_id"), one.get("name")) for one in expected)) == found


def test_a_reply_to_nothing_is_refused() -> None:
    with pytest.raises(RowFault, match="reply_without_call"):
        OpenCalls().add_reply("4", "call_0", None)


def steps(claimed: int) -> int:
    """Functions called while so many calls wait for replies that name them, and as many others reply first."""
    opened, steps = OpenCalls(), 0
    opened.add_calls(calls(*"a" * 2 * claimed))
    opened.reserve([*[{}] * claimed, *({"tool_call_id": f"call_{number}"} for number in range(claimed))])

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal steps
        steps += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        replies(opened, *[(None, None)] * claimed)
    finally:
        sys.setprofile(None)
    return steps


def test_replies_that_name_no_call_take_steps_that_grow_as_they_do() -> None:
    assert steps(2_000) < 4.5 * steps(500)


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=8), st.data())
def test_unique_ids_find_their_calls_in_any_order_of_the_replies(names: list[str], data: st.DataObject) -> None:
    opened = OpenCalls()
    opened.add_calls(calls(*names))
    order = data.draw(st.permutations(range(len(names))))

    found = replies(opened, *((f"call_{place}", None) for place in order))

    assert found == [(names[place], ID) for place in order]


@given(st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=4), min_size=1, max_size=4))
def test_replies_by_order_find_what_ids_would_find(turns: list[list[str]]) -> None:
    by_order, by_id = OpenCalls(), OpenCalls()

    for number, names in enumerate(turns):
        by_order.add_calls(calls(*names))
        by_id.add_calls(calls(*names, first_id=10 * number))
        found = replies(by_order, *[(None, None)] * len(names))
        known = replies(by_id, *((f"call_{10 * number + place}", None) for place in range(len(names))))

        assert [name for name, _ in found] == [name for name, _ in known] == names
