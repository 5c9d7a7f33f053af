"""The live engine's model, all-MiniLM-L6-v2: a text's first word pieces in, a vector out."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from threading import Lock
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from kp_batch.embedding.encoders import ENCODER_VERSION, checked
from kp_batch.embedding.first_pieces import first_pieces
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
# longer. On a GPU, a layer takes some 20 kB for each piece.
_PIECES_ON_CPU: Mapping[Precision, int] = MappingProxyType(
    {"float32": 4 * WINDOW, "bf16": 8 * WINDOW}
)
_BYTES_OF_PIECE = 64 << 10


class MiniLM:
    """all-MiniLM-L6-v2 as the live engine runs it, with a window of 512 word pieces."""

    dimensions = 384
    chunk_size = 512

    def __init__(self, precision: Precision = "float32") -> None:
        self.precision: Precision = precision
        weights = MINILM_DIGESTS["model.safetensors"][:8]
        self.encoder_id = f"minilm-{weights}-{WINDOW}{suffix(precision)}-v{ENCODER_VERSION}"
        self._lock = Lock()

    def encode(self, texts: Sequence[str]) -> Float32s:
        """See `Encoder`."""
        return self.encode_windows(self.windows(texts))

    def windows(self, texts: Sequence[str]) -> list[Window]:
        """The window of each text: its word pieces with the special ones, the first 512."""
        if not texts:
            return []
        pieces = first_pieces(self.tokenizer, texts, WINDOW)
        return [np.array(piece, dtype=np.uint16) for piece in pieces]

    def cuts(self, text: str) -> bool:
        """Whether a text is longer than a window, so that only its beginning is read."""
        if len(text) < WINDOW - 2:  # a piece has at least one character
            return False
        [window] = self.windows([text])
        # Only a text that is read to its end has the special piece that ends it.
        return len(window) == WINDOW and window[-1] != self.tokenizer.token_to_id("[SEP]")

    def encode_windows(self, windows: Sequence[Window]) -> Float32s:
        """Pool the window's pieces by their mean, then normalise; see `Encoder`.

        One thread at a time: the model uses all cores, or the GPU, by itself.
        """
        means = np.zeros((len(windows), self.dimensions), dtype=np.float32)
        if windows:
            with self._lock, computing(self.precision, self._model.device):
                for rows in _batches([len(window) for window in windows], self._pieces_at_once):
                    means[rows] = self._means([windows[row] for row in rows])
        return checked(means)

    def _means(self, windows: Sequence[Window]) -> Float32s:
        """The mean of the model's last hidden states over each window's pieces."""
        import torch

        device, lengths = self._model.device, [len(window) for window in windows]
        pieces = torch.from_numpy(np.concatenate(windows).astype(np.int64)).to(device)
        positions = torch.cat([torch.arange(length) for length in lengths]).to(device)
        counts = torch.tensor(lengths, device=device)
        states = self._model(
            input_ids=pieces[None], position_ids=positions[None], lengths=lengths
        ).last_hidden_state[0]
        window_of = torch.arange(len(windows), device=device).repeat_interleave(counts)
        sums = torch.zeros((len(windows), self.dimensions), device=device)
        return (sums.index_add_(0, window_of, states.float()) / counts[:, None]).cpu().numpy()

    @cached_property
    def tokenizer(self) -> "Tokenizer":
        """The model's tokenizer, without truncation and padding."""
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

        logging.set_verbosity_error()  # it warns of weights that are not needed
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
    """Rows in batches, ordered by length, of at most so many pieces."""
    batch: list[int] = []
    size = 0
    for row in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and size + lengths[row] > most:
            yield batch
            batch = []
            size = 0
        batch.append(row)
        size += lengths[row]
    if batch:
        yield batch
