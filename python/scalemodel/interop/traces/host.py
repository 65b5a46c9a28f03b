"""Traces of CPU activities: what ran on a machine whose processor computes itself."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

#: What the backends of torch.distributed that run on a processor call their operations.
_COMMUNICATION: Final = re.compile(r"^(gloo|mpi|ucc|xccl):")
# First match wins; names of operators of ATen and of others that follow them.
_CLASSES: Final = (
    ("attention", r"attention|flash|sdpa"),
    ("gemm", r"::_?(addmm|mm|bmm|baddbmm|matmul|linear|einsum|conv\w*)\b|gemm"),
    ("memory", r"::(_?copy_?|_to_copy|to|clone|contiguous)$"),
)
#: Operators by name: nodes of the backward graph and calls into a backend contain what runs.
_OPERATOR: Final = re.compile(r"^(?!autograd::|torch::autograd::|c10d|record_param)\w+::\w+")


def kind_of_operator(name: str) -> str:
    """What an operator of a processor does, by its name.

    Examples
    --------
    >>> kind_of_operator("aten::addmm"), kind_of_operator("gloo:all_reduce")
    ('gemm', 'communication')
    >>> kind_of_operator("aten::scaled_dot_product_attention"), kind_of_operator("aten::add_")
    ('attention', 'elementwise')
    """
    if _COMMUNICATION.search(name):
        return "communication"
    return next((kind for kind, form in _CLASSES if re.search(form, name)), "elementwise")


def operators(events: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The events of a trace that stand for work of a processor, none inside another of its thread.

    An operator calls others: the outermost one counts, which holds their time. Where a backend
    communicates on a thread of its own, so does what it calls there.

    Examples
    --------
    >>> def event(name, ts, dur): return {"cat": "cpu_op", "name": name, "ts": ts, "dur": dur,
    ...                                   "pid": 1, "tid": 1}
    >>> calls = [event("aten::linear", 0, 9), event("aten::addmm", 2, 5), event("aten::add", 9, 1)]
    >>> [each["name"] for each in operators(calls)]
    ['aten::linear', 'aten::add']
    """
    threads: dict[tuple[object, object], list[Mapping[str, Any]]] = {}
    for event in events:
        name = str(event.get("name", ""))
        ran = event.get("cat") == "cpu_op" and _OPERATOR.match(name)
        if ran or _COMMUNICATION.match(name):
            threads.setdefault((event.get("pid"), event.get("tid")), []).append(event)
    found: list[Mapping[str, Any]] = []
    for own in threads.values():
        ended = float("-inf")
        for event in sorted(own, key=lambda event: (event["ts"], -event["dur"])):
            if event["ts"] >= ended:
                found.append(event)
                ended = event["ts"] + event["dur"]
    return sorted(found, key=lambda event: float(event["ts"]))
