"""What a campaign has to tell, as raw numbers and names. Reads no file and knows no language."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa

from twoturn import blocks, by_kind, cells, config, contrasts, plan, quality, quality_figure
from twoturn.article import turns
from twoturn.campaign import Loaded
from twoturn.cells import TOO_LONG
from twoturn.numbers import finite
from twoturn.weights import Weights

Row: TypeAlias = dict[str, Any]
Values: TypeAlias = Mapping[str, float | None]

"""The status of what was not measured and did not fail."""

DEMO = PurePosixPath("checkpoints/demo")
"""Where the embedded demo model lies; its card is the README.md there."""

SUSPECT_ACCEPT_LENGTH = 1.2
"""Of a draft that fits, at least one token in five rounds is accepted. A draft that was trained on
other features was seen at 1.05 with 15 drafted (speculators #613)."""


@dataclass(frozen=True)
class Texts:
    """Whether the arms wrote the same. `differing`: (arm, requests that differ from the
    reference's, requests compared, first such request as (round, prompt, turn), its first
    differing character or None). `requests`: how many were written by every arm."""

    requests: int
    all_same: bool
    differing: tuple[tuple[str, int, int, tuple[int, str, int], int | None], ...]


@dataclass(frozen=True)
class Gated:
    """What the text gate found in one arm: requests that it looked at, how many of these diverge
    from a run without speculation, cold and warm alike, and how many are wrong when warm; of each
    kind the first token that differs in its first request."""

    arm: str
    requests: int
    diverging: int
    diverging_from: int | None
    wrong: int
    wrong_from: int | None


@dataclass(frozen=True)
class Accepted:
    """Speculation of one arm in one turn, over all valid requests; None where not reported."""

    arm: plan.Arm
    turn: int
    requests: int
    accept_length: float | None
    accept_rate: float | None
    effective_block_size: float | None

    @property
    def suspect(self) -> bool:
        """Whether the draft hardly ever guesses right, as one made for another target does. That
        n-grams find nothing to repeat says nothing about a draft."""
        length, drafted = self.accept_length, self.arm.speculation != "ngram"
        return drafted and length is not None and length < SUSPECT_ACCEPT_LENGTH


@dataclass(frozen=True)
class Request:
    """One request of an arm over its rounds: medians of the valid ones, None where one of them does
    not tell; `status` and `reason` where none is valid. `rounds` counts the valid ones."""

    arm: str
    prompt: str
    turn: int
    rounds: int
    prompt_tokens: float | None
    cached_tokens: float | None
    ttft_s: float | None
    prefill_tok_s: float | None
    status: str | None
    reason: str | None


@dataclass(frozen=True)
class Measured:
    """What there is of a series, whatever it measures. A round is measured if every arm has cells
    in it; `versions`: server → those that its cells name."""

    series: plan.Series
    measured_rounds: tuple[int, ...]
    missing_rounds: tuple[int, ...]
    has_control: bool
    versions: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class SeriesData(Measured):
    """All that is known about one series. `values`: arm → median over its rounds, per column;
    `pictures`: kind → link from the article to its picture, only where there is one that shows
    something."""

    sessions: int
    values: Mapping[str, Values]
    texts: Texts
    gated: tuple[Gated, ...]
    accepted: tuple[Accepted, ...]
    requests: tuple[Request, ...]
    contrasts: tuple[Row, ...]
    claims: tuple[Row, ...]
    drift: pd.DataFrame
    unreported_cache: tuple[str, ...]
    turns: turns.Turns
    pictures: Mapping[str, str]
    blocks: pd.DataFrame
    by_kind: pd.DataFrame

    @property
    def workload(self) -> config.Chat | config.Conversation | config.Prefill | config.Replay:
        """Of a timed series; those that score answers have a section of their own."""
        assert not isinstance(self.series.workload, config.Quality)
        return self.series.workload


@dataclass(frozen=True)
class QualityData(Measured):
    """One series that scores answers. `rows`: of `quality.SCHEMA`; `groups`: passed tasks by kind,
    level and arm."""

    rows: tuple[Row, ...]
    claims: tuple[Row, ...]
    groups: pd.DataFrame


@dataclass(frozen=True)
class Scored:
    """What `gather` is given about quality. `scores`: `quality.SCHEMA`; `forced`: rows of
    `forced.SCHEMA`; `sizes`: checkpoint → `weights.Precision.as_json`; `figure`: link to the
    picture."""

    scores: pa.Table = field(default_factory=quality.SCHEMA.empty_table)
    forced: tuple[Row, ...] = ()
    sizes: Mapping[str, Row] = field(default_factory=dict)
    figure: str | None = None


@dataclass(frozen=True)
class Excluded:
    """Requests that enter no contrast, alike in all but their place."""

    series: str
    arm: str
    kind: str
    status: str
    reason: str | None
    rounds: tuple[int, ...]
    requests: int


@dataclass(frozen=True)
class Checkpoint:
    """`size`: what its files hold (`weights.counted`), None where nobody looked."""

    name: str
    recipe: Mapping[str, Any]
    toy: bool
    size: Row | None = None


@dataclass(frozen=True)
class Data:
    """What an article tells. `first` and `last` are the starts of the first and last request."""

    campaign: str
    name: str | None
    machine: str
    facts: Mapping[str, Any]
    first: datetime | None
    last: datetime | None
    requests: int
    series: tuple[SeriesData, ...]
    excluded: tuple[Excluded, ...]
    checkpoints: tuple[Checkpoint, ...]
    weights: Mapping[str, Weights]
    quality: tuple[QualityData, ...] = ()
    speed_and_quality: tuple[Row, ...] = ()
    quality_figure: str | None = None
    forced: tuple[Row, ...] = ()

    @property
    def measured(self) -> tuple[Measured, ...]:
        """Series that are timed, then those that score answers."""
        return (*self.series, *self.quality)


def gather(
    loaded: Loaded,
    cells: pd.DataFrame,
    contrast_table: pa.Table,
    claim_table: pa.Table,
    pictures: Mapping[str, Mapping[str, str]],
    scored: Scored | None = None,
) -> Data:
    """What there is to tell about a campaign. Pure.

    cells: the joined table, of any length, chunk times not needed. pictures: series →
    kind → link from the article to its picture, only where there is one.
    """
    scored = scored or Scored()
    names = {series.name for series in loaded.plan.series}
    claim_rows = claim_table.to_pylist()
    cells = cells[cells["series"].isin(names)]
    started = pd.to_datetime(cells["started_at"], utc=True, errors="coerce").dropna()
    return Data(
        campaign=Path(loaded.file).name,
        name=loaded.plan.name,
        machine=loaded.plan.machine,
        facts=loaded.plan.facts,
        first=_moment(started.min()) if len(started) else None,
        last=_moment(started.max()) if len(started) else None,
        requests=int((cells["status"] != TOO_LONG).sum()),
        series=tuple(
            _series_data(
                series,
                cells[cells["series"] == series.name],
                contrasts.of_series(contrast_table.to_pylist(), series),
                [row for row in claim_rows if row["series"] == series.name],
                pictures.get(series.name, {}),
            )
            for series in loaded.plan.series
            if not quality.is_quality(series)
        ),
        excluded=tuple(_excluded(cells)),
        checkpoints=tuple(
            Checkpoint(name, recipe, _is_demo(name, loaded.campaign), scored.sizes.get(name))
            for name, recipe in loaded.recipes["checkpoints"].items()
        ),
        weights=loaded.weights,
        quality=tuple(
            QualityData(
                **_measured(series, cells[cells["series"] == series.name]),
                rows=tuple(contrasts.of_series(scored.scores.to_pylist(), series)),
                claims=tuple(row for row in claim_rows if row["series"] == series.name),
                groups=quality.by_group(cells, series),
            )
            for series in loaded.plan.series
            if quality.is_quality(series)
        ),
        speed_and_quality=tuple(
            {str(name): value for name, value in row.items()}
            for row in quality_figure.data(
                contrast_table, scored.scores, loaded.plan.series
            ).to_dict("records")
        ),
        quality_figure=scored.figure,
        forced=scored.forced,
    )


def _moment(value: pd.Timestamp) -> datetime:
    moment: datetime = value.to_pydatetime().astimezone(UTC)
    return moment


def _numbered(series: plan.Series, rows: pd.DataFrame) -> pd.DataFrame:
    return rows[(rows["kind"] == "round") & rows["round"].isin(list(series.round_numbers()))]


def _measured(series: plan.Series, rows: pd.DataFrame) -> dict[str, Any]:
    """The fields of Measured."""
    planned, numbered = {arm.name for arm in series.arms}, _numbered(series, rows)
    whole = {
        number
        for number in series.round_numbers()
        if planned <= set(numbered.loc[numbered["round"] == number, "arm"])
    }
    return {
        "series": series,
        "measured_rounds": tuple(sorted(whole)),
        "missing_rounds": tuple(one for one in series.round_numbers() if one not in whole),
        "has_control": bool((rows["kind"] == "control").any()),
        "versions": {
            str(server): tuple(sorted(set(part["server_version"])))
            for server, part in rows.groupby("server")
        },
    }


def _series_data(
    series: plan.Series,
    rows: pd.DataFrame,
    contrast_rows: Sequence[Row],
    claim_rows: Sequence[Row],
    pictures: Mapping[str, str],
) -> SeriesData:
    numbered = _numbered(series, rows)
    valid = numbered[numbered["status"] == "ok"]
    shows = {"forest": any(row["verdict"] != "not_measured" for row in contrast_rows)}
    return SeriesData(
        **_measured(series, rows),
        sessions=int(numbered["session_id"].nunique()),
        values=_values(numbered),
        texts=_texts(valid, series),
        gated=tuple(_gated(numbered, series)),
        accepted=tuple(_accepted(valid, series)),
        requests=tuple(_requests(numbered, series)),
        contrasts=tuple(contrast_rows),
        claims=tuple(claim_rows),
        drift=contrasts.drift(rows, series),
        unreported_cache=tuple(
            arm.name
            for arm in series.arms
            if (valid["arm"] == arm.name).any()
            and valid.loc[valid["arm"] == arm.name, "cached_tokens"].isna().all()
        ),
        turns=turns.gather(rows[rows["round"] <= series.rounds], series),
        pictures={kind: link for kind, link in pictures.items() if shows.get(kind, len(numbered))},
        blocks=blocks.curve(numbered, contrast_rows, series),
        by_kind=by_kind.acceptance(numbered, series),
    )


def _total(rows: pd.DataFrame, column: str) -> float:
    """Sum of a column, NaN if one of its values is not known."""
    values = pd.to_numeric(rows[column], errors="coerce").to_numpy(dtype=float, na_value=np.nan)
    return float(values.sum())


def _quotient(above: float, below: float, plus: float = 0) -> float | None:
    return finite(plus + above / below) if below else None


def _effective_block(rows: pd.DataFrame) -> float | None:
    """1 + Σ drafted_tokens ÷ Σ verify_cycles."""
    return _quotient(_total(rows, "drafted_tokens"), _total(rows, "verify_cycles"), plus=1)


VALUES: dict[str, Callable[[pd.DataFrame], float | None]] = {
    **contrasts.SLOT_VALUES,
    "effective_block_size": _effective_block,
}
"""The value of one slot, per column of the tables of results."""


def _values(rows: pd.DataFrame) -> dict[str, Values]:
    """Arm → column → median over the slots whose requests are all valid and report it. A length
    that was not sent takes nothing from those that were."""
    found: dict[str, dict[str, list[float]]] = {}
    sent = rows[rows["status"] != TOO_LONG]
    for (arm, _, _), slot in sent.groupby(["arm", "round", "session_id"], sort=False):
        if (slot["status"] != "ok").any():
            continue
        columns = found.setdefault(str(arm), {name: [] for name in VALUES})
        for name, value in VALUES.items():
            if (number := finite(value(slot))) is not None:
                columns[name].append(number)
    return {
        arm: {name: float(np.median(values)) if values else None for name, values in all_.items()}
        for arm, all_ in found.items()
    }


def _texts(valid: pd.DataFrame, series: plan.Series) -> Texts:
    """Compares the hashes of the answers, request by request."""
    planned = {arm.name for arm in series.arms}
    complete, all_same = 0, True
    compared: dict[str, int] = {}
    differing: dict[str, list[tuple[tuple[int, str, int], int | None]]] = {}
    for key, request in valid.groupby(["round", "prompt_id", "turn"]):
        where = _place(key)
        by_arm = request.set_index("arm")
        known = by_arm["output_sha256"].dropna()
        complete += planned <= set(known.index)
        all_same = all_same and planned <= set(known.index) and known.nunique() == 1
        if series.reference not in known.index:
            continue
        for arm in known.index.drop(series.reference):
            compared[arm] = compared.get(arm, 0) + 1
            if known[arm] != known[series.reference]:
                place = finite(by_arm.loc[arm, "divergence_index"])
                differing.setdefault(arm, []).append((where, None if place is None else int(place)))
    return Texts(
        requests=int(complete),
        all_same=bool(complete) and all_same,
        differing=tuple(
            (arm.name, len(differing[arm.name]), compared[arm.name], *differing[arm.name][0])
            for arm in series.arms
            if arm.name in differing
        ),
    )


def _gated(rows: pd.DataFrame, series: plan.Series) -> Iterable[Gated]:
    """Of every arm with a text that is not simply the same."""
    for arm in series.arms:
        looked_at = rows[(rows["arm"] == arm.name) & rows["text_gate"].notna()]
        looked_at = looked_at.sort_values(["round", "prompt_id", "turn"])
        diverging = looked_at[looked_at["text_gate"] == "diverges"]
        wrong = looked_at[looked_at["text_gate"] == "wrong_when_warm"]
        if len(diverging) or len(wrong):
            yield Gated(
                arm.name,
                len(looked_at),
                len(diverging),
                _first_token(diverging),
                len(wrong),
                _first_token(wrong),
            )


def _first_token(rows: pd.DataFrame) -> int | None:
    place = finite(rows["divergence_token"].iloc[0]) if len(rows) else None
    return None if place is None else int(place)


def _place(key: Any) -> tuple[int, str, int]:
    number, prompt, turn = key
    return int(number), str(prompt), int(turn)


def _accepted(valid: pd.DataFrame, series: plan.Series) -> Iterable[Accepted]:
    for arm in series.arms:
        if arm.speculation == "none":
            continue
        mine = valid[valid["arm"] == arm.name]
        for turn in sorted({int(turn) for turn in mine["turn"]}):
            rows = mine[mine["turn"] == turn]
            cycles, accepted = _total(rows, "verify_cycles"), _total(rows, "accepted_tokens")
            yield Accepted(
                arm=arm,
                turn=turn,
                requests=len(rows),
                accept_length=_quotient(accepted, cycles, plus=1),
                accept_rate=_quotient(accepted, _total(rows, "drafted_tokens")),
                effective_block_size=_effective_block(rows),
            )


def _requests(rows: pd.DataFrame, series: plan.Series) -> Iterable[Request]:
    """In the order of the arms, prompts as they were sent."""
    rows = rows[rows["prompt_id"] != cells.NO_PROMPT]
    for arm in series.arms:
        mine = rows[rows["arm"] == arm.name]
        for key, same in mine.groupby(["prompt_id", "turn"], sort=False):
            prompt, turn = _prompt(key)
            valid = same[same["status"] == "ok"]
            last = same.iloc[-1]
            yield Request(
                arm=arm.name,
                prompt=prompt,
                turn=turn,
                rounds=len(valid),
                prompt_tokens=turns.median(valid["prompt_tokens"]),
                cached_tokens=turns.median(valid["cached_tokens"]),
                ttft_s=turns.median(valid["ttft_s"]),
                prefill_tok_s=turns.median(valid["prefill_tok_s"]),
                status=None if len(valid) else str(last["status"]),
                reason=None if len(valid) else last["reason"] or None,
            )


def _prompt(key: Any) -> tuple[str, int]:
    prompt, turn = key
    return str(prompt), int(turn)


def _excluded(cells: pd.DataFrame) -> Iterable[Excluded]:
    faulty = cells[~cells["status"].isin(["ok", TOO_LONG])]
    alike = ["series", "arm", "kind", "status", "reason"]
    for key, rows in faulty.groupby(alike, dropna=False, sort=False):
        series, arm, kind, status, reason = key
        yield Excluded(
            series=str(series),
            arm=str(arm),
            kind=str(kind),
            status=str(status),
            reason=reason if isinstance(reason, str) and reason else None,
            rounds=tuple(sorted({int(number) for number in rows["round"]})),
            requests=len(rows),
        )


def _is_demo(name: str, campaign: config.Campaign) -> bool:
    """Whether a checkpoint is the embedded demo model, or made from it."""
    entry = campaign.checkpoints[name]
    if entry.make is not None:
        return entry.make.from_ is not None and _is_demo(entry.make.from_, campaign)
    return entry.path is not None and PurePosixPath(entry.path).is_relative_to(DEMO)
