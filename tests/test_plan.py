"""The plan: what changes a fingerprint and what does not, the order of arms, words for a change."""

from __future__ import annotations

import ast
import copy
import inspect
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import CAMPAIGN, FACTS, RECIPES, planned
from twoturn import config, plan
from twoturn.plan import MACHINE_FACTS, METRICS, Plan, changes, order

Data = dict[str, Any]
Change = Callable[[Data, Data, Data], object]  # of (campaign, recipes, facts)
NAMES = st.lists(st.text("abcdefgh", min_size=1, max_size=3), min_size=1, max_size=7, unique=True)


def changed(change: Change) -> Plan:
    campaign, recipes = copy.deepcopy(CAMPAIGN), copy.deepcopy(RECIPES)
    facts = dict(FACTS)
    change(campaign, recipes, facts)
    return planned(campaign, recipes, facts)


def fingerprints(made: Plan) -> dict[str, str]:
    return {series.name: series.fingerprint for series in made.series}


BASE = changed(lambda c, r, f: None)


def upside_down(value: Any) -> Any:
    """The same mappings with their keys in reverse."""
    if not isinstance(value, dict):
        return value
    return {key: upside_down(value[key]) for key in reversed(value)}


def reorder(campaign: Data, recipes: Data, facts: Data) -> None:
    for part in (campaign, recipes, facts):
        turned = upside_down(part)
        part.clear()
        part.update(turned)


def rename(mapping: Data, old: str, new: str) -> None:
    mapping[new] = mapping.pop(old)


def rename_checkpoint(campaign: Data, recipes: Data, facts: Data) -> None:
    rename(campaign["checkpoints"], "draft", "other")
    rename(recipes["checkpoints"], "draft", "other")
    campaign["series"]["first"]["arms"]["quick"]["draft"] = "other"


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(reorder, id="order"),
        pytest.param(lambda c, r, f: c.update(languages=["pl"]), id="languages"),
        pytest.param(lambda c, r, f: c.update(name="x", machine="m4"), id="names"),
        pytest.param(lambda c, r, f: c["series"]["first"].update(rounds=8), id="rounds"),
        pytest.param(lambda c, r, f: f.update(cores=99), id="fact-of-no-consequence"),
        pytest.param(lambda c, r, f: c["checkpoints"]["small"].update(path="/x"), id="moved"),
        pytest.param(rename_checkpoint, id="name-of-a-checkpoint"),
        pytest.param(
            lambda c, r, f: c["series"]["first"]["workload"].update(prompts=1, seed=7),
            id="a-default-written-out",
        ),
        pytest.param(
            lambda c, r, f: r["servers"].update(three={"adapter": "x", "version": "1"}),
            id="another-server",
        ),
    ],
)
def test_the_same_fingerprint(change: Change) -> None:
    assert fingerprints(changed(change)) == fingerprints(BASE)


def test_comments_and_notation_do_not_count(found: Data) -> None:
    text = "# told\n" + yaml.safe_dump(CAMPAIGN, default_flow_style=True)
    made = plan.make(config.parse(text, "c.yaml"), {"machine": FACTS}, found)
    assert fingerprints(made) == fingerprints(BASE)


def first_arm(**new: Any) -> Change:
    return lambda c, r, f: c["series"]["first"]["arms"]["plain"].update(new)


def first_work(**new: Any) -> Change:
    return lambda c, r, f: c["series"]["first"]["workload"].update(new)


def new_recipe(kind: str, name: str, **new: Any) -> Change:
    return lambda c, r, f: r[kind][name].update(new)


CHANGES: list[tuple[Change, set[str], list[str]]] = [
    (new_recipe("servers", "one", version="1.1"), {"first"}, ["one 1.0 → 1.1"]),
    (new_recipe("servers", "two", version="2.1"), {"second"}, ["two 2.0 → 2.1"]),
    (
        new_recipe("servers", "one", packages={"one": "1.0", "mlx": "0.2"}),
        {"first"},
        ["environment of one: mlx 0.1 → 0.2"],
    ),
    (new_recipe("servers", "one", environment_sha256="e2"), {"first"}, ["recipe of one changed"]),
    (new_recipe("servers", "two", command=["x"]), {"second"}, ["recipe of two changed"]),
    (
        new_recipe("checkpoints", "small", files_sha256="c9"),
        {"first"},
        ["checkpoint of plain changed", "checkpoint of quick changed"],
    ),
    (
        new_recipe("checkpoints", "draft", files_sha256="c9"),
        {"first"},
        ["draft of quick changed"],
    ),
    (
        new_recipe("checkpoints", "large", revision="1" * 40),
        {"second"},
        [f"checkpoint of {name} changed" for name in ("cached", "plain", "plain-null")],
    ),
    (
        lambda c, r, f: r["texts"].update({"texts/words.txt": "a2"}),
        {"first"},
        ["workload text changed"],
    ),
    (first_work(seed=8), {"first"}, ["seed 7 → 8"]),
    (first_work(max_tokens=9), {"first"}, ["max_tokens 8 → 9"]),
    (first_work(temperature=0.5), {"first"}, ["temperature 0.0 → 0.5"]),
    (first_arm(settings={"a": 1}), {"first"}, ["a of plain unset → 1"]),
    (first_arm(args=["-x"]), {"first"}, ["args of plain none → -x"]),
    (
        lambda c, r, f: c["series"]["first"]["arms"]["quick"].update(block_size=5),
        {"first"},
        ["block_size of quick 4 → 5"],
    ),
    (
        lambda c, r, f: c["series"]["first"]["arms"]["quick"].update(block_size="adaptive"),
        {"first"},
        ["block_size of quick 4 → adaptive"],
    ),
    (
        lambda c, r, f: c["series"]["first"]["arms"]["quick"].update(speculation="dflash"),
        {"first"},
        ["speculation of quick mtp → dflash"],
    ),
    (
        lambda c, r, f: c["series"]["first"].update(reference="quick"),
        {"first"},
        ["reference plain → quick"],
    ),
    (
        lambda c, r, f: c["series"]["first"].update(null_arm=True),
        {"first"},
        ["arm plain-null is new"],
    ),
    (
        lambda c, r, f: c["series"]["second"].update(null_arm=False),
        {"second"},
        ["arm plain-null is gone"],
    ),
    *(
        (
            lambda c, r, f, key=key: f.update({key: "new"}),
            {"first", "second"},
            [f"{key} {FACTS[key]} → new"],
        )
        for key in MACHINE_FACTS
    ),
]


