"""Tables of Arrow: in memory, in Arrow files (mapped into memory) and in Parquet, a file or a folder of them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tallchain.tables import table
from tallchain.tables.table import Kind, Report, TableError, check_names, checksum_of_rows, one_line, wanted

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

_READ = 2**20  # bytes hashed at a time


class ArrowTable:
    """A table of Arrow in memory, or mapped into it."""

    def __init__(self, call: str, name: str, held: pa.Table, path: Path | None = None) -> None:
        check_names(call, name, held.column_names)
        if not held.num_rows:
            raise TableError(f"`{call}`: {name} has no rows.")
        self._call, self._held, self._path = call, held, path
        self.name, self.num_rows, self.columns = name, held.num_rows, kinds(held.schema)

    def blocks(self, columns: Iterable[str], report: Report | None = None) -> Iterator[pd.DataFrame]:
        """Yield the rows in order, in blocks."""
        names = wanted(self._call, self, columns)
        held = self._held.select(names)
        for start in range(0, self.num_rows, table.BLOCK):
            yield to_frame(held.slice(start, table.BLOCK), self.num_rows - start)
            if report is not None:
                report(min(start + table.BLOCK, self.num_rows))

    def checksum(self) -> str:
        """Hash the bytes of the file, or names and values."""
        return checksum_of_rows(self) if self._path is None else checksum_of_files([self._path])


class ParquetTable:
    """Files of Parquet, one after the other."""

    def __init__(self, call: str, name: str, files: list[Path], root: Path) -> None:
        from pyarrow import dataset

        self.num_rows = sum(_count(call, path) for path in files)
        paths, root_name = list(map(str, files)), str(root)
        self._dataset = dataset.dataset(paths, format="parquet", partition_base_dir=root_name, partitioning="hive")
        check_names(call, name, self._dataset.schema.names)
        if not self.num_rows:
            raise TableError(f"`{call}`: {name} has no rows.")
        self._call, self._files = call, files
        self.name, self.columns = name, kinds(self._dataset.schema)

    def blocks(self, columns: Iterable[str], report: Report | None = None) -> Iterator[pd.DataFrame]:
        """Yield the rows in order, in blocks."""
        import pyarrow as pa

        names, done = wanted(self._call, self, columns), 0
        try:
            for gathered in gather(self._batches(names)):
                done += gathered.num_rows
                yield to_frame(gathered, gathered.num_rows)
                if report is not None:
                    report(done)
        except (pa.ArrowException, OSError) as error:
            raise TableError(f"`{self._call}`: {self.name} cannot be read to its end ({one_line(error)}).") from None
        finally:
            pa.default_memory_pool().release_unused()

    def _batches(self, names: list[str]) -> Iterator[pa.RecordBatch]:
        """Yield the columns file by file. A scan of all would read ahead by a gigabyte."""
        from pyarrow import parquet

        schema = self._dataset.schema
        for fragment in self._dataset.get_fragments():
            own = fragment.physical_schema
            if all(name in own.names and own.field(name).type == schema.field(name).type for name in names):
                with parquet.ParquetFile(fragment.path, pre_buffer=False) as file:
                    yield from (batch.select(names) for batch in file.iter_batches(table.BLOCK, columns=names))
            else:  # columns that the name of a folder says, or that some files have in another type
                yield from fragment.to_batches(schema=schema, columns=names, batch_size=table.BLOCK)

    def checksum(self) -> str:
        """Hash the bytes of the files."""
        return checksum_of_files(self._files)


def _count(call: str, path: Path) -> int:
    """Return the number of rows that a file says it has."""
    import pyarrow as pa
    from pyarrow import parquet

    try:
        return parquet.read_metadata(path).num_rows
    except (pa.ArrowException, OSError):
        raise TableError(
            f"`{call}`: {path} is not a whole Parquet file: its end is missing or broken. Write or download it again."
        ) from None


# ---- shared with CSV ---------------------------------------------------------------------------


def kinds(schema: pa.Schema) -> dict[str, Kind]:
    """Return the kinds of columns by name."""
    return {field.name: _kind(field.type) for field in schema}


def _kind(of: pa.DataType) -> Kind:
    from pyarrow import types

    if types.is_dictionary(of):
        return "category" if _kind(of.value_type) != "other" else "other"
    if types.is_boolean(of):
        return "truth"
    if types.is_integer(of) or types.is_floating(of) or types.is_decimal(of):
        return "number"
    if types.is_string(of) or types.is_large_string(of) or types.is_string_view(of) or types.is_null(of):
        return "text"
    return "time" if types.is_temporal(of) and not types.is_duration(of) else "other"


def gather(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Put small batches together to blocks, and cut large ones."""
    import pyarrow as pa

    held: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        for start in range(0, batch.num_rows, table.BLOCK):
            piece = batch.slice(start, table.BLOCK)
            if held and count + piece.num_rows > table.BLOCK:
                yield pa.Table.from_batches(held)
                held, count = [], 0
            held.append(piece)
            count += piece.num_rows
    if held:
        yield pa.Table.from_batches(held)


def to_frame(held: pa.Table, most: int) -> pd.DataFrame:
    """Return a frame; truth values with nulls and decimal numbers become floats."""
    import pandas as pd
    import pyarrow as pa
    from pyarrow import types

    if not held.num_columns:
        return pd.DataFrame(index=pd.RangeIndex(min(most, table.BLOCK)))
    for at, field in enumerate(held.schema):
        column = held.column(at)
        if types.is_decimal(field.type) or (types.is_boolean(field.type) and column.null_count):
            of = column.cast(pa.uint8()) if types.is_boolean(field.type) else column
            held = held.set_column(at, field.name, of.cast(pa.float64()))
        elif types.is_null(field.type):
            held = held.set_column(at, field.name, column.cast(pa.string()))
        elif types.is_date(field.type):
            held = held.set_column(at, field.name, column.cast(pa.timestamp("ms")))
    return held.to_pandas(split_blocks=True, ignore_metadata=True)


def checksum_of_files(files: list[Path]) -> str:
    """Hash the bytes of files, in blocks."""
    total = hashlib.blake2b(digest_size=16)
    for path in files:
        with path.open("rb") as stream:
            while read := stream.read(_READ):
                total.update(read)
    return f"blake2b:{total.hexdigest()}"
