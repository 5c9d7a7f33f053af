"""The precision of a model's computation: float32, or bf16, which rounds the factors of products.

bf16 is torch's autocast: weights and inputs of a product are rounded to 8 bits; sums, and values
between layers, stay float32. A module that was converted as a whole rounds these, too, which made
the error of its cosines half as large again, and was no faster.
"""

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import torch

Precision = Literal["float32", "bf16"]

_NATIVE = ("avx512_bf16", "amx_bf16", "bf16")  # processors' names of bf16


def suffix(precision: Precision) -> str:
    """The part of an encoder_id for the precision."""
    return "" if precision == "float32" else f"-{precision}"


@contextmanager
def computing(precision: Precision, device: "torch.device") -> Generator[None]:
    """Within the context, models compute in a precision, without gradients."""
    import torch

    is_bf16 = precision == "bf16"
    with torch.inference_mode(), torch.autocast(device.type, torch.bfloat16, enabled=is_bf16):
        yield


def is_native(precision: Precision) -> bool:
    """Whether the GPU, or else the processor, computes in it; otherwise float32 is faster."""
    if precision == "float32":
        return True
    import torch

    if torch.cuda.is_available():
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return any(torch.cpu.get_capabilities().get(name) for name in _NATIVE)
