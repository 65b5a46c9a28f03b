"""One forward pass of a module on PyTorch's meta device: which operators ran, where, on what."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple

from scalemodel.base.errors import ScaleModelError

_NEEDED = 'pip install "scalemodel[torch]" (needed for from_torch)'
_ACTIVATIONS = frozenset(
    (
        *("relu", "gelu", "silu", "sigmoid", "tanh", "leaky_relu", "elu", "hardtanh"),
        *("hardswish", "hardsigmoid", "softplus", "mish"),
    )
)
_NORMS = frozenset(
    (
        *("native_layer_norm", "native_group_norm", "_fused_rms_norm", "native_batch_norm"),
        *("cudnn_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_functional"),
    )
)


#: Scaling, mask and softmax between the two GEMMs of attention.
_MOST_BETWEEN = 4


class Operator(NamedTuple):
    """What one operator does for a sample; rows of `columns` values, `copies` side by side.

    `heads` and `width` are those of attention; `tables` the (rows, width, lookups) of a bag.
    """

    kind: str
    rows: float
    columns: float
    depth: float = 0.0
    copies: float = 1.0
    heads: int = 0
    width: int = 0
    causal: bool = False
    weights: bool = False
    tables: tuple[float, int, float] = (0.0, 0, 0.0)


class Step(NamedTuple):
    """An operator, the module that called it, and parameters that nothing before it used."""

    operator: Operator
    module: str
    parameters: int  #: of the GEMM's or table's own matrix
    others: int  #: biases, scales


class Recording(NamedTuple):
    """What a forward pass did, for one sample."""

    steps: tuple[Step, ...]
    unused: int  #: parameters that no operator used
    containers: tuple[str, ...]  #: modules whose children run one after another


def torch_or_error() -> Any:
    """PyTorch, or one line that says what to install."""
    try:
        return import_module("torch")
    except ImportError:
        raise ScaleModelError(_NEEDED, code="missing_extra") from None


def _last(shape: Sequence[int]) -> tuple[float, float]:
    """Rows and columns of a tensor."""
    columns = float(shape[-1]) if len(shape) else 1.0
    return (float(math.prod(shape)) / columns if columns else 0.0), columns


class _Recorder:
    """Steps in the order they ran, with the parameters that each met first."""

    def __init__(self, torch: Any, samples: int, owners: Mapping[int, int]) -> None:
        self.torch, self.samples = torch, float(samples)
        self.sizes = dict(owners)  # storage of a parameter -> its values
        self.met: set[int] = set()
        self.steps: list[Step] = []
        self.modules: list[str] = [""]

    # ------------------------------------------------------------------------------- parameters
    def storage(self, tensor: Any) -> int | None:
        """Storage of a tensor, where that is a parameter's."""
        if not isinstance(tensor, self.torch.Tensor):
            return None
        key = tensor.untyped_storage()._cdata
        return key if key in self.sizes else None

    def first(self, tensor: Any) -> int:
        """Parameters of a tensor's storage, the first time it is met."""
        key = self.storage(tensor)
        if key is None or key in self.met:
            return 0
        self.met.add(key)
        return self.sizes[key]

    def add(self, operator: Operator, matrix: Any = None, others: Sequence[Any] = ()) -> None:
        own = self.first(matrix)
        self.steps.append(
            Step(operator, self.modules[-1], own, sum(self.first(other) for other in others))
        )

    # -------------------------------------------------------------------------------- operators
    def gemm(self, m: int, n: int, k: int, count: int, left: Any, right: Any) -> None:
        """`count` GEMMs of m × k and k × n; one of the sides may be a weight."""
        weight = next((side for side in (right, left) if self.storage(side) is not None), None)
        if weight is not None:
            # Transposed, where the left side is the weight: its rows are what is put out.
            rows, columns = (m, n) if weight is right else (n, m)
            op = Operator("gemm", rows * count / self.samples, columns, k, weights=True)
        else:
            op = Operator("gemm", m, n, k, count / self.samples)
        self.add(op, weight)

    def convolution(self, args: Sequence[Any], out: Any) -> None:
        source, weight = args[0], args[1]
        transposed, groups = bool(args[6]), int(args[8])
        shape, kernel = list(weight.shape), math.prod(weight.shape[2:])
        positions = math.prod((source if transposed else out).shape[2:])
        samples = source.shape[0] / self.samples
        columns, depth = shape[0] / groups, shape[1] * kernel
        if transposed:
            columns, depth = shape[1] * kernel, shape[0] / groups
        rows = positions * groups * samples
        op = Operator("gemm", rows, columns, depth, weights=self.storage(weight) is not None)
        self.add(op, weight, [args[2]])

    def passing(self, kind: str, out: Any, tensors: Sequence[Any] = (), depth: float = 0) -> None:
        rows, columns = _last(out.shape)
        self.add(Operator(kind, rows / self.samples, columns, depth), others=tensors)

    def lookup(self, weight: Any, indices: Any, bag: bool) -> None:
        rows, width = weight.shape
        looked_up = indices.numel() / self.samples
        table = (float(rows), int(width), looked_up) if bag else (0.0, 0, 0.0)
        op = Operator("table" if bag else "elementwise", looked_up, float(width), 2.0, tables=table)
        self.add(op, weight)

    def ran(self, name: str, args: Sequence[Any], out: Any) -> None:
        """One call of the dispatcher."""
        tensors = [arg for arg in args if isinstance(arg, self.torch.Tensor)]
        if name in ("mm", "addmm"):
            left, right = (args[1], args[2]) if name == "addmm" else (args[0], args[1])
            self.gemm(left.shape[0], right.shape[1], left.shape[1], 1, left, right)
            if name == "addmm":
                self.bias(args[0])
        elif name in ("bmm", "baddbmm"):
            left, right = (args[1], args[2]) if name == "baddbmm" else (args[0], args[1])
            count, m, k = left.shape
            self.gemm(m, right.shape[2], k, count, left, right)
            if name == "baddbmm":
                self.bias(args[0])
        elif name == "convolution":
            self.convolution(args, out)
        elif name in ("embedding", "_embedding_bag", "_embedding_bag_forward_only"):
            self.lookup(args[0], args[1], bag=name != "embedding")
        elif name in _NORMS:
            self.passing("norm", out[0], tensors[1:])
        elif name in _ACTIVATIONS:
            self.passing("activation", out)
        elif name in ("_softmax", "_safe_softmax", "_log_softmax"):
            self.passing("elementwise", out, depth=2.0)
        elif name == "tril":
            self.add(Operator("triangle", 0.0, 0.0))
        elif name in ("add", "mul", "sub", "div") and len(tensors) == 2:
            self.passing("residual", out, tensors)
        else:  # views, reductions: what matters is the parameters that they are the first to meet
            for tensor in tensors:
                self.bias(tensor)

    def bias(self, tensor: Any) -> None:
        """Parameters that are added, not multiplied: they belong to the last operator."""
        key = self.storage(tensor)
        if key is None or key in self.met or not self.steps:
            return
        # A view of a weight is no use of it yet; GEMMs and tables claim theirs themselves.
        if tensor.dim() <= 1:
            last = self.steps[-1]
            self.steps[-1] = last._replace(others=last.others + self.first(tensor))


