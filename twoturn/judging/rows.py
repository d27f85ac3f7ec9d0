"""The rows of a CSV, TSV or Parquet file, one at a time, so that a file of any size is read."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from twoturn.errors import UserError

SEPARATORS = {".csv": ",", ".tsv": "\t"}
PARQUET = ".parquet"
SUFFIXES = (*SEPARATORS, PARQUET)

BATCH = 65_536
MAX_COLUMNS = 1_000

Row = Mapping[str, Any]


def columns(file: Path) -> list[str]:
    """Names of the columns. Raises UserError for what is not a table with names."""
    names = _parquet_names(file) if file.suffix == PARQUET else next(_lines(file), ("", []))[1]
    if not any(names):
        raise UserError("the file is empty", file=file, cure="give a table with a row of names")
    if len(names) > MAX_COLUMNS:
        raise UserError(
            f"more than {MAX_COLUMNS} columns", file=file, cure="give a table with a run per row"
        )
    if doubled := [name for name in names if names.count(name) > 1]:
        raise UserError(f"column {doubled[0]!r} stands twice", file=file, cure="rename one")
    return names


def read(file: Path, wanted: Sequence[str]) -> Iterator[tuple[str, Row]]:
    """The place of every row and its wanted columns. Raises UserError at the row that is broken."""
    if file.suffix == PARQUET:
        yield from _parquet_rows(file, wanted)
        return
    names = columns(file)
    lines = _lines(file)
    next(lines)
    for place, fields in lines:
        if len(fields) != len(names):
            raise UserError(
                f"{len(fields)} fields, and {len(names)} names of columns",
                file=file,
                key=place,
                cure="write one field per column, separated as in the first line",
            )
        row = dict(zip(names, fields, strict=True))
        yield place, {name: row[name].strip() for name in wanted}


def _lines(file: Path) -> Iterator[tuple[str, list[str]]]:
    """Fields of every line that is not blank, and its number, the names of the columns first."""
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.reader(stream, delimiter=SEPARATORS[file.suffix], strict=True)
            for fields in reader:
                if fields:
                    yield f"line {reader.line_num}", fields
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise unreadable(file, error, "give a text file in UTF-8 with one run per line") from None


def _parquet_names(file: Path) -> list[str]:
    try:
        return list(pq.ParquetFile(file).schema_arrow.names)
    except (OSError, pa.ArrowException) as error:
        raise unreadable(file, error, "give a whole Parquet file") from None


def _parquet_rows(file: Path, wanted: Sequence[str]) -> Iterator[tuple[str, Row]]:
    number = 0
    try:
        for batch in pq.ParquetFile(file).iter_batches(BATCH, columns=list(wanted)):
            for row in batch.to_pylist():
                number += 1
                yield f"row {number}", row
    except (OSError, pa.ArrowException, ValueError) as error:
        raise unreadable(file, error, "give a whole Parquet file") from None


def unreadable(file: Path, error: Exception, cure: str) -> UserError:
    """One line for a file that an operation on it has failed on."""
    if not file.exists() or file.is_dir():
        told = "it is a folder" if file.is_dir() else "no such file"
        return UserError(told, file=file, cure="name a file")
    return UserError(f"cannot be read ({type(error).__name__})", file=file, cure=cure)
