"""Masked addresses, compared with FineWeb's regular expressions and datatrove."""

import ipaddress
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_filters import masked

from pipeline_assets.corpus.filters.masking import RESERVED_NETWORKS
from pipeline_assets.corpus.filters.recipe import FilterRecipe, MaskingRecipe
from pipeline_assets.corpus.filters.verdict import FilterVerdict, evaluate

BOTH = MaskingRecipe(emails=True, public_ips=True)
RECIPE = FilterRecipe(masking=BOTH)


@pytest.mark.parametrize(
    ("text", "masked_text"),
    [
        ("mail a.b+c@example.co.uk.", "mail email@example.com."),
        ("<x@y.de>, <z@y.de>, <x@y.de>", "<email@example.com>, <firstname.lastname@example.org>, <email@example.com>"),
        ("a@b", "a@b"),  # a domain has two labels
        ("a@b.c-", "email@example.com-"),
        ("a@-b.c", "a@-b.c"),
        ("..a@b.c..", "..email@example.com.."),
        ("a.@b.c", "a.@b.c"),
        ("éa@b.c", "éa@b.c"),  # it begins at a word boundary
        ("!a@b.c", "!email@example.com"),
        ("a@b@c.d", "a@email@example.com"),
        ("x@[8.8.8.8]", "email@example.com"),
        ("x@[IPv6:1]", "x@[IPv6:1]"),
        ("at 8.8.8.8.", "at 22.214.171.124."),
        ("8.8.8.8 8.8.4.4", "22.214.171.124 126.96.36.199"),
        ("10.0.0.1 127.0.0.1 192.168.1.1 172.16.0.9", "10.0.0.1 127.0.0.1 192.168.1.1 172.16.0.9"),
        ("8.08.8.8", "8.08.8.8"),  # addresses have no leading zero
        ("1234.1.1.1", "122.214.171.124"),  # without boundaries, as in FineWeb
        ("8.8.8.256", "22.214.171.1246"),
        ("8.8.8", "8.8.8"),
        ("1.300.9.8.7.6", "1.300.9.8.7.6"),  # 00.9.8.7 matches first, but is not an address
        ("2001:db8::1", "2001:db8::1"),
        ("8.8.8.8@example.com", "email@example.com"),  # e-mail comes first
    ],
)
def test_e_mail_and_public_ip_addresses_are_replaced_in_turn(text: str, masked_text: str) -> None:
    assert evaluate(text, {}, RECIPE).text == masked_text


def test_masks_are_counted_and_each_document_begins_with_the_first_mask(verdict: Callable[..., FilterVerdict]) -> None:
    text = "a@b.c 8.8.8.8 d@e.f"

    both = verdict(text, masking={"emails": True, "public_ips": True})
    emails = verdict(text, masking={"emails": True, "public_ips": False})
    ips = verdict(text, masking={"emails": False, "public_ips": True})

    assert both.changes == {"masked/email": 2, "masked/ip": 1}
    assert (emails.changes, emails.text) == (
        {"masked/email": 2},
        "email@example.com 8.8.8.8 firstname.lastname@example.org",
    )
    assert (ips.changes, ips.text) == ({"masked/ip": 1}, "a@b.c 22.214.171.124 d@e.f")


def test_reserved_networks_are_those_of_the_ipaddress_module() -> None:
    edges = [int(network[end]) + step for network in RESERVED_NETWORKS for end in (0, -1) for step in (-1, 0, 1)]
    addresses = [ipaddress.IPv4Address(edge) for edge in edges if 0 <= edge < 2**32]

    for address in addresses:
        if not str(address).startswith("192.0.0."):  # Python versions differ on which of these are reachable
            assert (evaluate(str(address), {}, RECIPE).changes == {"masked/ip": 1}) == address.is_global, address


DIGITS = ["1", "9", "0", "00", "10", "25", "255", "256", "192", "168", "1.2.3.4", "8.8.8.8"]
PIECES = [*DIGITS, *"@@...-_!+[]:aB日é \n", "a@b.c", "IPv6"]
addresses = st.lists(st.sampled_from(PIECES), max_size=16).map("".join)


@given(text=addresses | st.text())
def test_masks_equal_the_regular_expressions(text: str) -> None:
    result = evaluate(text, {}, RECIPE)

    plain, emails, ips = masked(text, BOTH)
    assert result.text == plain
    assert (result.changes.get("masked/email", 0), result.changes.get("masked/ip", 0)) == (emails, ips)


@given(text=addresses)
def test_masks_equal_datatrove_for_a_first_document(text: str) -> None:
    pii = pytest.importorskip("datatrove.pipeline.formatters.pii", reason="datatrove is of the extra `peers`")
    formatter = pii.PIIFormatter()

    assert evaluate(text, {}, RECIPE).text == formatter.format(text)


def test_hard_texts_are_masked_in_linear_time() -> None:
    hard = ["a." * 100_000 + "@", "a@" * 100_000, "1." * 100_000, "@a-" * 100_000, "[1.1.1." * 50_000, "." * 200_000]

    for text in hard:
        assert len(evaluate(text, {}, RECIPE).text) > 0
