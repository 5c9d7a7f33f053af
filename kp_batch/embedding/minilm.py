"""The live engine's model, all-MiniLM-L6-v2: a text's first word pieces in, a vector out."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from threading import Lock
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from kp_batch.embedding.encoders import ENCODER_VERSION, checked
from kp_batch.embedding.model_files import MINILM_DIGESTS, find_minilm
from kp_batch.embedding.precision import Precision, computing, suffix
from kp_batch.vectors import Float32s

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import BertModel

# The model's position limit. The live engine cuts the finished sequence here, so a longer text
# keeps [CLS] and loses [SEP]; the usual truncation keeps both.
WINDOW = 512

Window = npt.NDArray[np.uint16]  # the first pieces of a text: all that the model reads of it

# Pieces of a batch. On a CPU, so many stay in its cache: larger and smaller batches took a tenth
# longer. On a GPU, what a layer holds at once of a piece takes some 20 kB.
_PIECES_ON_CPU: Mapping[Precision, int] = MappingProxyType(
    {"float32": 4 * WINDOW, "bf16": 8 * WINDOW}
)
_BYTES_OF_PIECE = 64 << 10

# Characters for each piece that is wanted: real texts have five or six.
_CHARACTERS = 8


class MiniLM:
    """all-MiniLM-L6-v2 as the live engine runs it, with a window of 512 word pieces.

    Args:
        precision: see `precision`.
    """

    dimensions = 384
    chunk_size = 512

    def __init__(self, precision: Precision = "float32") -> None:
        self.precision: Precision = precision
        weights = MINILM_DIGESTS["model.safetensors"][:8]
        self.encoder_id = f"minilm-{weights}-{WINDOW}{suffix(precision)}-v{ENCODER_VERSION}"
        self._turn = Lock()

    def encode(self, texts: Sequence[str]) -> Float32s:
        """See `Encoder`."""
        return self.encode_windows(self.windows(texts))

    def windows(self, texts: Sequence[str]) -> list[Window]:
        """The window of each text: its word pieces with the special ones, cut after 512."""
        if not texts:
            return []
        pieces = _first_pieces(self.tokenizer, texts, WINDOW)
        return [np.array(piece, dtype=np.uint16) for piece in pieces]

    def cuts(self, text: str) -> bool:
        """Whether it reads a text's beginning alone, since there is more than a window of it."""
        if len(text) < WINDOW - 2:  # a piece has one character at the least
            return False
        [window] = self.windows([text])
        # Only a text that is read to its end has the special piece that ends it.
        return len(window) == WINDOW and window[-1] != self.tokenizer.token_to_id("[SEP]")

    def encode_windows(self, windows: Sequence[Window]) -> Float32s:
        """Pool the window's pieces by their mean, then normalise; see `Encoder`.

        One thread at a time: the model takes all cores, or the GPU, by itself.
        """
        means = np.zeros((len(windows), self.dimensions), dtype=np.float32)
        if windows:
            with self._turn, computing(self.precision, self._model.device):
                for rows in _batches([len(each) for each in windows], self._pieces_at_once):
                    means[rows] = self._means([windows[row] for row in rows])
        return checked(means)

    def _means(self, windows: Sequence[Window]) -> Float32s:
        """The mean over each window's pieces of what the model makes of them."""
        import torch

        device, lengths = self._model.device, [len(window) for window in windows]
        pieces = torch.from_numpy(np.concatenate(windows).astype(np.int64)).to(device)
        places = torch.cat([torch.arange(length) for length in lengths]).to(device)
        counts = torch.tensor(lengths, device=device)
        made = self._model(
            input_ids=pieces[None], position_ids=places[None], lengths=lengths
        ).last_hidden_state[0]
        window_of = torch.arange(len(windows), device=device).repeat_interleave(counts)
        sums = torch.zeros((len(windows), self.dimensions), device=device)
        return (sums.index_add_(0, window_of, made.float()) / counts[:, None]).cpu().numpy()

    @cached_property
    def tokenizer(self) -> "Tokenizer":
        """The model's own, which neither cuts nor pads."""
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(find_minilm() / "tokenizer.json"))
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return tokenizer

    @cached_property
    def _model(self) -> "BertModel":
        import torch
        from transformers import BertModel
        from transformers.utils import logging

        from kp_batch.embedding.attention import PACKED

        logging.set_verbosity_error()  # it tells of the weights that are not needed here
        logging.disable_progress_bar()
        model = BertModel.from_pretrained(
            find_minilm(), add_pooling_layer=False, attn_implementation=PACKED, dtype=torch.float32
        )
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        return cast("BertModel", cast("Any", model).to(device).eval())

    @cached_property
    def _pieces_at_once(self) -> int:
        import torch

        if self._model.device.type == "cpu":
            return _PIECES_ON_CPU[self.precision]
        free, _ = torch.cuda.mem_get_info(self._model.device)
        return max(free // _BYTES_OF_PIECE, WINDOW)


def _batches(lengths: Sequence[int], most: int) -> Iterator[list[int]]:
    """Rows in batches, those of equal length side by side, of at most so many pieces."""
    batch: list[int] = []
    held = 0
    for row in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and held + lengths[row] > most:
            yield batch
            batch, held = [], 0
        batch.append(row)
        held += lengths[row]
    if batch:
        yield batch


def _first_pieces(
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
