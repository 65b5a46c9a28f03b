"""Layer groups of a recorded module: repeated blocks once, with how often they occur."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import scalemodel._core as _core
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.words import named_arguments, named_fields
from scalemodel.interop.torch_modules.recording import Operator, Recording, Step, record
from scalemodel.layer_groups import ComposedModel, EmbeddingTables, compose
from scalemodel.layer_groups.group import Group

#: Of the engine: layer groups of a model, and layers of a period.
_MOST_GROUPS, _MOST_UNITS = 16, 64

#: Parameters of the GEMMs, of everything else, and the operators of a layer.
Unit = tuple[float, float, tuple[Operator, ...]]


@named_fields
@dataclass(frozen=True, kw_only=True)
class RecordedLayers(Group):
    """Layers as a forward pass of a PyTorch module ran them. Made by `from_torch`.

    Parameters
    ----------
    layers : int
        How often the recorded layers occur.
    tokens : float
        Rows of a sample that most of its GEMMs have.
    units : tuple
        Per layer: parameters of its GEMMs, all others, and the operators in their order.

    Examples
    --------
    >>> gemm = Operator("gemm", 197, 1024, 768, weights=True)
    >>> group = RecordedLayers(layers=2, tokens=197, units=((1024 * 768, 1024, (gemm,)),))
    >>> group.core.parameters, group.core.forward_flop(1)
    (1574912.0, 619708416.0)
    """

    kind: ClassVar[str] = "recorded"
    layers: int = 1
    tokens: float = 1.0
    units: tuple[Unit, ...] = ()

    @property
    def core(self) -> _core.LayerGroup:
        """The engine's group."""
        if not self.tokens > 0:
            raise ScaleModelError(f"{self.name}: tokens={self.tokens}: must be above 0")
        rows = [
            (parameters, others, [self._operator(operator) for operator in operators])
            for parameters, others, operators in self.units
        ]
        return _core.recorded_group(self.name, rows, self.layers, self.tokens)

    def _operator(self, op: Operator) -> tuple[Any, ...]:
        # Rows are per token of the group; of GEMMs without weights the copies are.
        weightless = op.kind == "gemm" and not op.weights
        rows = op.rows if weightless else op.rows / self.tokens
        copies = op.copies / self.tokens if weightless else op.copies
        shape = (rows, op.columns, op.depth, copies)
        return (op.kind, *shape, op.heads, op.width, op.causal, op.weights)


def _units(steps: Sequence[Step]) -> list[Unit]:
    """Layers: each begins with a GEMM that has weights, or with attention."""
    units: list[Unit] = []
    for step in steps:
        op = step.operator
        if _opens(op) and units and any(_opens(each) for each in units[-1][2]):
            units.append((0.0, 0.0, ()))
        if not units:
            units.append((0.0, 0.0, ()))
        parameters, others, operators = units[-1]
        units[-1] = (parameters + step.parameters, others + step.others, (*operators, op))
    return units


def _opens(op: Operator) -> bool:
    return (op.kind == "gemm" and op.weights) or op.kind == "attention"


def _tokens(units: Sequence[Unit]) -> float:
    """The sequence of attention, else the rows with the most arithmetic."""
    work: dict[float, float] = {}
    for _, _, operators in units:
        for op in operators:
            if op.kind == "attention":
                return op.rows
            weight = op.rows * op.columns * max(op.depth, 1e-3) * op.copies
            work[op.rows] = work.get(op.rows, 0.0) + weight
    return max(max(work, key=lambda rows: work[rows]), 1e-9) if work else 1.0


# --------------------------------------------------------------------------------------- repeats
def _child(module: str, container: str) -> str | None:
    """Direct child of a container that a module lies in."""
    inside = module.removeprefix(container + ".") if container else module
    if not inside or (container and inside == module):
        return None
    return inside.partition(".")[0]


@dataclass
class _Stretch:
    """Consecutive steps; `repeat` times over."""

    name: str
    steps: list[Step]
    repeat: int = 1

    def size(self) -> int:
        return len(_units(self.steps))


def _signature(steps: Sequence[Step]) -> tuple[object, ...]:
    return tuple((step.operator, step.parameters, step.others) for step in steps)


def _split(name: str, steps: list[Step], containers: Sequence[str]) -> list[_Stretch]:
    """Stretches of steps, where the outermost containers hold equal children one after another."""
    for at, container in enumerate(containers):
        owned = [_child(step.module, container) for step in steps]
        if sum(child is not None for child in owned) < 2:
            continue
        # Runs of steps of one child.
        runs: list[tuple[str | None, list[Step]]] = []
        for child, step in zip(owned, steps, strict=True):
            if runs and runs[-1][0] == child:
                runs[-1][1].append(step)
            else:
                runs.append((child, [step]))
        found: list[_Stretch] = []
        repeats = False
        for child, run in runs:
            before = found[-1] if found else None
            if (
                child is not None
                and before is not None
                and before.name.startswith(container)
                and _signature(before.steps) == _signature(run)
            ):
                before.repeat += 1
                repeats = True
                continue
            label = f"{container}.{child}" if container and child else child or name
            found.append(_Stretch(label, list(run)))
        if not repeats:
            continue
        below = containers[at + 1 :]
        split: list[_Stretch] = []
        for stretch in found:
            split += [stretch] if stretch.repeat > 1 else _split(stretch.name, stretch.steps, below)
        return split
    return [_Stretch(name, steps)]


