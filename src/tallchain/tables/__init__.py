"""Tables from anywhere: frames, dicts of arrays and files, read in blocks of rows."""

from tallchain.tables.opening import open_table
from tallchain.tables.table import Table, TableError, nearest

__all__ = ["Table", "TableError", "nearest", "open_table"]
