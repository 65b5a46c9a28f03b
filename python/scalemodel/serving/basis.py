"""What each part of an answer about serving rests on: `coverage`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from scalemodel import catalog, resolve
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.units import value_of
from scalemodel.base.words import named_arguments
from scalemodel.resolve import Model
from scalemodel.resolve.attention import AttentionKernels
from scalemodel.resolve.engine_kernels import dispatch_kernel, expert_kernel, received_experts
from scalemodel.resolve.engines import (
    DEFAULT_ENGINE,
    WEIGHT_FORMATS,
    engine_for,
    engine_table,
)
from scalemodel.resolve.kernel_tables import Kernel
from scalemodel.resolve.kernels import gemm_kernel
from scalemodel.resolve.serving_kernels import KernelChoice, attention_kind, serving_kernels

if TYPE_CHECKING:
    import pandas as pd

MEASURED, BORROWED, SHEET, ASSUMED = "measured", "borrowed", "data sheet", "assumed"
#: Constants of an engine on the CPU, by the part of the answer that they make.
_HOST = {
    "step_host": "CPU overhead of a step",
    "sequence_host": "CPU overhead of a sequence",
    "request_host": "CPU overhead of a request",
    "collective_wait": "waits of ranks for each other",
    "kernel_efficiency": "kernels in a step against kernels in a benchmark",
}


class Part(NamedTuple):
    """One part of an answer: what it rests on, and whose measurements these are."""

    part: str
    basis: str
    accelerator: str
    detail: str


def _of_kernel(part: str, kernel: Kernel[Any], accelerator: str, same: bool) -> Part:
    basis = MEASURED if kernel.accelerator == accelerator and same else BORROWED
    return Part(part, basis, kernel.accelerator, kernel.name)


def _linear(accelerator: str, form: str, products: str) -> Part:
    found = gemm_kernel(accelerator, form, products)
    if found is None or (products == "library" and not found.constants.launch_s):
        return Part("linear layers", SHEET, accelerator, form)
    if found.note:
        return Part("linear layers", BORROWED, found.note.rsplit(" ", 1)[-1], found.note)
    return Part("linear layers", MEASURED, accelerator, form)


def _attention(
    accelerator: str, asked: Mapping[str, Any], group: int, latent: bool
) -> Iterator[Part]:
    known = AttentionKernels(accelerator)
    for phase in ("prefill", "decode"):
        stand_in = asked.get("latent_prompts") if latent and phase == "prefill" else None
        wanted = stand_in or asked
        entry = known.of_engine(
            f"mla_{phase}" if latent else phase,
            engine=str(wanted.get("engine", "")),
            kernel=str(wanted.get("kernel", "")),
            version=str(wanted.get("version", "")),
            group=group,
        )
        own = entry.accelerator == accelerator and entry.engine == asked.get("engine")
        basis = MEASURED if own else BORROWED
        detail = f"{entry.engine} {entry.kernel}".strip()
        yield Part(f"{phase} attention", basis, entry.accelerator, detail)


def _experts(accelerator: str, form: str, choice: KernelChoice) -> Iterator[Part]:
    stored = choice.experts.get("formats", {}).get(form, form)
    widened = "int4_wo" if stored == "int8_wo" else stored
    chosen = expert_kernel(accelerator, widened, choice.experts)
    same = (chosen.label("dtype"), chosen.label("engine")) == (
        widened,
        choice.experts.get("engine", ""),
    )
    yield _of_kernel("experts", chosen, accelerator, same)
    want = choice.dispatch
    if not want:
        yield Part("token dispatch", SHEET, accelerator, "collectives of all tokens")
        return
    received = received_experts(accelerator, stored, want)
    if received is not None:
        same = received.label("dtype") == stored
        yield _of_kernel("experts of sent tokens", received, accelerator, same)
    for kind, what in (("modes", "token dispatch"), ("many", "token dispatch, many tokens")):
        if kind not in want:
            continue
        found = dispatch_kernel(accelerator, want[kind], "dispatch")
        yield _of_kernel(f"{what}, inside a node", found.inside, accelerator, same=True)
        if found.record.network_bytes_per_s > 0:
            yield _of_kernel(f"{what}, between nodes", found.between, accelerator, same=True)


def _host(engine: str) -> Iterator[Part]:
    table = engine_table(engine).get("engine", {})
    for key, part in _HOST.items():
        entry = table.get(key)
        if isinstance(entry, Mapping):
            source = str(entry.get("source", ""))
            basis = ASSUMED if source.startswith("assumed") else MEASURED
            yield Part(part, basis, "", source)


def _elementwise(accelerator: str) -> Part:
    table = catalog.load("accelerators", accelerator)
    lender = accelerator if "elementwise" in table else str(table.get("kernels", accelerator))
    basis = BORROWED if lender != accelerator else MEASURED
    if f"{lender}_elementwise" not in catalog.names("kernels"):
        basis = SHEET
    return Part("norms, activations, sampling", basis, lender, "")


@named_arguments
def coverage(
    model: str | Path | Mapping[str, Any] | Model,
    accelerator: str,
    engine: str = DEFAULT_ENGINE,
    *,
    precision: str = "bf16",
    kv_precision: str = "bf16",
) -> pd.DataFrame:
    """What each part of an answer about serving rests on.

    Parameters
    ----------
    model
        As for `serve`.
    accelerator : str
        Name or alias in the catalogue.
    engine : str
        As for `serve`.
    precision, kv_precision : str
        As for `Inference`.

    Returns
    -------
    DataFrame, one row per part
        ``part``; ``basis``: ``measured`` on this accelerator with this engine, ``borrowed`` from
        another accelerator, engine or format, ``data sheet`` (rates of a vendor or a roofline), or
        ``assumed`` (constants of an engine without a published run); ``accelerator``, whose
        measurements they are; ``detail``, the kernel or the source.

    Raises
    ------
    ScaleModelError
        An unknown name, or a format that the accelerator has no products of.

    Examples
    --------
    >>> import scalemodel as sm
    >>> table = sm.coverage("deepseek_v3", "H800", "SGLang", precision="fp8")
    >>> basis = dict(zip(table.part, table.basis))
    >>> basis["experts of sent tokens"], basis["decode attention"], basis["experts"]
    ('measured', 'borrowed', 'borrowed')
    """
    import pandas as pd

    chosen, name = resolve.model(model), engine_for(engine)
    if not isinstance(accelerator, str):
        raise ScaleModelError(f"accelerator={accelerator!r}: must be a name of the catalogue")
    where, shape = catalog.find("accelerators", accelerator), chosen.shape
    group, latent = attention_kind(shape)
    # What cannot run is refused as `serve` refuses it.
    serving_kernels(where, name, precision, kv_precision, group, latent)
    form, choice = WEIGHT_FORMATS[precision], KernelChoice.of_engine(name)
    peaks = catalog.load("accelerators", where).get("compute", {})
    if form.math in ("fp8", "fp4") and form.math not in peaks:
        form = WEIGHT_FORMATS[form.kept]
    parts = [
        _linear(where, form.linear, choice.products),
        *_attention(where, choice.attention, group, latent),
        *(_experts(where, form.experts, choice) if shape.experts else ()),
        _elementwise(where),
        *_host(name),
    ]
    slow = catalog.load("accelerators", where).get("host", {}).get("serving_slowdown")
    if slow is not None:
        parts.append(Part("CPUs of its hosts", MEASURED, where, f"{value_of(slow)} times slower"))
    return pd.DataFrame(parts, columns=list(Part._fields))
