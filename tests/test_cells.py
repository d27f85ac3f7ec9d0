"""The cell's file: nulls stay null, nothing unknown gets in, a broken file is named."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twoturn import cells
from twoturn.errors import UserError

Row = dict[str, Any]
REQUIRED: Row = {
    "series": "s",
    "arm": "a",
    "checkpoint": "c",
    "server": "x",
    "server_version": "1",
    "speculation": "none",
    "round": 1,
    "position": 0,
    "turn": 1,
    "prompt_id": "p1",
    "kind": "round",
    "status": "ok",
    "started_at": datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
    "start_monotonic_s": 1.5,
    "wall_minus_monotonic_s": 0.0,
    "session_id": "abc",
}
NULLABLE = [field.name for field in cells.SCHEMA if field.nullable]
# The names and types of the data contract, as readers of the files rely on them.
CONTRACT = {
    "int64": "block_size round position turn prompt_tokens cached_tokens completion_tokens "
    "verify_cycles drafted_tokens accepted_tokens output_chars divergence_index divergence_token "
    "longest_repeat",
    "double": "effective_block_size prefix_share first_chunk_tokens ttfb_s ttft_s ttf_content_s "
    "e2e_s decode_s decode_tokens decode_tok_s prefill_tok_s server_decode_tok_s server_ttft_s "
    "accept_length tokens_per_step accept_rate draft_share start_monotonic_s "
    "wall_minus_monotonic_s load_s divergence_gap_nats",
    "string": "series arm checkpoint server server_version speculation prompt_id kind status "
    "reason model first_chunk_source finish_reason output_sha256 text_gate session_id "
    "failed_because",
    "bool": "passed",
    "timestamp[us, tz=UTC]": "started_at",
    "list<item: double>": "chunk_times_s",
}


def full(**more: Any) -> Row:
    return {**dict.fromkeys(cells.SCHEMA.names), **REQUIRED, **more}


def written(folder: Path, *rows: Row, **metadata: Any) -> Path:
    file = folder / "a.parquet"
    cells.write(cells.table(rows or [full()], {"fingerprint": "f1", **metadata}), file)
    return file


def test_the_contract() -> None:
    assert {field.name: str(field.type) for field in cells.SCHEMA} == {
        name: kind for kind, names in CONTRACT.items() for name in names.split()
    }
    assert set(cells.SCHEMA.names) - set(NULLABLE) == set(REQUIRED)
    assert cells.JOINED.names == [*cells.SCHEMA.names, "fingerprint"]


def test_nulls_stay_null_and_keep_their_type(tmp_path: Path) -> None:
    cell, _ = cells.read(written(tmp_path, full(), full()))
    assert cell.schema.equals(cells.SCHEMA)
    for name in NULLABLE:
        assert cell[name].null_count == 2
        assert cell.schema.field(name).type == cells.SCHEMA.field(name).type


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "cached_tokens": st.none() | st.integers(0, 2**53),
                "ttft_s": st.none() | st.floats(0, 1e6),
                "chunk_times_s": st.none() | st.lists(st.floats(0, 1e6), max_size=3),
                "reason": st.none() | st.text(max_size=5).filter(lambda t: t.isprintable()),
            }
        ),
        min_size=1,
        max_size=4,
    )
)
def test_rows_come_back_as_they_were(tmp_path_factory: pytest.TempPathFactory, some: Any) -> None:
    rows = [full(**row) for row in some]
    cell, _ = cells.read(written(tmp_path_factory.mktemp("cell"), *rows))
    assert cell.to_pylist() == rows


def test_null_and_zero_and_empty_differ(tmp_path: Path) -> None:
    rows = [full(cached_tokens=value) for value in (None, 0, 5)]
    rows += [full(chunk_times_s=value) for value in (None, [])]
    cell, _ = cells.read(written(tmp_path, *rows))
    assert cell["cached_tokens"].to_pylist()[:3] == [None, 0, 5]
    assert cell["chunk_times_s"].to_pylist()[3:] == [None, []]


def test_metadata_comes_back(tmp_path: Path) -> None:
    told = {"order": ["a", "b"], "command_line": None, "note": "zażółć", "settings": {"x": 1}}
    _, metadata = cells.read(written(tmp_path, **told))
    assert metadata == {"schema_version": cells.SCHEMA_VERSION, "fingerprint": "f1", **told}


def test_an_unknown_column_is_refused() -> None:
    with pytest.raises(KeyError, match=r"no such columns: \['ttft'\]"):
        cells.table([full(ttft=1.0)], {})


@pytest.mark.parametrize(("name", "value"), [("round", "x"), ("ttft_s", "x"), ("series", 1)])
def test_a_value_of_another_type_is_refused(name: str, value: Any) -> None:
    with pytest.raises((pa.ArrowException, TypeError)):
        cells.table([full(**{name: value})], {})


@pytest.mark.parametrize("name", sorted(REQUIRED))
def test_a_missing_value_is_not_written(tmp_path: Path, name: str) -> None:
    with pytest.raises(pa.ArrowException, match=name):
        written(tmp_path, full(**{name: None}))
    assert list(tmp_path.iterdir()) == []  # neither a file nor half a one


def test_columns_left_out_are_null(tmp_path: Path) -> None:
    cell, _ = cells.read(written(tmp_path, dict(REQUIRED)))
    assert cell.to_pylist() == [full()]


def test_writing_replaces_and_leaves_nothing_else(tmp_path: Path) -> None:
    written(tmp_path / "new" / "folder", full())
    file = written(tmp_path / "new" / "folder", full(), full())
    assert cells.read(file)[0].num_rows == 2
    assert [path.name for path in file.parent.iterdir()] == ["a.parquet"]


# Files that are no cells


def other_parquet(file: Path, metadata: Any = None, columns: int | None = None) -> None:
    table = cells.table([full()], {"fingerprint": "f1"})
    if columns is not None:
        table = table.select(range(columns))
    if metadata is not None:
        table = table.replace_schema_metadata({cells.METADATA_KEY: json.dumps(metadata)})
    pq.write_table(table, file)


@pytest.mark.parametrize(
    "damage",
    [
        lambda file: file.write_bytes(b""),
        lambda file: file.write_bytes(file.read_bytes()[:200]),
        lambda file: file.write_bytes(b"x" * 200),
        lambda file: file.write_bytes(file.read_bytes()[:-1]),
        lambda file: file.unlink(),
        lambda file: pq.write_table(pa.table({"x": [1]}), file),
    ],
)
def test_a_broken_file_is_named(tmp_path: Path, damage: Any) -> None:
    file = written(tmp_path)
    damage(file)
    with pytest.raises(UserError) as caught:
        cells.read(file)
    line = str(caught.value)
    assert line.startswith(f"{file}: not a whole cell (")
    assert line.endswith("remove its round's folder and those of later rounds, then run again")


def test_another_schema_version(tmp_path: Path) -> None:
    other_parquet(tmp_path / "a.parquet", {"schema_version": 99})
    with pytest.raises(
        UserError, match=r"schema version 99, this twoturn reads up to 4; use the two"
    ):
        cells.read(tmp_path / "a.parquet")


def test_a_file_of_the_first_version_lacks_what_came_later(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    table = cells.table([full(longest_repeat=3)], {"fingerprint": "f1"})
    older = table.drop_columns([name for names in cells.ADDED.values() for name in names])
    told = {"schema_version": 1, "fingerprint": "f1"}
    pq.write_table(older.replace_schema_metadata({cells.METADATA_KEY: json.dumps(told)}), file)
    cell, metadata = cells.read(file)
    assert metadata == told
    assert cell.to_pylist() == [full(longest_repeat=3)]
    assert cells.join([(file, "f1")]).schema.equals(cells.JOINED)


def test_a_file_of_this_version_has_its_columns(tmp_path: Path) -> None:
    table = cells.table([full()], {}).drop_columns(["text_gate", "divergence_token"])
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(UserError, match=r"columns differ from the schema: \['divergence_token',"):
        cells.read(tmp_path / "a.parquet")


def test_other_columns(tmp_path: Path) -> None:
    other_parquet(tmp_path / "a.parquet", columns=len(cells.SCHEMA) - 1)
    with pytest.raises(UserError, match=r"columns differ from the schema: \['session_id'\]"):
        cells.read(tmp_path / "a.parquet")


# Many cells


def test_of_series_finds_all_kinds_and_no_half_rounds(tmp_path: Path) -> None:
    wanted = ["01/a", "01/warmup/a", "02/a", "02/b", "02/control/a"]
    others = [".03.99/a", ".03.99/warmup/a", "02/.b.parquet.7", "a"]
    others += ["01/control/a", "03/a", "03/control/a"]  # an earlier end, and rounds beyond the plan
    for name in wanted + others:
        file = tmp_path / f"{name}.parquet"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    (tmp_path / "spec.json").touch()
    found = [path.relative_to(tmp_path).as_posix() for path in cells.of_series(tmp_path, 2)]
    assert found == sorted(f"{name}.parquet" for name in wanted)


def test_of_series_under_a_hidden_folder(tmp_path: Path) -> None:
    written(tmp_path / ".home" / "f1" / "01")
    assert len(cells.of_series(tmp_path / ".home" / "f1", 2)) == 1


def test_of_series_without_cells(tmp_path: Path) -> None:
    assert cells.of_series(tmp_path / "none", 2) == []


def test_join(tmp_path: Path) -> None:
    one = written(tmp_path / "one", full(arm="b"), full())
    other = written(tmp_path / "other", full(round=2), fingerprint="f2")
    joined = cells.join([(one, "f1"), (other, "f2")])
    assert joined.schema.equals(cells.JOINED)
    assert joined["fingerprint"].to_pylist() == ["f1", "f1", "f2"]
    assert joined["round"].to_pylist() == [1, 1, 2]
    assert cells.join([]).schema.equals(cells.JOINED)


def test_a_foreign_fingerprint_is_refused(tmp_path: Path) -> None:
    file = written(tmp_path)
    with pytest.raises(UserError) as caught:
        cells.join([(file, "f2")])
    assert str(caught.value) == (
        f"{file}: measured for fingerprint f1, not f2; remove it: it was copied from another series"
    )
