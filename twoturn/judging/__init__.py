"""Measurements made elsewhere: reading them, and what their design can carry.

- `study`: runs of any origin, checked and put together to slots;
- `rows`: the rows of a CSV or Parquet file, one at a time;
- `tables`: a table of runs, a run per row or a pair of runs per row;
- `llama_bench`: the JSON and JSONL of llama-bench;
- `own_cells`: a joined table of this project's cells;
- `design`: the order of two arms in time, and what follows from it.

What cannot be used is a UserError that names file, place and cure; nothing is dropped in silence.
"""
