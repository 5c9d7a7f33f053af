"""The first word pieces of texts, as if whole texts had been tokenised.

BERT's tokenisers take a text apart by its characters, whatever stands beside them: some are
dropped, some are gaps between words, some are words by themselves, and the others, here called
letters, make a word with their neighbours. So a text can be cut before a gap, or before a word by
itself. And where none comes, as in base64, or in a language without spaces: a word that is too long
is one unknown piece, so that its other letters change nothing.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from kp_batch.stopping import look

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Kind = Literal["dropped", "gap", "word", "letter"]

# Characters to read for each piece that is wanted: real texts have five or six.
_CHARACTERS = 8
# Characters to tokenise at once: one that is a piece by itself, as in Chinese, takes 400 bytes.
_AT_ONCE = 1 << 18
# A word of more letters is unknown: `max_input_chars_per_word` of the published tokenizers.
_LETTERS = 100


def first_pieces(
    tokenizer: "Tokenizer", texts: Sequence[str], most: int, characters: int = _CHARACTERS
) -> list[list[int]]:
    """The first word pieces of texts, with the special ones, as if whole texts had been tokenised.

    A beginning of so many characters is tokenised, and a longer one only if that gave too few
    pieces.

    Args:
        tokenizer: that of a BERT model, without truncation and padding.
        texts: any.
        most: pieces of a text, at least 1. A longer text keeps its first special piece and loses
            its last one.
        characters: to read for each piece at first; at least 1.
    """
    pieces: dict[int, list[int]] = {}
    kinds = _Kinds(tokenizer)
    unread, reach, shorten = list(range(len(texts))), most * characters, False
    while unread:
        at_once = max(_AT_ONCE // reach, 1)
        for rows in (unread[first : first + at_once] for first in range(0, len(unread), at_once)):
            look()
            read = [_beginning(texts[row], reach, kinds, shorten=shorten) for row in rows]
            encodings = tokenizer.encode_batch_fast([beginning for beginning, _ in read])
            for row, (_, is_whole), encoding in zip(rows, read, encodings, strict=True):
                # The last piece is the special one that ends a text.
                if is_whole or len(encoding.ids) > most:
                    pieces[row] = encoding.ids[:most]
        unread = [row for row in unread if row not in pieces]
        reach, shorten = reach * 4, True
    return [pieces[row] for row in range(len(texts))]


class _Kinds(dict[str, Kind]):
    """The kinds of characters, each asked of the tokenizer once."""

    def __init__(self, tokenizer: "Tokenizer") -> None:
        super().__init__()
        self._tokenizer = tokenizer

    def __missing__(self, character: str) -> Kind:
        cleaned = self._tokenizer.normalizer.normalize_str(f"a{character}a")
        match [word for word, _ in self._tokenizer.pre_tokenizer.pre_tokenize_str(cleaned)]:
            case ["aa"]:
                self[character] = "dropped"
            case [_]:
                self[character] = "letter"
            case ["a", "a"]:
                self[character] = "gap"
            case _:
                self[character] = "word"
        return self[character]


def _beginning(text: str, reach: int, kinds: _Kinds, *, shorten: bool) -> tuple[str, bool]:
    """A text of the first pieces of another one, and whether it has all of them."""
    if len(text) <= 2 * reach:
        return text, True
    space = -1 if shorten else text.find(" ", reach, 2 * reach)
    return _shortened(text, reach, kinds) if space < 0 else (text[:space], False)


def _shortened(text: str, reach: int, kinds: _Kinds) -> tuple[str, bool]:
    """As `_beginning`: up to a cut beyond so many characters, without what changes no piece."""
    kept: list[str] = []
    last: Kind = "gap"
    letters = 0  # of the word
    for character in text:
        kind = kinds[character]
        if kind in ("gap", "word"):
            letters = 0
            # A special piece, such as [SEP], is not cut.
            if len(kept) >= reach and (character, last) != ("]", "letter"):
                return "".join(kept), False
        letters += kind == "letter"
        repeats = kind in ("gap", "dropped") and last in (kind, "gap")
        if not repeats and letters <= _LETTERS + 1:
            kept.append(character)
            last = kind
    return "".join(kept), True
