"""The first word pieces of texts, as if whole texts had been tokenised.

BERT's tokenisers split a text by single characters. Some are dropped, some are gaps between words,
some are words by themselves. The others, here called letters, form a word with their neighbours. So
a text can be cut before a gap, or before a character that is a word. Some texts have neither:
base64, or a language without spaces. There, a word that is too long is one unknown piece, so its
further letters change nothing.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from kp_batch.stopping import raise_if_unwanted

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Kind = Literal["dropped", "gap", "word", "letter"]

# Characters to read for each wanted piece: real texts have five or six.
_CHARACTERS = 8
# Characters to tokenise at once: each takes 400 bytes if it is a piece by itself, as in Chinese.
_AT_ONCE = 1 << 18
# A longer word is unknown: `max_input_chars_per_word` of the published tokenizers.
_LETTERS = 100


def first_pieces(
    tokenizer: "Tokenizer", texts: Sequence[str], most: int, characters: int = _CHARACTERS
) -> list[list[int]]:
    """Return the first word pieces of texts, with the special ones.

    They equal those of whole texts. A beginning of so many characters is tokenised first, and a
    longer one only if that gives too few pieces.

    Args:
        tokenizer: tokenizer of a BERT model, without truncation and padding.
        texts: any.
        most: pieces of a text, at least 1. A longer text keeps its first special piece and loses
            its last one.
        characters: characters to read for each piece at first; at least 1.
    """
    pieces: dict[int, list[int]] = {}
    kinds = _Kinds(tokenizer)
    unread, reach, shorten = list(range(len(texts))), most * characters, False
    while unread:
        at_once = max(_AT_ONCE // reach, 1)
        for rows in (unread[first : first + at_once] for first in range(0, len(unread), at_once)):
            raise_if_unwanted()
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
    """The kinds of characters; the tokenizer decides each once."""

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
    """Return the beginning of a text with its first pieces, and whether these are all."""
    if len(text) <= 2 * reach:
        return text, True
    space = -1 if shorten else text.find(" ", reach, 2 * reach)
    return _shortened(text, reach, kinds) if space < 0 else (text[:space], False)


def _shortened(text: str, reach: int, kinds: _Kinds) -> tuple[str, bool]:
    """Cut a text after so many characters, without characters that change no piece."""
    kept: list[str] = []
    last: Kind = "gap"
    letters = 0  # in the current word
    for character in text:
        kind = kinds[character]
        if kind in ("gap", "word"):
            letters = 0
            # A special piece, for example [SEP], is not cut.
            if len(kept) >= reach and (character, last) != ("]", "letter"):
                return "".join(kept), False
        letters += kind == "letter"
        repeats = kind in ("gap", "dropped") and last in (kind, "gap")
        if not repeats and letters <= _LETTERS + 1:
            kept.append(character)
            last = kind
    return "".join(kept), True