def _joined(stretches: Sequence[_Stretch]) -> list[_Stretch]:
    """What lies between repeated blocks is one stretch, as far as it is not too long."""
    found: list[_Stretch] = []
    for stretch in stretches:
        before = found[-1] if found else None
        if (
            before is not None
            and before.repeat == stretch.repeat == 1
            and before.size() + stretch.size() <= _MOST_UNITS
        ):
            before.steps.extend(stretch.steps)
        else:
            found.append(_Stretch(stretch.name, list(stretch.steps), stretch.repeat))
    return found


# ---------------------------------------------------------------------------------------- groups
def _names(stretches: Sequence[_Stretch]) -> list[str]:
    names: list[str] = []
    for stretch in stretches:
        name = stretch.name.replace(".", "_") or "layers"
        same = sum(other == name or other.startswith(f"{name}__") for other in names)
        names.append(f"{name}__{same + 1}" if same else name)
    return names


def _tables(name: str, steps: Sequence[Step]) -> list[EmbeddingTables]:
    """One group per width of the tables of embedding bags."""
    widths: dict[int, list[tuple[float, float]]] = {}
    for step in steps:
        rows, width, pooling = step.operator.tables
        widths.setdefault(width, []).append((rows, pooling))
    return [
        EmbeddingTables(
            name=name if len(widths) == 1 else f"{name}_{width}",
            after=(),
            tables=len(shapes),
            rows=tuple(rows for rows, _ in shapes),
            dim=width,
            pooling=tuple(pooling for _, pooling in shapes),
        )
        for width, shapes in widths.items()
    ]


def _layers_of(recording: Recording) -> list[_Stretch]:
    steps = [step for step in recording.steps if step.operator.kind != "table"]
    if not steps:
        return []
    if recording.unused:  # what no operator showed is held all the same
        steps[0] = steps[0]._replace(others=steps[0].others + recording.unused)
    stretches = _joined(_split("layers", steps, recording.containers))
    if len(stretches) >= _MOST_GROUPS:  # a model that fits is worth more than its repeats
        stretches = _joined([_Stretch(each.name, each.steps * each.repeat) for each in stretches])
    return stretches


@named_arguments
def from_torch(module: Any, example_inputs: Any, *, name: str = "") -> ComposedModel:
    """A model of layer groups from a PyTorch module, without its weights and without data.

    The module runs forward once on PyTorch's meta device. Repeated blocks become one group; every
    GEMM is cut by columns over tensor-parallel ranks. Parameters are those of the module, and
    floating-point operations those that PyTorch's own counter counts, except that causal attention
    is counted without its masked half. Tables of ``torch.nn.EmbeddingBag`` are embedding tables.

    Parameters
    ----------
    module : torch.nn.Module
        On any device, the meta device included.
    example_inputs : tensor, tuple of tensors or mapping of names to tensors
        Arguments of ``forward``; the first dimension of the first tensor counts samples.
    name : str, optional
        Default: the name of the module's class.

    Returns
    -------
    ComposedModel
        For `sm.estimate`, `sm.search` and all that takes such a model, with the sequence 1 in the
        task: rows of a sample are those of the example.

    Raises
    ------
    ScaleModelError : PyTorch is missing, the module does not run without data, or its layers are
        too many different ones.

    Examples
    --------
    >>> from importlib.util import find_spec
    >>> if find_spec("torch"):  # the extra ``torch``
    ...     import torch
    ...     layers = [torch.nn.Linear(64, 64), torch.nn.ReLU()] * 2
    ...     model = from_torch(torch.nn.Sequential(*layers), torch.zeros(8, 64), name="mlp")
    ...     assert model.parameters == 64 * 64 + 64  # the same layer twice
    """
    recording = record(module, example_inputs)
    label = name or type(module).__name__
    if not any(step.operator.kind in ("gemm", "attention", "table") for step in recording.steps):
        raise ScaleModelError(f"module={label}: nothing in it multiplies or looks up")
    bags = [step for step in recording.steps if step.operator.kind == "table"]
    groups: list[Group] = list(_tables("tables", bags))
    stretches = _layers_of(recording)
    for stretch, title in zip(stretches, _names(stretches), strict=True):
        units = _units(stretch.steps)
        if len(units) > _MOST_UNITS:
            raise ScaleModelError(
                f"module={label}: {len(units)} different layers in a row; a group holds "
                f"{_MOST_UNITS}: put equal blocks into a Sequential or ModuleList",
                code="too_many_layers",
            )
        first = not any(isinstance(group, RecordedLayers) for group in groups)
        after = tuple(group.name for group in groups) if first and groups else None
        groups.append(
            RecordedLayers(
                name=title,
                after=after,
                layers=stretch.repeat,
                tokens=_tokens(units),
                units=tuple(units),
            )
        )
    if len(groups) > _MOST_GROUPS:
        raise ScaleModelError(
            f"module={label}: {len(groups)} layer groups; at most {_MOST_GROUPS}: put equal blocks "
            "into a Sequential or ModuleList, or import parts of it",
            code="too_many_layers",
        )
    return compose(label, groups=groups)
