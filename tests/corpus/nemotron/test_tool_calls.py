"""Which call a tool replies to: by id, else by name, else by order."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_assets.corpus.nemotron.conversation import MatchedBy, OpenCalls
from pipeline_assets.corpus.nemotron.source_rows import RowFault


def calls(*names: str, first_id: int = 0) -> list[dict[str, object]]:
    return [
        {"id": f"call_{number}", "function": {"name": name, "arguments": "{}"}}
        for number, name in enumerate(names, first_id)
    ]


def replies(opened: OpenCalls, *keys: tuple[object, object]) -> list[tuple[str | None, MatchedBy]]:
    found = [opened.reply("", call_id, name) for call_id, name in keys]
    return [(message.name, matched) for message, matched in found]


def test_replies_without_id_and_name_come_in_the_order_of_their_calls() -> None:
    opened = OpenCalls()
    opened.call(calls("a", "b"))

    assert replies(opened, (None, None), (None, "")) == [
        ("functions.a", MatchedBy.ORDER),
        ("functions.b", MatchedBy.ORDER),
    ]


def test_an_id_is_stronger_than_order_and_name() -> None:
    opened = OpenCalls()
    opened.call(calls("a", "b"))

    assert replies(opened, ("call_1", "a"), (None, None)) == [
        ("functions.b", MatchedBy.ID),
        ("functions.a", MatchedBy.ORDER),
    ]


def test_a_name_is_stronger_than_order() -> None:
    opened = OpenCalls()
    opened.call(calls("a", "b"))

    assert replies(opened, ("unknown", "b"), (None, None)) == [
        ("functions.b", MatchedBy.NAME),
        ("functions.a", MatchedBy.ORDER),
    ]


def test_a_name_that_nobody_called_is_kept() -> None:
    assert replies(OpenCalls(), (None, "c")) == [("functions.c", MatchedBy.NOTHING)]


def test_calls_that_were_never_answered_come_after_the_last_ones() -> None:
    opened = OpenCalls()
    opened.call(calls("a"))
    opened.call(calls("b"))

    assert replies(opened, (None, None), (None, None)) == [
        ("functions.b", MatchedBy.ORDER),
        ("functions.a", MatchedBy.ORDER),
    ]


def test_ids_that_start_again_in_each_message_mean_its_own_calls() -> None:
    opened = OpenCalls()
    opened.call(calls("a"))
    opened.call(calls("b"))

    assert replies(opened, ("call_0", None)) == [("functions.b", MatchedBy.ID)]


def test_a_call_may_be_answered_twice_by_its_id() -> None:
    opened = OpenCalls()
    opened.call(calls("a"))

    assert replies(opened, ("call_0", None), ("call_0", None)) == [("functions.a", MatchedBy.ID)] * 2


def test_a_reply_to_nothing_is_refused() -> None:
    with pytest.raises(RowFault, match="reply_without_call"):
        OpenCalls().reply("4", "call_0", None)


@pytest.mark.parametrize("named", [{"tool_call_id": "call_0"}, {"name": "a"}], ids=["by id", "by name"])
def test_a_reply_that_names_no_call_leaves_those_that_later_ones_name(named: dict[str, object]) -> None:
    opened = OpenCalls()
    opened.call(calls("a", "b"))
    opened.expect([{}, named])

    assert [name for name, _ in replies(opened, (None, None), (named.get("tool_call_id"), named.get("name")))] == [
        "functions.b",
        "functions.a",
    ]


def test_of_two_calls_of_a_name_one_is_left_where_one_reply_names_it() -> None:
    opened = OpenCalls()
    opened.call(calls("a", "a", "b"))
    opened.expect([{}, {"name": "a"}, {}])

    assert [name for name, _ in replies(opened, (None, None), (None, "a"), (None, None))] == [
        "functions.a",
        "functions.a",
        "functions.b",
    ]


def test_where_every_call_is_named_later_the_first_one_is_answered() -> None:
    opened = OpenCalls()
    opened.call(calls("a"))
    opened.expect([{}, {"tool_call_id": "call_0"}])

    assert replies(opened, (None, None), ("call_0", None)) == [
        ("functions.a", MatchedBy.ORDER),
        ("functions.a", MatchedBy.ID),
    ]


def steps(claimed: int) -> int:
    """Functions called while so many calls wait for replies that name them, and as many others reply first."""
    opened, steps = OpenCalls(), 0
    opened.call(calls(*"a" * 2 * claimed))
    opened.expect([*[{}] * claimed, *({"tool_call_id": f"call_{number}"} for number in range(claimed))])

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
    opened.call(calls(*names))
    order = data.draw(st.permutations(range(len(names))))

    found = replies(opened, *((f"call_{place}", None) for place in order))

    assert found == [(f"functions.{names[place]}", MatchedBy.ID) for place in order]


@given(st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=4), min_size=1, max_size=4))
def test_replies_by_order_find_what_ids_would_find(turns: list[list[str]]) -> None:
    by_order, by_id = OpenCalls(), OpenCalls()

    for number, names in enumerate(turns):
        by_order.call(calls(*names))
        by_id.call(calls(*names, first_id=10 * number))
        found = replies(by_order, *[(None, None)] * len(names))
        known = replies(by_id, *((f"call_{10 * number + place}", None) for place in range(len(names))))

        assert [name for name, _ in found] == [name for name, _ in known] == [f"functions.{name}" for name in names]