def _mode(torch: Any, recorder: _Recorder) -> Any:
    """Sees every call at the end of PyTorch's dispatch, where composites have fallen apart."""
    dispatch = import_module("torch.utils._python_dispatch")

    class Dispatched(dispatch.TorchDispatchMode):  # type: ignore[misc, name-defined]
        def __torch_dispatch__(
            self,
            function: Any,
            types: object,
            args: Sequence[Any] = (),
            kwargs: Mapping[str, Any] | None = None,
        ) -> Any:
            out = function(*args, **(kwargs or {}))
            recorder.ran(function.overloadpacket.__name__, args, out)
            return out

    return Dispatched()


def fused(steps: Sequence[Step]) -> list[Step]:
    """Steps with attention as one operator: two GEMMs of activations around a softmax.

    It is causal where a triangle was made for its mask.
    """
    found: list[Step] = []
    causal = False
    for step in steps:
        op = step.operator
        if op.kind == "triangle":
            causal = True
            continue
        between = 0
        while between < len(found) and found[-1 - between].operator.kind in (
            "elementwise",
            "residual",
        ):
            between += 1
        first = found[-1 - between].operator if between < len(found) else None
        if (
            first is not None
            and 0 < between <= _MOST_BETWEEN
            and op.kind == first.kind == "gemm"
            and not (op.weights or first.weights)
            and (op.copies, op.depth, op.rows) == (first.copies, first.columns, first.rows)
            and (first.rows, op.columns) == (first.columns, first.depth)
            and op.copies == int(op.copies)
        ):
            del found[-1 - between :]
            whole = Operator(
                "attention",
                op.rows,
                0.0,
                heads=int(op.copies),
                width=int(op.columns),
                causal=causal,
            )
            found.append(step._replace(operator=whole))
            causal = False
            continue
        found.append(step)
    return found


