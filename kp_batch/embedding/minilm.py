"""The live engine's model, all-MiniLM-L6-v2: a text's first word pieces in, a vector out."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from threading import Lock
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from kp_batch.embedding.encoder import ENCODER_VERSION, checked
from kp_batch.embedding.first_pieces import first_pieces
from kp_batch.embedding.heap import release_heap
from kp_batch.embedding.model_files import MINILM_DIGESTS, find_minilm
from kp_batch.embedding.precision import Precision, computing, has_gpu, suffix, weights_type
from kp_batch.embedding.process_settings import quiet
from kp_batch.stopping import raise_if_unwanted, waited_for
from kp_batch.vectors import Float32s

if TYPE_CHECKING:
    import torch
    from tokenizers import Tokenizer
    from torch import Tensor
    from transformers import BertModel

# The model's position limit. The live engine cuts the finished sequence here, so a longer text
# keeps [CLS] and loses [SEP]; the usual truncation keeps both.
WINDOW = 512

Window = npt.NDArray[np.uint16]  # the first pieces of a text, which are all that the model reads

# Pieces of a batch. On a CPU, this many stay in its cache: larger and smaller batches took a tenth
# longer. They also fill a GPU: four times as many were 2% faster in bf16 and no faster in float32.
# On a GPU a piece took 17 kB of memory.
_PIECES_ON_CPU: Mapping[Precision, int] = MappingProxyType(
    {"float32": 4 * WINDOW, "bf16": 8 * WINDOW}
)
_PIECES_ON_GPU = 512 * WINDOW
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
        """Return the window of each text: its word pieces with the special ones, the first 512."""
        if not texts:
            return []
        pieces = first_pieces(self.tokenizer, texts, WINDOW)
        return [np.array(piece, dtype=np.uint16) for piece in pieces]

    def cuts(self, text: str) -> bool:
        """Whether a text is longer than a window, so only its beginning is read."""
        if len(text) < WINDOW - 2:  # a piece has at least one character
            return False
        [window] = self.windows([text])
        # Only a text that is read to its end has the special piece that ends it.
        return len(window) == WINDOW and window[-1] != self.tokenizer.token_to_id("[SEP]")

    def encode_windows(self, windows: Sequence[Window]) -> Float32s:
        """Pool the window's pieces by their mean, then normalise; see `Encoder`.

        Only one thread at a time computes: the model itself uses all cores, or the GPU. A GPU
        computes from a queue, and the lock is released as soon as the batches are in it. So call it
        from several threads to keep a GPU busy.
        """
        means = np.zeros((len(windows), self.dimensions), dtype=np.float32)
        for rows, batch in self._computed(windows):
            means[rows] = batch.numpy()
        return checked(means)

    def _computed(self, windows: Sequence[Window]) -> list[tuple[list[int], "Tensor"]]:
        """Return the rows of each batch, and the means of their windows, once computed."""
        if not windows:
            return []
        means: list[tuple[list[int], Tensor]] = []
        with waited_for(self._lock), computing(self.precision, self._model.device):
            batches = [*batches_by_length([*map(len, windows)], self._pieces_at_once)]
            for rows in batches:
                raise_if_unwanted()
                means.append((rows, self._means([windows[row] for row in rows])))
                if len(batches) > 1 and self._model.device.type == "cpu":
                    release_heap()
            done = _queue_end(self._model.device)
        done()
        return means

    def _means(self, windows: Sequence[Window]) -> "Tensor":
        """Return the mean of the model's last hidden states over each window's pieces.

        Returns:
            float32, shape (windows, dimensions), in the processor's memory; a GPU fills it later.
        """
        import torch

        from kp_batch.embedding.attention import Lengths

        device, counts = self._model.device, torch.tensor([len(window) for window in windows])
        ends = counts.cumsum(0)
        pieces = torch.from_numpy(np.concatenate(windows).astype(np.int64))
        positions = torch.arange(len(pieces)) - (ends - counts).repeat_interleave(counts)
        states = self._model(
            input_ids=_moved(pieces, device)[None],
            position_ids=_moved(positions, device)[None],
            lengths=Lengths(counts.tolist(), _moved(ends, device)),
        ).last_hidden_state[0]
        if device.type == "cpu":
            window_of = torch.arange(len(windows)).repeat_interleave(counts)
            sums = torch.zeros((len(windows), self.dimensions))
            return sums.index_add_(0, window_of, states.float()) / counts[:, None]
        # In a fixed order; a GPU's additions at an index have none.
        means = torch.nn.functional.embedding_bag(
            torch.arange(len(pieces), device=device),
            states.float(),
            _moved(ends - counts, device),
            mode="mean",
        )
        return torch.empty(means.shape, pin_memory=True).copy_(means, non_blocking=True)

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

        from kp_batch.embedding.attention import PACKED

        device = torch.device("cuda" if has_gpu() else "cpu")
        with quiet():
            model = BertModel.from_pretrained(
                find_minilm(),
                add_pooling_layer=False,
                attn_implementation=PACKED,
                dtype=weights_type(self.precision, device),
            )
        return cast("BertModel", cast("Any", model).to(device).eval())

    @cached_property
    def _pieces_at_once(self) -> int:
        import torch

        if self._model.device.type == "cpu":
            return _PIECES_ON_CPU[self.precision]
        free, _ = torch.cuda.mem_get_info(self._model.device)
        return max(min(free // _BYTES_OF_PIECE, _PIECES_ON_GPU), WINDOW)


def _moved(tensor: "Tensor", device: "torch.device") -> "Tensor":
    """Move a tensor to the device; a GPU gets it in its turn, without a wait for earlier work."""
    if device.type == "cpu":
        return tensor
    return tensor.pin_memory().to(device, non_blocking=True)


def _queue_end(device: "torch.device") -> Callable[[], None]:
    """Return a function that waits until a GPU has done what is in its queue now."""
    if device.type == "cpu":
        return lambda: None
    import torch

    event = torch.cuda.Event()
    event.record()
    return event.synchronize


def batches_by_length(lengths: Sequence[int], most: int) -> Iterator[list[int]]:
    """Yield the rows of batches, ordered by length, of at most `most` pieces."""
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