@pytest.mark.parametrize(("change", "touched", "words"), CHANGES)
def test_a_change_touches_its_own_series_and_has_words(
    change: Change, touched: set[str], words: list[str]
) -> None:
    made = changed(change)
    assert {n for n, f in fingerprints(made).items() if f != BASE.one(n).fingerprint} == touched
    for name in touched:
        assert changes(BASE.one(name).spec, made.one(name).spec) == words
        assert BASE.one(name).directory != made.one(name).directory


def test_the_protocol_touches_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "PROTOCOL", plan.PROTOCOL + 1)
    made = changed(lambda c, r, f: None)
    for series in made.series:
        assert series.fingerprint != BASE.one(series.name).fingerprint
        words = [f"protocol {plan.PROTOCOL - 1} → {plan.PROTOCOL}"]
        assert changes(BASE.one(series.name).spec, series.spec) == words


def test_the_generator_of_prompts_touches_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "GENERATOR", plan.GENERATOR + 1)
    made = changed(lambda c, r, f: None)
    assert not set(fingerprints(made).values()) & set(fingerprints(BASE).values())


def test_going_back_gives_the_old_fingerprint() -> None:
    change = new_recipe("servers", "one", version="1.1")
    back = new_recipe("servers", "one", version="1.0")

    def both(campaign: Data, recipes: Data, facts: Data) -> None:
        change(campaign, recipes, facts)
        back(campaign, recipes, facts)

    assert fingerprints(changed(change)) != fingerprints(BASE)
    assert fingerprints(changed(both)) == fingerprints(BASE)


def test_the_fingerprint_is_stable_and_in_every_path() -> None:
    series = BASE.one("first")
    assert len(series.fingerprint) == 12
    assert int(series.fingerprint, 16) >= 0
    folder = f"results/cells/first/{series.fingerprint}"
    assert set(series.cells(2)) == {f"{folder}/02/plain.parquet", f"{folder}/02/quick.parquet"}
    for number in series.round_numbers():
        slugs = [path.rsplit("/", 1)[1].removesuffix(".parquet") for path in series.cells(number)]
        assert slugs == [series.arm(name).slug for name in series.order(number)]


def test_the_fingerprint_of_a_known_spec() -> None:
    """Old cells stay valid: what is hashed, and how, is settled."""
    entry = BASE.one("first")
    fixed = plan.Series("s", entry.workload, 2, "a", None, (), {"b": [1, None], "a": "ż"})
    text = '{"a":"\\u017c","b":[1,null]}'
    assert plan.canonical(fixed.spec) == text
    assert fixed.fingerprint == "4b30fed1f810"


# Words


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ({"version": "0.7.9"}, {"version": "0.7.10"}, "mlx-vlm 0.7.9 → 0.7.10"),
        (
            {"version": "0.7.9", "packages": {"mlx-vlm": "0.7.9"}},
            {"version": "0.7.10", "packages": {"mlx-vlm": "0.7.10"}},
            "mlx-vlm 0.7.9 → 0.7.10",
        ),
        (
            {"packages": {"a": "1", "b": "1", "c": "1", "d": "1", "e": "1"}},
            {"packages": {"a": "2", "b": "2", "c": "2", "d": "2"}},
            "environment of mlx-vlm: a 1 → 2, b 1 → 2, c 1 → 2 and 2 more packages",
        ),
    ],
)
def test_words_of_a_server(before: Data, after: Data, words: str) -> None:
    def spec(more: Data) -> Data:
        server = {"name": "mlx-vlm", "adapter": "mlx-vlm", "version": "1", "packages": {}, **more}
        arm = dict.fromkeys(("checkpoint", "draft", "speculation", "block_size"))
        arms = {name: {**arm, "args": [], "settings": {}, "server": server} for name in ("a", "b")}
        return {"protocol": 1, "machine": {}, "workload": {}, "reference": "a", "arms": arms}

    assert changes(spec(before), spec(after)) == [words]  # told once, though two arms have it