def _on_meta(torch: Any, value: Any) -> Any:
    return import_module("torch.utils._pytree").tree_map(
        lambda x: x.to("meta") if isinstance(x, torch.Tensor) else x, value
    )


def _enter(recorder: _Recorder, name: str) -> Any:
    return lambda *_: recorder.modules.append(name)


def _leave(recorder: _Recorder) -> Any:
    def leave(*_: object) -> None:  # what a hook returns would take the place of the output
        recorder.modules.pop()

    return leave


def record(module: Any, example_inputs: object) -> Recording:
    """Run a module once without data and without its weights, and write down what it does."""
    torch = torch_or_error()
    if not isinstance(module, torch.nn.Module):
        raise ScaleModelError(f"module={type(module).__name__}: must be a torch.nn.Module")
    inputs = example_inputs if isinstance(example_inputs, (tuple, list, Mapping)) else None
    if inputs is None:
        inputs = (example_inputs,)
    leaves = import_module("torch.utils._pytree").tree_leaves(inputs)
    leading = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.dim()]
    if not leading or not leading[0].shape[0]:
        raise ScaleModelError(
            "example_inputs: must hold a tensor whose first dimension counts samples"
        )
    copies: dict[int, Any] = {}
    state = {}
    for name, tensor in (
        *module.named_parameters(remove_duplicate=False),
        *module.named_buffers(remove_duplicate=False),
    ):
        if id(tensor) not in copies:  # tied weights stay one
            moved = tensor.detach().to("meta")
            if isinstance(tensor, torch.nn.Parameter):
                moved = torch.nn.Parameter(moved, requires_grad=tensor.is_floating_point())
            copies[id(tensor)] = moved
        state[name] = copies[id(tensor)]
    sizes = {
        copies[id(parameter)].untyped_storage()._cdata: parameter.numel()
        for parameter in module.parameters()
    }
    recorder = _Recorder(torch, leading[0].shape[0], sizes)
    names = {id(child): name for name, child in module.named_modules()}
    hooks = []
    for child in module.modules():
        hooks.append(child.register_forward_pre_hook(_enter(recorder, names[id(child)])))
        hooks.append(child.register_forward_hook(_leave(recorder), always_call=True))
    moved_inputs = _on_meta(torch, inputs)
    arguments, named = ((), moved_inputs) if isinstance(inputs, Mapping) else (moved_inputs, {})
    try:
        with torch.enable_grad(), _mode(torch, recorder):
            torch.func.functional_call(module, state, tuple(arguments), dict(named))
    except Exception as error:  # whatever a foreign module raises
        raise ScaleModelError(
            f"module={type(module).__name__}: does not run on the meta device with these "
            f"example_inputs: {type(error).__name__}: {error}",
            code="not_traceable",
        ) from error
    finally:
        for hook in hooks:
            hook.remove()
    unused = sum(size for key, size in recorder.sizes.items() if key not in recorder.met)
    containers = tuple(
        name
        for name, child in module.named_modules()
        if isinstance(child, (torch.nn.Sequential, torch.nn.ModuleList))
    )
    return Recording(tuple(fused(recorder.steps)), unused, containers)
