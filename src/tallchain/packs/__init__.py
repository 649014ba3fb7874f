"""Tables and designs as packed tables: shuffled once, in bounded memory, for `sources.Packed`."""

from tallchain.packs.designs import PackedDesign, is_packed, open_design
from tallchain.packs.packing import pack

__all__ = ["PackedDesign", "is_packed", "open_design", "pack"]
