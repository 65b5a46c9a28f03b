"""How hosts keep flows on chosen paths: UDP source ports under ECMP, or lists of segments."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import scalemodel._core as _core
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.files import write_whole
from scalemodel.routing.report import RoutingReport

if TYPE_CHECKING:
    import pandas as pd

#: UDP source ports of RoCEv2: the dynamic ones (RFC 6335, section 6).
FIRST_PORT, LAST_PORT = 49152, 65535
#: First label of a segment routing block where an operator sets none (Cisco IOS XR and Junos).
FIRST_LABEL = 16000
#: Labels of MPLS have 20 bits (RFC 3032).
_MOST_LABELS = 1 << 20
ENCODINGS = ("srv6", "mpls")


def _whole_flows(report: RoutingReport) -> None:
    if report.columns["sprayed"] or len(report.columns["path"]) != report.traffic.core.size:
        raise ScaleModelError(
            f"report: policy={report.policy!r} splits flows; hosts can be told one path per flow"
        )


def _links_by_flow(report: RoutingReport, max_paths: int, detours: int) -> list[list[int]]:
    """Links between switches on the chosen path of every flow."""
    columns = _core.path_columns(report.fabric.core, report.traffic.core, max_paths, detours)
    chosen = np.asarray(report.columns["path"])
    taken = columns["path"] == chosen[columns["flow"]]
    links: list[list[int]] = [[] for _ in range(report.traffic.core.size)]
    for flow, link in zip(
        columns["flow"][taken].tolist(), columns["link"][taken].tolist(), strict=True
    ):
        links[flow].append(link)
    return links


def segment_lists(
    report: RoutingReport,
    *,
    encoding: str = "srv6",
    prefix: str = "fc00:0",
    first_label: int = FIRST_LABEL,
    max_paths: int = 256,
    detours: int = 0,
) -> pd.DataFrame:
    """The switches that every flow has to visit, as segments that its host puts into packets.

    Segments name nodes (RFC 8402): a list pins a path where no two of its switches have parallel
    cables between them.

    Parameters
    ----------
    report : RoutingReport
        Of a policy that gives every flow one path.
    encoding : {"srv6", "mpls"}
        Addresses of an IPv6 segment list (RFC 8986), or labels, the outermost first (RFC 8660).
    prefix : str
        Of the addresses, before the number of the node in hexadecimal.
    first_label : int
        Label of node 0.
    max_paths, detours : int
        As the report was made with.

    Returns
    -------
    DataFrame, one row per flow
        Columns job, source, destination, switches (numbers of nodes after the first switch) and
        segments (addresses or labels); both are empty within a leaf or without a path.

    Raises
    ------
    ScaleModelError : a policy that splits flows, an unknown encoding, or labels beyond 20 bits.

    Examples
    --------
    >>> import scalemodel as sm
    >>> fabric = sm.Fabric.leaf_spine(leaves=2, spines=2, nics_per_leaf=2)
    >>> jobs = [{"pattern": "ring", "nics": [0, 2], "size_bytes": 1e9}]
    >>> lists = segment_lists(sm.route(fabric, jobs))
    >>> lists.segments[0]
    ['fc00:0:2::', 'fc00:0:1::']
    >>> segment_lists(sm.route(fabric, jobs), encoding="mpls").segments[0]
    [16002, 16001]
    """
    if encoding not in ENCODINGS:
        raise ScaleModelError(f"encoding={encoding!r}: must be one of {', '.join(ENCODINGS)}")
    ends = report.fabric.core.columns()
    nodes = int(max(ends["source"].max(initial=0), ends["destination"].max(initial=0))) + 1
    if not 0 <= first_label <= _MOST_LABELS - nodes:
        raise ScaleModelError(
            f"first_label={first_label!r}: must be from 0 to {_MOST_LABELS - nodes}"
        )
    _whole_flows(report)
    switches = [
        ends["destination"][links].tolist() for links in _links_by_flow(report, max_paths, detours)
    ]
    frame = report.traffic.flows()[["job", "source", "destination"]]
    frame["switches"] = switches
    if encoding == "srv6":
        frame["segments"] = [[f"{prefix}:{node:x}::" for node in nodes] for nodes in switches]
    else:
        frame["segments"] = [[first_label + node for node in nodes] for nodes in switches]
    return frame


def write_segment_lists(report: RoutingReport, file: str | Path, **options: Any) -> Path:
    """Write the segment lists as JSON for a controller, one object per flow with segments.

    Parameters
    ----------
    report : RoutingReport
    file : str or Path
    options
        As in `segment_lists`.

    Returns
    -------
    Path

    Examples
    --------
    >>> import tempfile
    >>> import scalemodel as sm
    >>> fabric = sm.Fabric.leaf_spine(leaves=2, spines=2, nics_per_leaf=2)
    >>> jobs = [{"pattern": "ring", "nics": [0, 2], "size_bytes": 1e9}]
    >>> file = write_segment_lists(sm.route(fabric, jobs), tempfile.mkdtemp() + "/paths.json")
    >>> sorted(json.loads(file.read_text())["flows"][0])
    ['destination_nic', 'job', 'segments', 'source_nic']
    """
    lists = segment_lists(report, **options)
    flows = [
        {"job": job, "source_nic": source, "destination_nic": destination, "segments": segments}
        for job, source, destination, segments in zip(
            lists["job"].tolist(),
            lists["source"].tolist(),
            lists["destination"].tolist(),
            lists["segments"].tolist(),
            strict=True,
        )
        if segments
    ]
    path = Path(file)
    answer = {"encoding": options.get("encoding", "srv6"), "policy": report.policy, "flows": flows}
    write_whole(path, json.dumps(answer, indent=1) + "\n")
    return path


def source_ports(report: RoutingReport) -> pd.DataFrame:
    """A UDP source port for every flow with which hashing switches choose the path of the report.

    The hash is that of the policy ``subflow_ecmp`` with the port as its part. Real switches have
    hashes of their own: this is what an operator does who knows or has measured them, and how many
    ports that takes.

    Parameters
    ----------
    report : RoutingReport
        Of a policy that gives every flow one path, on two tiers, where one switch chooses.

    Returns
    -------
    DataFrame, one row per flow
        Columns job, source, destination, source_port and tries (ports hashed until one fits, in the
        mean as many as there are paths); 0 and 0 within a leaf or without a path.

    Raises
    ------
    ScaleModelError : another fabric, a policy that splits flows, or no port that fits.

    Examples
    --------
    >>> import scalemodel as sm
    >>> fabric = sm.Fabric.leaf_spine(leaves=2, spines=2, nics_per_leaf=2)
    >>> jobs = [{"pattern": "ring", "nics": [0, 2], "size_bytes": 1e9}]
    >>> bool(source_ports(sm.route(fabric, jobs)).source_port.between(49152, 65535).all())
    True
    """
    core = report.fabric.core
    if core.planes == 0:
        raise ScaleModelError("report: source ports choose paths on two tiers; use segment_lists")
    _whole_flows(report)
    paths = _core.path_columns(core, report.traffic.core)
    many = np.zeros(report.traffic.core.size, dtype=np.int64)
    np.maximum.at(many, paths["flow"], paths["path"].astype(np.int64) + 1)
    ends = core.columns()
    up = np.asarray(paths["host_up"])
    down = np.asarray(paths["host_down"])
    chosen = np.asarray(report.columns["path"])
    mixed = [_core.ecmp_hash(port) for port in range(FIRST_PORT, LAST_PORT + 1)]
    ports, tries = [], []
    for flow, count in enumerate(many.tolist()):
        if count == 0:
            ports.append(0)
            tries.append(0)
            continue
        source, leaf = int(ends["source"][up[flow]]), int(ends["destination"][up[flow]])
        found = _fitting_port(
            leaf, source, int(ends["destination"][down[flow]]), count, int(chosen[flow]), mixed
        )
        ports.append(FIRST_PORT + found)
        tries.append(found + 1)
    frame = report.traffic.flows()[["job", "source", "destination"]]
    frame["source_port"], frame["tries"] = ports, tries
    return frame


def _wrapped(value: int) -> int:
    """As a signed number of 32 bits, in which the hash adds."""
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


def _fitting_port(
    leaf: int, source: int, destination: int, paths: int, wanted: int, mixed: list[int]
) -> int:
    """Position of the first port whose hash chooses the path; numbers are those of nodes."""
    for place, of_port in enumerate(mixed):
        inner = _core.ecmp_hash(_wrapped(destination + of_port))
        flow = _core.ecmp_hash(_wrapped(source + inner))
        if _core.ecmp_hash(_wrapped(leaf + flow)) % paths == wanted:
            return place
    raise ScaleModelError(
        f"report: no port from {FIRST_PORT} to {LAST_PORT} takes path {wanted} of {paths}"
    )
