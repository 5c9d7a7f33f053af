"""What is too large to be read: `too_large`.

Files come from others. A few kilobytes can unpack to gigabytes, and one line can hold the memory of
a machine; what passes one of these is refused by name, and the other rows and files are scored.
"""

LINE_BYTES = 64 << 20  # of a JSON line, and of a JSON document that holds one trace
TEXT_BYTES = 16 << 20  # of one value, in UTF-8
VALUES = 1 << 20  # of one row: objects, lists and what stands in them
RAW_BYTES = 1 << 20  # of a rejected row's JSON that is kept
ALL_RAW_BYTES = 64 << 20  # of all rejected rows' of one file, unless RATIO allows more
MEMBER_BYTES = 2 << 30  # of a file once unpacked, and of a member of an archive
UNPACKED_BYTES = 256 << 20  # of a Parquet file once unpacked, unless the next allows more
RATIO = 100  # times its size that a file may unpack to
COLUMNS = 10_000  # columns of a Parquet file, each field of a struct by itself
NESTING = 1_000  # objects and lists within each other

TOO_LARGE = "too_large"
