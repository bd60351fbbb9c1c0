"""Random proposals, decided by both engines of Cedar: `cedarpy`, as rules use it, and `cedar-wasm` from npm.

    python -m bench.cedar_agreement --requests 100000

Both get the request that `request_of` makes of a proposal. They agree if decision, determining policies and
failed policies are the same. Needs `make .node/installed`.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Final

import cedarpy

from moot.protocol.operation import Json
from moot.trust.history.proposal_case import case_of
from moot.trust.rules.cedar_policies import request_of

ROOT: Final = Path(__file__).resolve().parent.parent
NODE: Final = ROOT / ".node" / "node_modules" / ".bin" / "node"
_JUDGE: Final = """
const { preparsePolicySet, statefulIsAuthorized } = (await import(process.argv[1])).default;
let given = "";
for await (const part of process.stdin.setEncoding("utf-8")) given += part;
const answers = JSON.parse(given).map(({ policies, requests }) => {
  const read = preparsePolicySet("p", { staticPolicies: policies });
  if (read.type !== "success") throw new Error(JSON.stringify(read));
  return requests.map(([request, entities]) => {
    const found = statefulIsAuthorized({ ...request, entities, preparsedPolicySetId: "p" });
    if (found.type !== "success") return ["failure", [], []];
    const { decision, diagnostics } = found.response;
    const failed = diagnostics.errors.map((each) => each.policyId);
    return [decision, diagnostics.reason.toSorted(), failed.toSorted()];
  });
});
process.stdout.write(JSON.stringify(answers));
"""
_MEMBERS: Final = ("agent", "alice", 'odd "name"\n', "")
_HOSTS: Final = ("files", "mail", "bank")
_METHODS: Final = ("tools/call", "resources/read", "tools/list")
_TOOLS: Final = ("write_file", "send", "pay")
_TEXTS: Final = ("reports/a.md", "reports/*", "secret", "", "é😀", 'a"b\\', "reports/../x")
_KEYS: Final = ("path", "amount", "to", "deep")


def _value(rng: random.Random, depth: int = 2) -> Json:
    # JavaScript has no whole numbers beyond these.
    leaf: list[Json] = [
        rng.choice(_TEXTS),
        rng.randint(-3, 5),
        2**53 - 1,
        1 - 2**53,
        rng.random() < 0.5,
        None,
    ]
    leaf += [rng.randint(-400, 400) / 16, 0.5]
    if depth and rng.random() < 0.4:
        inner: list[Json] = [_value(rng, depth - 1) for _ in range(rng.randint(0, 3))]
        return inner if rng.random() < 0.5 else dict(zip(_KEYS, inner, strict=False))
    return rng.choice(leaf)


def _condition(rng: random.Random) -> str:
    key = rng.choice(_KEYS)
    field = f"context.arguments.{key}"
    guard = rng.choice((f"context.arguments has {key} && ", ""))
    tests = (
        f'{field} like "reports/*"',
        f"{field} == {json.dumps(rng.choice(('secret', 'reports/a.md')))}",
        f"{field} < {rng.randint(-2, 4)}",
        f'{field}.lessThan(decimal("{rng.randint(-9, 9)}.5"))',
        f'{field}.contains("secret")',
        f"{field} has path && {field}.path == 1",
        f"!{field}",
        f"[{rng.randint(0, 3)}, true].contains({field})",
        'context.origins.asks && context.tool != "pay"',
        f"{field} + {2**63 - 2} > 0",
        "principal == resource",
    )
    return guard + rng.choice(tests)


def _policy(rng: random.Random) -> str:
    principal = rng.choice(("principal", 'principal == Member::"agent"', "principal is Member"))
    action = rng.choice(("action", 'action in Action::"tools/call"', 'action == Action::"tools/call/pay"'))
    resource = rng.choice(("resource", f'resource == Host::"{rng.choice(_HOSTS)}"'))
    clauses = "".join(
        f" {rng.choice(('when', 'unless'))} {{ {_condition(rng)} }}" for _ in range(rng.randint(0, 2))
    )
    return f"{rng.choice(('permit', 'permit', 'forbid'))}({principal}, {action}, {resource}){clauses};"


def _request(rng: random.Random) -> tuple[dict[str, Json], list[Json]]:
    method, tool = rng.choice(_METHODS), rng.choice(_TOOLS)
    arguments: Json = {key: _value(rng) for key in _KEYS if rng.random() < 0.6}
    params: Json = {"name": tool, "arguments": arguments} if method == "tools/call" else arguments
    if method == "resources/read":
        params = {"uri": "file:///a"}
    payload: dict[str, Json] = {"method": method, "params": params}
    case = case_of("p", rng.choice(_MEMBERS), [rng.choice(_HOSTS)], payload)
    return request_of(case, rng.choice((None, "nobody said this")))


def compare(requests: int, seed: int, *, requests_of_a_set: int = 50) -> Counter[str]:
    """How often which decision was found; raises AssertionError where the engines differ."""
    rng = random.Random(seed)
    sets: list[dict[str, Any]] = []
    while requests > 0:
        count = min(requests, requests_of_a_set)
        policies = "\n".join(_policy(rng) for _ in range(rng.randint(1, 6)))
        sets.append({"policies": policies, "requests": [_request(rng) for _ in range(count)]})
        requests -= count
    module = ROOT / ".node/node_modules/@cedar-policy/cedar-wasm/nodejs/cedar_wasm.js"
    ran = subprocess.run(  # noqa: S603 (of the bench itself)
        [NODE if NODE.exists() else "node", "--input-type=module", "--eval", _JUDGE, module.as_uri()],
        input=json.dumps(sets).encode(),
        capture_output=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr.decode()
    found: Counter[str] = Counter()
    for each, answers in zip(sets, json.loads(ran.stdout), strict=True):
        read = cedarpy.PolicySet.from_str(each["policies"])
        for (request, entities), answer in zip(each["requests"], answers, strict=True):
            ours = _ours(cedarpy.is_authorized(request, read, entities))
            assert ours == answer, (each["policies"], request, ours, answer)
            found[f"{answer[0]}, {'an error' if answer[2] else 'no error'}"] += 1
    return found


def _ours(result: Any) -> list[Json]:
    failed = sorted(text.split("`")[1] for text in result.diagnostics.errors)
    return [result.decision.value.lower(), sorted(result.diagnostics.reasons), failed]


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare two engines of Cedar on random proposals.")
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    left, total = options.requests, Counter[str]()
    while left > 0:
        count = min(left, 10_000)
        total += compare(count, options.seed + left)
        left -= count
        print(f"{total.total()} decided alike: {dict(total)}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
