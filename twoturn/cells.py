"""The cell: one arm measured once, one Parquet file, a row per request.

The Arrow schema is explicit, units are in the names, null means not known. What a reader needs to
trust a number lies in the file's metadata: recipes, command line, settings read back, environment.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from twoturn import files
from twoturn.errors import UserError

SCHEMA_VERSION = 4
ADDED = {
    2: ("text_gate", "divergence_token"),
    3: ("prefix_share", "passed", "failed_because"),
    4: ("divergence_gap_nats",),
}
"""Schema version → columns that came with it. Files of earlier versions are read, these as null."""
METADATA_KEY = b"twoturn"
TOO_LONG = "too_long"  # status of a prompt that does not fit and was never sent
NO_PROMPT = "none"  # prompt_id of the one row of a cell whose server did not start


class Planned(Protocol):
    """A series as it is planned."""

    @property
    def fingerprint(self) -> str: ...
    @property
    def directory(self) -> str: ...
    @property
    def rounds(self) -> int: ...


def _fields(names: str, kind: pa.DataType, nullable: bool = True) -> list[pa.Field]:
    return [pa.field(name, kind, nullable) for name in names.split()]


SCHEMA = pa.schema(
    [
        *_fields("series arm checkpoint server server_version speculation", pa.string(), False),
        pa.field("block_size", pa.int64()),
        pa.field("effective_block_size", pa.float64()),
        *_fields("round position turn", pa.int64(), False),
        *_fields("prompt_id kind status", pa.string(), False),
        *_fields("reason model", pa.string()),
        *_fields("prompt_tokens cached_tokens completion_tokens", pa.int64()),
        pa.field("prefix_share", pa.float64()),
        pa.field("first_chunk_tokens", pa.float64()),
        *_fields("first_chunk_source finish_reason", pa.string()),
        *_fields("ttfb_s ttft_s ttf_content_s e2e_s decode_tokens decode_s", pa.float64()),
        *_fields("decode_tok_s prefill_tok_s server_decode_tok_s server_ttft_s", pa.float64()),
        *_fields("verify_cycles drafted_tokens accepted_tokens", pa.int64()),
        *_fields("accept_length tokens_per_step accept_rate draft_share", pa.float64()),
        *_fields("output_sha256 text_gate", pa.string()),
        *_fields("output_chars divergence_index divergence_token longest_repeat", pa.int64()),
        pa.field("divergence_gap_nats", pa.float64()),
        pa.field("passed", pa.bool_()),
        pa.field("failed_because", pa.string()),
        pa.field("chunk_times_s", pa.list_(pa.float64())),
        pa.field("started_at", pa.timestamp("us", tz="UTC"), False),
        *_fields("start_monotonic_s wall_minus_monotonic_s", pa.float64(), False),
        pa.field("load_s", pa.float64()),
        pa.field("session_id", pa.string(), False),
    ]
)
JOINED = SCHEMA.append(pa.field("fingerprint", pa.string(), False))


def table(rows: Sequence[Mapping[str, Any]], metadata: Mapping[str, Any]) -> pa.Table:
    """Rows as a table of the schema. Raises pyarrow errors for an unknown or missing column."""
    unknown = {key for row in rows for key in row} - set(SCHEMA.names)
    if unknown:
        raise KeyError(f"no such columns: {sorted(unknown)}")
    text = json.dumps({"schema_version": SCHEMA_VERSION, **metadata}, sort_keys=True)
    return pa.Table.from_pylist(list(rows), SCHEMA.with_metadata({METADATA_KEY: text.encode()}))


def write(cell: pa.Table, file: Path) -> None:
    """Write a table as a whole file. Every page has a checksum."""
    with files.whole(file) as partial:
        pq.write_table(cell, partial, write_page_checksum=True)


def read(file: Path) -> tuple[pa.Table, dict[str, Any]]:
    """A cell and its metadata. Raises UserError that names a broken or foreign file."""
    try:
        cell = pq.read_table(file, partitioning=None, page_checksum_verification=True)
        metadata: dict[str, Any] = json.loads((cell.schema.metadata or {})[METADATA_KEY])
    except (OSError, pa.ArrowException, KeyError, ValueError) as error:
        raise UserError(
            f"not a whole cell ({type(error).__name__})",
            file=file,
            cure="remove its round's folder and those of later rounds, then run again",
        ) from None
    version = metadata.get("schema_version", 0)
    if version not in range(1, SCHEMA_VERSION + 1):
        raise UserError(
            f"schema version {version}, this twoturn reads up to {SCHEMA_VERSION}",
            file=file,
            cure="use the twoturn that wrote it",
        )
    cell = with_later_columns(cell, version)
    if not cell.schema.equals(SCHEMA):
        odd = sorted(set(cell.schema.names) ^ set(SCHEMA.names)) or "types"
        raise UserError(f"columns differ from the schema: {odd}", file=file)
    return cell, metadata


def load(file: Path) -> pa.Table:
    """A table that was made of cells. Raises UserError that names a broken one."""
    try:
        return pq.read_table(file, partitioning=None, page_checksum_verification=True)
    except (OSError, pa.ArrowException) as error:
        raise UserError(
            f"not a whole table ({type(error).__name__})",
            file=file,
            cure="remove it and run again: it is made of the cells in a moment",
        ) from None


def with_later_columns(cell: pa.Table, version: int) -> pa.Table:
    """Cells of an earlier version with nulls in the columns that have come since."""
    later = [name for since, names in ADDED.items() if since > version for name in names]
    for name in (name for name in later if name not in cell.schema.names):
        field = SCHEMA.field(name)
        cell = cell.append_column(field, pa.nulls(cell.num_rows, field.type))
    known = [name for name in SCHEMA.names if name in cell.schema.names]
    return cell.select([*known, *sorted(set(cell.schema.names) - set(known))])


def of_series(folder: Path, rounds: int) -> list[Path]:
    """All cells of the first `rounds` rounds of a measured series, sorted: rounds, their warm-ups,
    and the control after the last. A control after an earlier last round is none any more.
    """
    names = [f"{number:02d}" for number in range(1, rounds + 1)]
    return sorted(
        path
        for name in names
        for path in (folder / name).rglob("*.parquet")
        if not path.name.startswith(".") and (path.parent.name != "control" or name == names[-1])
    )


def of_plan(planned: Iterable[Planned], root: Path) -> list[tuple[Path, str]]:
    """All cells of planned series, as `join` takes them."""
    return [
        (file, series.fingerprint)
        for series in planned
        for file in of_series(root / series.directory, series.rounds)
    ]


def join(measured: Sequence[tuple[Path, str]]) -> pa.Table:
    """Cells of many files, each given with its series' fingerprint, as one table.

    Raises UserError where a cell lies under another fingerprint than it was measured for.
    """
    parts = []
    for file, fingerprint in measured:
        cell, metadata = read(file)
        if metadata.get("fingerprint") != fingerprint:
            raise UserError(
                f"measured for fingerprint {metadata.get('fingerprint')}, not {fingerprint}",
                file=file,
                cure="remove it: it was copied from another series",
            )
        column = pa.array([fingerprint] * cell.num_rows, pa.string())
        parts.append(cell.replace_schema_metadata(None).append_column(JOINED.field(-1), column))
    return pa.concat_tables(parts) if parts else JOINED.empty_table()
