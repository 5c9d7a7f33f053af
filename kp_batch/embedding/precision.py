"""The precision of a model's computation: float32, or bf16, which rounds the factors of products.

On a processor, bf16 is torch's autocast: weights and inputs of a product are rounded to 8 bits;
sums, and values between layers, stay float32. Converting the whole module would round these too,
and was no faster there. On a GPU, moving these values takes as long as the products, and converting
the module was a quarter faster. So there the module is converted.

On a GPU, too, float32 is real float32: TF32, which rounds the factors of products to 11 bits, is
off.
"""

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from kp_batch.embedding.process_settings import ProcessSetting

if TYPE_CHECKING:
    import torch

Precision = Literal["float32", "bf16"]

_NATIVE = ("avx512_bf16", "amx_bf16", "bf16")  # processors' names of bf16


def suffix(precision: Precision) -> str:
    """Return the part of an encoder_id for the precision."""
    return "" if precision == "float32" else f"-{precision}"


@contextmanager
def computing(precision: Precision, device: "torch.device") -> Generator[None]:
    """Let models compute in a precision, without gradients, within the context.

    Their weights have the type `weights_type`.
    """
    import torch

    is_mixed = precision == "bf16" and device.type == "cpu"
    with (
        torch.inference_mode(),
        torch.autocast(device.type, torch.bfloat16, enabled=is_mixed),
        _WITHOUT_TF32.kept(),
    ):
        yield


def weights_type(precision: Precision, device: "torch.device") -> "torch.dtype":
    """Return the type of a model's weights on a device."""
    import torch

    return torch.bfloat16 if precision == "bf16" and device.type != "cpu" else torch.float32


def _read_products() -> str:
    import torch

    return torch.get_float32_matmul_precision()


def _set_products(precision: str) -> None:
    import torch

    torch.set_float32_matmul_precision(precision)


_WITHOUT_TF32 = ProcessSetting(_read_products, _set_products, "highest")


def has_gpu() -> bool:
    """Whether this process has a GPU for its models."""
    import torch

    return torch.cuda.is_available()


def is_native(precision: Precision) -> bool:
    """Whether the GPU, or else the processor, computes in it; otherwise float32 is faster."""
    if precision == "float32":
        return True
    import torch

    if has_gpu():
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return any(torch.cpu.get_capabilities().get(name) for name in _NATIVE)
