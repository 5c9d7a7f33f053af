"""What two texts share, word by word."""

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

from kp_batch.operations.explained import Piece

_TOKEN = re.compile(r"\w+|\s+|[^\w\s]+")
_FEWEST = 2  # words of what counts as shared

Pieces = tuple[Piece, ...]


def shared_pieces(left: str, right: str) -> tuple[Pieces, Pieces]:
    """Split two texts into what they share, in the same order, and what each has alone.

    The pieces of a text, put together, are the text. Time grows with the product of the lengths at
    the worst: short texts.
    """
    texts = _TOKEN.findall(left), _TOKEN.findall(right)
    blocks = [
        block
        for block in SequenceMatcher(None, *texts, autojunk=False).get_matching_blocks()
        if sum(token.isalnum() for token in texts[0][block.a : block.a + block.size]) >= _FEWEST
    ]
    return (
        tuple(_pieces(texts[0], [(each.a, each.a + each.size) for each in blocks])),
        tuple(_pieces(texts[1], [(each.b, each.b + each.size) for each in blocks])),
    )


def _pieces(tokens: Sequence[str], shared: Sequence[tuple[int, int]]) -> Iterator[Piece]:
    done = 0
    for first, last in [*shared, (len(tokens), len(tokens))]:
        if done < first:
            yield Piece("".join(tokens[done:first]), shared=False)
        if first < last:
            yield Piece("".join(tokens[first:last]), shared=True)
        done = last
