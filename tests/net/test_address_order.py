"""Everybody who has the addresses of a cluster comes to the same order, and it divides the shards evenly."""

from __future__ import annotations

from collections import Counter

import pytest

from moot.net.address_order import normal_address, order_addresses
from tests.console.in_node import in_node

ADDRESSES = [f"https://{name}.example:8443" for name in "abcde"]


@pytest.mark.parametrize(
    "spelled",
    ["https://A.example", "https://a.example:443/", "wss://a.example/ws", " https://a.example// "],
)
def test_one_gateway_has_one_place_however_its_address_is_spelled(spelled: str) -> None:
    assert normal_address(spelled) == "https://a.example"
    others = ["https://b.example", "https://c.example"]
    for shard in range(16):
        plain = order_addresses(["https://a.example", *others], shard)
        found = order_addresses([*others, spelled], shard)
        assert [normal_address(each) for each in found] == plain


def test_each_address_is_first_for_its_share_and_no_more_shards_move_than_have_to() -> None:
    shards = range(6_400)
    first = Counter(order_addresses(ADDRESSES, shard)[0] for shard in shards)
    # 1,280 each; six standard deviations are 192.
    assert all(1_088 < first[each] < 1_472 for each in ADDRESSES)
    for gone in ADDRESSES:
        rest = [each for each in ADDRESSES if each != gone]
        for shard in shards[:400]:
            order = order_addresses(ADDRESSES, shard)
            assert order_addresses(rest, shard) == [each for each in order if each != gone]


def test_the_console_has_the_same_order_and_ends_with_the_page_it_came_from() -> None:
    addresses = [
        "https://a.example/",
        "https://b.example:8443/moot/",
        "http://10.0.0.1:8080/",
        "https://E.example:443/",
    ]
    seen = in_node(
        """async (bring, addresses) => {
            const { Gateways } = await bring("core/connection/gateways.js");
            const page = new Gateways(new URL("https://balancer.example/"), addresses), seen = [];
            for (let shard = 0; shard < 64; shard += 1) {
                const one = page.forShard(shard), order = [];
                while (order.length < one.count) {
                    order.push(one.current.href);
                    one.leave(one.current.href);
                }
                seen.push(order);
            }
            return [page.forShard(undefined) === page, seen, page.current.href];
        }""",
        addresses,
    )
    # As browsers write it.
    addresses[-1] = "https://e.example/"
    ordered = [[*order_addresses(addresses, shard), "https://balancer.example/"] for shard in range(64)]
    assert seen == [True, ordered, "https://balancer.example/"]
