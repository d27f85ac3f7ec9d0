"""Claims: every verb of comparison rests on a verdict, and every sentence can be filled in."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from twoturn import claims, contrasts
from twoturn.stats.verdict import Verdict

from .test_contrasts import NULL, Series, cells_of, series_of

FIELDS = {
    *("arm", "reference", "series", "arms", "metric", "effect", "second_effect"),
    *(
        "low",
        "high",
        "confidence",
        "margin",
        "rounds",
        "reason",
        "share",
        "share_low",
        "share_high",
    ),
}


def told(table: pa.Table) -> dict[str, dict[str, Any]]:
    return {row["claim"]: row for row in table.to_pylist()}


def contrast(series: Series, metric: str, arm: str, verdict: str, **numbers: Any) -> dict[str, Any]:
    valid = {"ratio": 1.0, "ci_low": 0.99, "ci_high": 1.01, "confidence": 0.99, "rounds": 6}
    silent = verdict in ("invalid", "unpaired", "not_measured")
    return {
        "series": series.name,
        "metric": metric,
        "arm": arm,
        "reference": series.reference,
        "verdict": verdict,
        "fingerprint": series.fingerprint,
        "warnings": [],
        **({} if silent else valid),
        **numbers,
    }


def claims_of(series: Series, *rows: dict[str, Any], **more: Any) -> dict[str, dict[str, Any]]:
    table = pa.Table.from_pylist(list(rows), schema=contrasts.SCHEMA)
    return told(claims.from_contrasts(table, [series], **more))


def sentence(row: dict[str, Any]) -> str:
    """As an English formatter might do it."""

    def text(kind: str, value: Any) -> str:
        assert value is not None, row["msgid"]
        if kind == "ratio":
            return f"{value:.2f}"
        if kind == "percent":
            return f"{value:.0%}"
        if kind == "names":
            return " and ".join(value)
        if kind == "metric":
            return claims.METRICS[value]
        if kind == "reason":
            msgid, fields = claims.reason_fields(value)
            return msgid.format(**{name: text(*field) for name, field in fields.items()})
        return str(value)

    fields = claims.sentence_fields(row)
    return str(row["msgid"]).format(**{name: text(*field) for name, field in fields.items()})


def test_the_whole_way_from_cells_to_the_trade() -> None:
    series = series_of("mtp", null=True)
    cells = cells_of(series, decode={"mtp": 1.4}, ttft={"mtp": 3.0}, drift=-0.3)
    table = claims.from_contrasts(contrasts.from_cells(cells, [series]), [series])
    assert table.schema.equals(claims.SCHEMA, check_metadata=True)
    found = told(table)
    assert list(found) == [
        "two_turns/conversation_s/mtp",
        "two_turns/turn2_ttft_s/mtp",
        "two_turns/decode_tok_s/mtp",
        "two_turns/trade/mtp",
        "two_turns/null_arm",
        "two_turns/headline",
    ]
    assert found["two_turns/null_arm"]["verdict"] == "passed"
    trade = found["two_turns/trade/mtp"]
    assert trade["verdict"] == "trade"
    assert trade["contrasts"] == [
        "two_turns/conversation_s/mtp/plain",
        "two_turns/decode_tok_s/mtp/plain",
    ]
    assert sentence(trade).startswith("mtp wins the decoding and loses the conversation")
    assert trade["second_effect"] == pytest.approx(1.4, abs=0.1)
    assert found["two_turns/headline"]["verdict"] == "slower"
    assert all(sentence(row) for row in found.values())


def test_a_time_that_is_shorter_is_told_as_times_as_fast() -> None:
    series = series_of("mtp")
    row = contrast(series, "turn2_ttft_s", "mtp", "faster", ratio=0.5, ci_low=0.4, ci_high=0.625)
    claim = claims_of(series, row)["two_turns/turn2_ttft_s/mtp"]
    assert claim["effect"] == pytest.approx(2.0)
    assert sentence(claim) == (
        "mtp gives the first token of the second turn sooner than plain: 2.00 times as fast "
        "(99% interval 1.60 to 2.50; rounds: 6)."
    )


def test_a_slower_arm_is_told_from_the_reference() -> None:
    series = series_of("mtp")
    row = contrast(series, "decode_tok_s", "mtp", "slower", ratio=0.5, ci_low=0.4, ci_high=0.625)
    assert sentence(claims_of(series, row)["two_turns/decode_tok_s/mtp"]) == (
        "On these prompts mtp decodes slower than plain: plain is 2.00 times as fast "
        "(99% interval 1.60 to 2.50; rounds: 6)."
    )


def test_unresolved_says_what_could_have_been_missed() -> None:
    series = series_of("mtp")
    row = contrast(
        series, "conversation_s", "mtp", "unresolved", ratio=0.9, ci_low=0.8, ci_high=1.25
    )
    claim = claims_of(series, row)["two_turns/conversation_s/mtp"]
    assert (claim["missed_low"], claim["missed_high"]) == pytest.approx((0.8, 1.25))
    assert "anything from 0.80 to 1.25 times as fast" in sentence(claim)
    assert claim["effect"] is None


@pytest.mark.parametrize("metric", claims.METRICS)
@pytest.mark.parametrize("verdict", list(Verdict))
def test_every_metric_and_verdict_has_a_sentence(metric: str, verdict: Verdict) -> None:
    series = series_of("mtp")
    row = contrast(series, metric, "mtp", verdict, warnings=["row_not_ok:empty"])
    claim = claims_of(series, row)[f"two_turns/{metric}/mtp"]
    text = sentence(claim)
    assert text.endswith(".")
    assert "{" not in text
    if verdict not in ("faster", "slower"):
        assert claim["effect"] is None
    if verdict in ("invalid", "unpaired", "not_measured", "same"):
        assert not {"faster", "slower", "sooner", "later"} & set(text.split())


@pytest.mark.parametrize(
    ("found", "verdict", "arms"),
    [
        ({"mtp": "faster", "dflash": "slower"}, "faster", ["mtp"]),
        ({"mtp": "faster", "dflash": "faster"}, "faster", ["mtp", "dflash"]),
        ({"mtp": "slower", "dflash": "slower"}, "slower", []),
        ({"mtp": "slower", "dflash": "same"}, "unresolved", []),
        ({"mtp": "slower", "dflash": "invalid"}, "unresolved", []),
        ({"mtp": "same", "dflash": "same"}, "same", []),
    ],
)
def test_headline(found: dict[str, str], verdict: str, arms: list[str]) -> None:
    series = series_of("mtp", "dflash")
    rows = [contrast(series, "conversation_s", arm, called) for arm, called in found.items()]
    rows += [contrast(series, "decode_tok_s", arm, "faster", ratio=2.0) for arm in found]
    claim = claims_of(series, *rows)["two_turns/headline"]
    assert (claim["verdict"], claim["arms"]) == (verdict, arms)
    assert claim["contrasts"] == [f"two_turns/conversation_s/{arm}/plain" for arm in found]
    assert "conversation" in sentence(claim)


def test_without_conversation_time_the_headline_speaks_of_decoding_alone() -> None:
    series = series_of("mtp", metrics=("decode_tok_s", "ttft_s"))
    row = contrast(series, "decode_tok_s", "mtp", "faster", ratio=2.0)
    found = claims_of(series, row)
    assert sentence(found["two_turns/headline"]).startswith("For decoding alone")
    assert found["two_turns/decode_tok_s/mtp"]["section"] == "chat"
    assert found["two_turns/null_arm"]["verdict"] == "absent"


def test_a_failed_null_arm_silences_the_series() -> None:
    series = series_of("mtp", null=True)
    cells = cells_of(series, decode={"mtp": 2.0, NULL: 1.3})
    found = told(claims.from_contrasts(contrasts.from_cells(cells, [series]), [series]))
    assert found["two_turns/null_arm"]["verdict"] == "failed"
    assert "came out different" in sentence(found["two_turns/null_arm"])
    assert sentence(found["two_turns/headline"]).startswith(
        "The series two_turns decides nothing, because the null arm"
    )
    assert all(row["effect"] is None for row in found.values())


def test_the_slow_arm_is_named_when_it_did_not_finish() -> None:
    series = series_of("mtp")
    row = contrast(series, "conversation_s", "mtp", "invalid", warnings=["censored:mtp"])
    text = sentence(claims_of(series, row)["two_turns/conversation_s/mtp"])
    assert "mtp did not finish within the time limit" in text


def test_warnings_and_published_figures_are_carried_along() -> None:
    series = series_of("mtp")
    row = contrast(series, "decode_tok_s", "mtp", "faster", ratio=1.2, warnings=["strong_drift"])
    name = "two_turns/decode_tok_s/mtp"
    claim = claims_of(series, row, published={name: 1.9}, measured_on={"two_turns": "{}"})[name]
    assert (claim["published_value"], claim["measured_value"]) == (1.9, 1.2)
    assert (claim["measured_on"], claim["warnings"]) == ("{}", ["strong_drift"])


def test_every_message_can_be_filled_holds_no_number_and_is_found_by_gettext() -> None:
    extract = pytest.importorskip("babel.messages.extract")
    every = " ".join(f"{{{name}}}" for name in FIELDS)
    row = {**dict.fromkeys(claims.SCHEMA.names), "msgid": every, "arms": []}
    assert set(claims.sentence_fields(row)) == FIELDS
    for msgid in claims.messages():
        assert set(claims.placeholders(msgid)) <= FIELDS | {"detail"}
        assert not any(character.isdigit() for character in msgid)
    with open(claims.__file__, "rb") as source:
        marked = {message for _, message, _, _ in extract.extract("python", source)}
    assert marked == set(claims.messages())


@pytest.mark.parametrize("code", claims.REASONS)
def test_every_reason_has_words(code: str) -> None:
    msgid, fields = claims.reason_fields(f"{code}:decode_tok_s")
    assert set(fields) == set(claims.placeholders(msgid))
    if code == "null_arm_differs":
        assert fields["detail"] == ("metric", "decode_tok_s")
