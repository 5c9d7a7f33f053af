"""Texts to word pieces, no more of them than a model reads."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# Characters for each piece that is wanted: real texts have five or six.
_CHARACTERS = 8


def first_pieces(
    tokenizer: "Tokenizer", texts: Sequence[str], most: int, characters: int = _CHARACTERS
) -> list[list[int]]:
    """The first word pieces of texts, with the special ones, as if all of a text had been cut.

    A text is read up to a space beyond so many characters, and further only where that gave too few
    pieces: tokenisers of BERT split a text at spaces before all else, so that what follows a space
    changes no piece before it.

    Args:
        tokenizer: that of a BERT model, which neither cuts nor pads.
        texts: any.
        most: pieces of a text, at least 1. A longer one keeps its first special piece and loses its
            last one.
        characters: for each piece, to begin with; at least 1.
    """
    found: dict[int, list[int]] = {}
    left, reach = list(range(len(texts))), most * characters
    while left:
        beginnings = [_beginning(texts[row], reach) for row in left]
        for row, beginning, read in zip(
            left, beginnings, tokenizer.encode_batch_fast(beginnings), strict=True
        ):
            # The last piece says that the text has ended.
            if len(read.ids) > most or len(beginning) == len(texts[row]):
                found[row] = read.ids[:most]
        left = [row for row in left if row not in found]
        reach *= 4
    return [found[row] for row in range(len(texts))]


def _beginning(text: str, reach: int) -> str:
    space = text.find(" ", reach)
    return text if space < 0 else text[:space]
