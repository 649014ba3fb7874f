"""Tables of text: CSV, plain or compressed by gzip. Only reading tells how many rows there are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tallchain.tables.arrow import checksum_of_files, gather, kinds, to_frame
from tallchain.tables.table import Report, TableError, check_names, one_line, wanted

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

_FIRST = 2**24  # bytes from which the kinds of columns are inferred, and which are read at a time


class CsvTable:
    """A file of lines with as many fields each, after a line of names.

    Kinds are inferred from the first 16 MB. Whole numbers are read as floats, since later lines may have fractions.
    """

    num_rows = None

    def __init__(self, call: str, name: str, path: Path) -> None:
        import pyarrow as pa

        self._call, self._path, self.name = call, path, name
        try:
            with self._open(None) as reader:
                schema = reader.schema
                first = next(iter(reader), None)
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise self._broken(error) from None
        check_names(call, name, schema.names)
        if first is None or not first.num_rows:
            raise TableError(f"`{call}`: {name} has a line of names, and no rows.")
        self._schema = _wide(schema)
        self.columns = kinds(self._schema)

    def blocks(self, columns: Iterable[str], report: Report | None = None) -> Iterator[pd.DataFrame]:
        """Yield the rows in order, in blocks; every pass reads the whole file."""
        import pyarrow as pa

        names, done = wanted(self._call, self, columns), 0
        try:
            with self._open(names or list(self.columns)[:1]) as reader:
                for gathered in gather(reader):
                    done += gathered.num_rows
                    yield to_frame(gathered.select(names), gathered.num_rows)
                    if report is not None:
                        report(done)
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise self._broken(error) from None

    def checksum(self) -> str:
        """Hash the bytes of the file."""
        return checksum_of_files([self._path])

    def _open(self, names: list[str] | None) -> Any:
        from pyarrow import csv

        read = csv.ReadOptions(block_size=_FIRST)
        if names is None:
            return csv.open_csv(self._path, read_options=read)
        of = {name: self._schema.field(name).type for name in names}
        convert = csv.ConvertOptions(include_columns=names, column_types=of, strings_can_be_null=True)
        return csv.open_csv(self._path, read_options=read, convert_options=convert)

    def _broken(self, error: BaseException) -> TableError:
        """Say what is wrong with the file, and not what the reader calls it."""
        said = one_line(error)
        if "Empty CSV" in said:
            return TableError(f"`{self._call}`: {self.name} is empty.")
        if "Expected" in said and "columns" in said:
            hint = "every line must have as many fields as the line of names"
        elif "conversion error" in said:
            hint = "the first lines have another kind of value in this column; write such values as missing, or quote"
            hint += " all of them as text"
        else:
            hint = "it must be lines of text in UTF-8, with commas between fields"
        return TableError(f"`{self._call}`: {self.name} is not a table in CSV ({said}); {hint}.")


def _wide(schema: pa.Schema) -> pa.Schema:
    """Whole numbers as floats, and what is always missing as text."""
    import pyarrow as pa
    from pyarrow import types

    wide = {True: pa.float64(), False: pa.string()}
    fields = [
        field.with_type(wide[types.is_integer(field.type)])
        if types.is_integer(field.type) or types.is_null(field.type)
        else field
        for field in schema
    ]
    return pa.schema(fields)
