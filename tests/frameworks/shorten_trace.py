"""A trace of PyTorch's profiler, cut to what a fixture needs: ``python shorten_trace.py IN OUT``.

Left are steps, collectives and operators, with times in tenths of microseconds from the first; of
operators in others only multiplications, of arguments only shapes and types of these.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

_PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm")
_ARGUMENTS = ("Input Dims", "Input type")


def shortened(trace: dict[str, Any]) -> dict[str, Any]:
    """The trace with fewer events and arguments."""
    events = [
        event
        for event in trace["traceEvents"]
        if event.get("ph") == "X" and event.get("cat") in ("cpu_op", "user_annotation")
    ]
    first = min(event["ts"] for event in events)
    threads = {tid: number for number, tid in enumerate(sorted({e["tid"] for e in events}))}
    kept: list[dict[str, Any]] = []
    ends: dict[int, float] = {}
    for event in sorted(events, key=lambda event: (event["ts"], -event["dur"])):
        name, operator = event["name"], event["cat"] == "cpu_op"
        inside = event["ts"] < ends.get(event["tid"], float("-inf"))
        if operator and (not name.startswith(("aten::", "c10d::")) or inside):
            if name not in _PRODUCTS:
                continue
        elif operator or ":" in name:
            ends[event["tid"]] = max(ends.get(event["tid"], 0.0), event["ts"] + event["dur"])
        short = {key: event[key] for key in ("ph", "cat", "name")}
        short |= {"pid": 1, "tid": threads[event["tid"]]}
        short |= {"ts": round(event["ts"] - first, 1), "dur": round(event["dur"], 1)}
        if name in _PRODUCTS:
            arguments = event.get("args", {})
            short["args"] = {key: arguments[key] for key in _ARGUMENTS if key in arguments}
        kept.append(short)
    about = trace.get("distributedInfo", {})
    ranks = {key: about[key] for key in ("backend", "rank", "world_size") if key in about}
    return {"schemaVersion": 1, "distributedInfo": ranks, "traceEvents": kept}


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:])
    text = json.dumps(shortened(json.loads(source.read_text())), separators=(",", ":"))
    target.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