def test_equal_specs_have_no_words() -> None:
    spec = BASE.one("second").spec
    assert changes(spec, copy.deepcopy(dict(spec))) == []


def test_an_empty_spec_is_new_in_every_way() -> None:
    spec = BASE.one("first").spec
    assert "arm plain is new" in changes({}, spec)


def test_words_of_a_renamed_server() -> None:
    def change(campaign: Data, recipes: Data, facts: Data) -> None:
        rename(campaign["servers"], "one", "uno")
        rename(recipes["servers"], "one", "uno")
        for arm in campaign["series"]["first"]["arms"].values():
            arm["server"] = "uno"

    made = changed(change).one("first")
    assert made.fingerprint != BASE.one("first").fingerprint
    assert changes(BASE.one("first").spec, made.spec)


# Order


@given(NAMES, st.integers(0, 99), st.integers(1, 40))
def test_each_round_has_each_arm_once(names: list[str], seed: int, number: int) -> None:
    assert sorted(order(names, seed, number)) == sorted(names)


@given(NAMES, st.integers(0, 99), st.integers(0, 20))
def test_a_block_is_mirrored(names: list[str], seed: int, block: int) -> None:
    first, second = order(names, seed, 2 * block + 1), order(names, seed, 2 * block + 2)
    assert second == first[::-1]


@given(NAMES, st.integers(0, 99), st.integers(1, 40))
def test_the_order_of_the_file_does_not_matter(names: list[str], seed: int, number: int) -> None:
    assert order(names, seed, number) == order(names[::-1], seed, number)


def test_two_arms_are_abba() -> None:
    a, b, c, d = (BASE.one("first").order(number)[0] for number in (1, 2, 3, 4))
    assert {a, b} == {c, d} == {"plain", "quick"}


@pytest.mark.parametrize("rounds", [2, 8])
def test_the_order_does_not_depend_on_the_number_of_rounds(rounds: int) -> None:
    made = changed(lambda c, r, f: c["series"]["second"].update(rounds=rounds)).one("second")
    for number in range(1, 3):
        assert made.order(number) == BASE.one("second").order(number)
        assert made.cells(number) == BASE.one("second").cells(number)


def test_blocks_and_seeds_are_shuffled_afresh() -> None:
    names = list("abcdef")
    assert len({order(names, 7, number) for number in range(1, 20, 2)}) > 5
    assert len({order(names, seed, 1) for seed in range(10)}) > 5
    firsts = {order(["a", "b"], 7, number)[0] for number in range(1, 20, 2)}
    assert firsts == {"a", "b"}  # not every block begins with the same arm


def test_the_order_is_settled() -> None:
    """Cells on disk were measured in this order; another one would make them invalid."""
    settled = ("mtp", "dflash", "plain-null", "plain")
    assert order(["dflash", "mtp", "plain", "plain-null"], 7, 1) == settled


# Rounds, arms, metrics


def test_priorities_are_unique_and_fall() -> None:
    given = [BASE.priority(series, number) for series, number in BASE.rounds()]
    assert len(given) == 2 + 4
    assert given == sorted(set(given), reverse=True)
    assert min(given) > 1


def test_the_null_arm_is_a_copy_of_the_reference() -> None:
    series = BASE.one("second")
    assert series.null_arm == "plain-null"
    null, reference = series.arm("plain-null"), series.arm("plain")
    assert null.null
    assert not reference.null
    assert (null.checkpoint, null.server, null.args) == ("large", "two", reference.args)
    assert series.spec["arms"]["plain-null"] == series.spec["arms"]["plain"]
    assert BASE.one("first").null_arm is None


def test_arms_know_their_server() -> None:
    quick = BASE.one("first").arm("quick")
    assert (quick.version, quick.adapter, quick.engine) == ("1.0", "one", "one + mtp")
    assert BASE.one("first").arm("plain").engine == "one"


def test_metrics_follow_the_kind() -> None:
    assert BASE.one("first").metrics == METRICS["chat"]
    assert BASE.one("second").metrics == METRICS["conversation"]


def test_unknown_facts_are_null() -> None:
    made = planned(copy.deepcopy(CAMPAIGN), copy.deepcopy(RECIPES), {"chip": "x"})
    assert made.facts == dict.fromkeys(MACHINE_FACTS) | {"chip": "x"}


def test_planning_reads_and_writes_nothing() -> None:
    tree = ast.parse(inspect.getsource(plan))
    names = {alias.name for n in ast.walk(tree) if isinstance(n, ast.Import) for alias in n.names}
    names |= {n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    forbidden = {"os", "pathlib", "subprocess", "socket", "time", "datetime", "io", "shutil"}
    assert not {name.split(".")[0] for name in names} & forbidden
    called = {
        n.func.id
        for n in ast.walk(tree)
        if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)
    }
    assert not called & {"open", "print", "eval", "exec", "__import__"}
