"""What is too large to be read: `too_large`.

Files come from others. A few kilobytes can unpack to gigabytes, and one line can hold the memory of
a machine; what passes one of these is refused by name, and the other rows and files are scored, or
imported.
"""

LINE_BYTES = 64 << 20  # of a JSON line, a protobuf message, and a JSON document of one trace
TEXT_BYTES = 16 << 20  # of one value, in UTF-8
VALUES = 1 << 20  # of one row: objects, lists and what stands in them
RAW_BYTES = 1 << 20  # of a rejected row's JSON that is kept
ALL_RAW_BYTES = 64 << 20  # of all rejected rows' of one file, unless RATIO allows more
TRACE_BYTES = 256 << 20  # of all that an import reads of one trace, and 64 bytes for each value
MEMBER_BYTES = 2 << 30  # of gzip or zstd once unpacked; of an `.eval`, unless RATIO allows more
REFUSED = 1 << 18  # of a file's faulty or blank lines; of a file with more, an import takes nothing
UNPACKED_BYTES = 256 << 20  # of a Parquet file once unpacked, unless the next allows more
RATIO = 100  # times its size that a file may unpack to
COLUMNS = 10_000  # columns of a Parquet file, each field of a struct by itself
NESTING = 1_000  # objects and lists within each other

TOO_LARGE = "too_large"
