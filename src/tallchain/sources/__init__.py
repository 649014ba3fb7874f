"""Sources of rows: each reads them a window at a time and returns evidence, not rows."""

from tallchain.sources.packed import Packed
from tallchain.sources.sharded import Sharded
from tallchain.sources.shuffled import Shuffled
from tallchain.sources.taking import as_shuffled, as_source, check_plain, count_rows
from tallchain.sources.with_replacement import WithReplacement

__all__ = ["Packed", "Sharded", "Shuffled", "WithReplacement", "as_shuffled", "as_source", "check_plain", "count_rows"]
