"""From names, TOML files, Hugging Face configurations and dictionaries to engine values."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from scalemodel import _core, catalog
from scalemodel.errors import ScaleModelError, nearest
from scalemodel.hugging_face import architecture_from_config
from scalemodel.units import parse_quantity, value_of

Table = Mapping[str, Any]


# ------------------------------------------------------------------------------------------ models
@dataclass(frozen=True)
class Model:
    """An architecture. Made by `model`; hashable, picklable.

    Attributes
    ----------
    name, title, family : str
    shape : DecoderShape
        The numbers a model card gives.
    """

    name: str
    shape: _core.DecoderShape
    title: str = field(default="", compare=False)
    family: str = field(default="", compare=False)

    @cached_property
    def core(self) -> _core.LayeredModel:
        """The engine's layer groups."""
        return _core.LayeredModel(self.shape)

    @property
    def parameters(self) -> int:
        """Parameters of the main stack (multi-token-prediction modules left out).

        Examples
        --------
        >>> model("llama3_8b").parameters
        8030261248
        """
        return int(self.core.parameters)

    @property
    def active_parameters(self) -> int:
        """Parameters one token meets."""
        return int(self.core.active_parameters)

    def __getstate__(self) -> dict[str, object]:
        return {key: getattr(self, key) for key in ("name", "shape", "title", "family")}

    def __repr__(self) -> str:
        billions = self.parameters / 1e9
        return f"Model({self.name!r}, {billions:.3g}B parameters)"


_MODEL_KEYS = ("name", "title", "family", "aliases", "architecture", "parameters", "source")
_SHAPE_FIELDS = tuple(row["name"] for row in _core.DecoderShape.fields())


def _shape(architecture: Table, where: str) -> _core.DecoderShape:
    given: dict[str, Any] = {}
    for key, cell in architecture.items():
        if key == "source":
            continue
        if key not in _SHAPE_FIELDS:
            raise ScaleModelError(
                f"{where}: architecture.{key}: unknown key; {nearest(key, _SHAPE_FIELDS)}",
                code="unknown_key",
            )
        given[key] = value_of(cell)
    for key in ("layers", "hidden", "vocab", "heads"):
        if key not in given:
            raise ScaleModelError(f"{where}: architecture.{key}: missing")
    try:
        shape = _core.DecoderShape(**given)
        _core.LayeredModel(shape)
    except ScaleModelError as error:
        raise ScaleModelError(f"{where}: architecture.{error}", code=error.code) from None
    return shape


def _name_of_file(where: str) -> str:
    """Model name that a path suggests: of the file, or of the folder around a config.json."""
    path = Path(where)
    if path.suffix != ".json":
        return path.name if path.is_dir() else ""
    return path.parent.name if path.name == "config.json" else path.stem


def _read_json(path: Path) -> dict[str, Any]:
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ScaleModelError(f"{path}: cannot be read ({error.strerror})") from error
    except (UnicodeDecodeError, ValueError) as error:
        raise ScaleModelError(f"{path}: not valid JSON ({error})") from error
    except RecursionError:
        raise ScaleModelError(f"{path}: nested too deeply") from None
    if not isinstance(read, dict):
        raise ScaleModelError(f"{path}: must hold a JSON object, not {type(read).__name__}")
    return read


def _model_from_table(table: Table, where: str) -> Model:
    if "architecture" in table and isinstance(table["architecture"], Mapping):
        for key in table:
            if key not in _MODEL_KEYS:
                raise ScaleModelError(
                    f"{where}: {key}: unknown key; {nearest(str(key), _MODEL_KEYS)}",
                    code="unknown_key",
                )
        name = str(table.get("name", where))
        return Model(
            name=name,
            shape=_shape(table["architecture"], where),
            title=str(table.get("title", name)),
            family=str(table.get("family", "")),
        )
    architecture, unknown = architecture_from_config(table)
    if unknown:
        warnings.warn(
            f"{where}: keys not understood and left out: {', '.join(unknown)}", stacklevel=3
        )
    name = str(table.get("_name_or_path") or _name_of_file(where) or table.get("model_type"))
    return Model(
        name=name,
        shape=_shape(architecture, where),
        title=name,
        family=str(table.get("model_type", "")),
    )


@lru_cache(maxsize=256)
def _catalogue_model(name: str) -> Model:
    return _model_from_table(catalog.load("models", name), f"models/{name}.toml")


def _is_path(text: str, suffixes: tuple[str, ...]) -> bool:
    return text.endswith(suffixes)


def model(source: str | Path | Table | Model) -> Model:
    """A model from the catalogue, a TOML file, a Hugging Face ``config.json`` or a dictionary.

    Parameters
    ----------
    source : str, Path or mapping
        Catalogue name or alias; path of a ``.toml`` entry, of a ``config.json`` or of a directory
        that holds one; a mapping with an ``architecture`` table or the contents of a
        ``config.json``.

    Raises
    ------
    ScaleModelError : unknown name or family (the nearest known ones are named), missing or
        malformed number (the key is named).

    Examples
    --------
    >>> model("Llama-3-70B").parameters
    70553706496
    >>> model({"name": "toy", "architecture": {"layers": 2, "hidden": 64, "vocab": 100,
    ...        "heads": 4, "ffn": 256}}).parameters
    111232
    """
    if isinstance(source, Model):
        return source
    if isinstance(source, Mapping):
        return _model_from_table(source, str(source.get("name", "model")))
    if isinstance(source, (str, Path)):
        text = str(source)
        path = Path(text)
        if _is_path(text, (".toml",)):
            return _model_from_table(catalog.read_toml(path), text)
        if _is_path(text, (".json",)):
            return _model_from_table(_read_json(path), text)
        if path.is_dir() and (path / "config.json").is_file():
            return _model_from_table(_read_json(path / "config.json"), text)
        return _catalogue_model(catalog.find("models", text))
    raise ScaleModelError(
        f"model={source!r}: must be a catalogue name, a path or a mapping", code="malformed"
    )


# ---------------------------------------------------------------------------------------- clusters
@dataclass(frozen=True)
class Cluster:
    """Accelerators, their networks and their nodes. Made by `cluster`; hashable, picklable.

    Attributes
    ----------
    name, title, accelerator : str
        `accelerator` is the catalogue name.
    core : _core.Cluster
        Every number, in base units.
    """

    name: str
    core: _core.Cluster
    title: str = field(default="", compare=False)
    accelerator: str = field(default="", compare=False)
    price_source: str = field(default="", compare=False)

    @property
    def accelerators(self) -> int:
        """Accelerators of the job."""
        return int(self.core.accelerators)

    @property
    def nodes(self) -> float:
        """Nodes of the job."""
        return self.accelerators / int(self.core.node_accelerators)

    @cached_property
    def _hash(self) -> int:
        return hash((self.name, self.core))

    def __hash__(self) -> int:
        return self._hash

    def __getstate__(self) -> dict[str, object]:
        kept = ("name", "core", "title", "accelerator", "price_source")
        return {key: getattr(self, key) for key in kept}

    def __repr__(self) -> str:
        return f"Cluster({self.name!r}, {self.accelerators} x {self.accelerator})"


#: No number of a catalogue comes near; whole numbers beyond it have no exact double.
_LARGEST = 1e30


class _Reader:
    """Reads quantities of one table and remembers which keys it knows."""

    def __init__(self, table: object, where: str) -> None:
        if not isinstance(table, Mapping):
            raise ScaleModelError(f"{where}={table!r}: must be a table")
        self.table = table
        self.where = where
        self.known = {"source"}

    def quantity(self, key: str, dimension: str, default: float | None = None) -> float:
        self.known.add(key)
        if key not in self.table:
            if default is None:
                raise ScaleModelError(f"{self.where}.{key}: missing")
            return default
        return parse_quantity(value_of(self.table[key]), dimension, f"{self.where}.{key}")

    def number(self, key: str, default: float | None = None) -> float:
        self.known.add(key)
        if key not in self.table:
            if default is None:
                raise ScaleModelError(f"{self.where}.{key}: missing")
            return default
        value = value_of(self.table[key])
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ScaleModelError(f"{self.where}.{key}={value!r}: must be a number")
        if not abs(value) <= _LARGEST:  # written so that NaN is refused too
            raise ScaleModelError(f"{self.where}.{key}={value!r}: must be a finite number")
        return float(value)

    def count(self, key: str, default: int | None = None) -> int:
        """A whole number."""
        number = self.number(key, default)
        if number != int(number):
            raise ScaleModelError(f"{self.where}.{key}={number}: must be a whole number")
        return int(number)

    def text(self, key: str, default: str) -> str:
        self.known.add(key)
        return str(value_of(self.table.get(key, default)))

    def sub(self, key: str) -> _Reader:
        self.known.add(key)
        return _Reader(self.table.get(key, {}), f"{self.where}.{key}".lstrip("."))

    def finish(self, *further: str) -> None:
        """Every key was asked for; an unknown one is an error with the nearest known names."""
        for key in self.table:
            if key not in self.known and key not in further:
                raise ScaleModelError(
                    f"{self.where}.{key}: unknown key; {nearest(str(key), self.known)}".lstrip("."),
                    code="unknown_key",
                )


def _merged(base: Table, changes: Table) -> dict[str, Any]:
    """`base` with `changes` laid over it, table by table; cells are replaced whole."""
    result = dict(base)
    for key, cell in changes.items():
        below = result.get(key)
        is_table = isinstance(cell, Mapping) and "value" not in cell
        if is_table and isinstance(below, Mapping):
            result[key] = _merged(below, cell)
        else:
            result[key] = cell
    return result


def accelerator_table(source: str | Table) -> dict[str, Any]:
    """Tables of an accelerator with inherited kernel constants filled in."""
    if isinstance(source, Mapping):
        base = source.get("base")
        table = accelerator_table(str(base)) if base is not None else {}
        return _merged(table, {key: cell for key, cell in source.items() if key != "base"})
    if _is_path(source, (".toml",)):
        table = catalog.read_toml(Path(source))
    else:
        table = dict(catalog.load("accelerators", source))
    inherited = table.get("kernels")
    if inherited is not None and inherited != table.get("name"):
        parent = accelerator_table(str(inherited))
        for kind in ("gemm", "attention", "elementwise"):
            if kind not in table and kind in parent:
                table[kind] = parent[kind]
    return table


def _tile(reader: _Reader) -> _core.TileGemm:
    return _core.TileGemm(
        launch_s=reader.quantity("launch", "s"),
        tau_cycles=reader.number("tau_cycles"),
        burst_fraction=reader.number("burst_fraction"),
        sustained_fraction=reader.number("sustained_fraction"),
        throttle_s=reader.quantity("throttle", "s"),
        memory_fraction=reader.number("memory_fraction"),
        quantise_passes=reader.number("quantise_passes", 0.0),
    )


def _narrow_tile(reader: _Reader, key: str, wide: _core.TileGemm) -> _core.TileGemm:
    """A narrow format: the wide one's tiles, at a share of its fractions of the higher peak."""
    if key not in reader.table:
        reader.known.add(key)
        return _core.TileGemm()
    inner = reader.sub(key)
    relative = inner.number("relative_fraction")
    tile = wide.replace(
        burst_fraction=relative * wide.burst_fraction,
        sustained_fraction=relative * wide.sustained_fraction,
        quantise_passes=inner.number("quantise_passes", 0.0),
    )
    inner.finish()
    return tile


def _gemm(reader: _Reader, sheet_peak: float) -> _core.GemmKernels:
    roofline = reader.sub("roofline")
    common: dict[str, Any] = {
        "roofline_compute_fraction": roofline.number("compute_fraction"),
        "roofline_memory_fraction": roofline.number("memory_fraction"),
        "roofline_launch_s": roofline.quantity("launch", "s"),
        "reference_peak_flop_per_s": reader.quantity("peak_reference", "flop_per_s", sheet_peak),
        "grouped_fraction": reader.number("grouped_fraction", 1.0),
    }
    roofline.finish()
    if reader.text("form", "roofline") != "tile":
        reader.finish("multiprocessors", "clock", "hot")
        return _core.GemmKernels(**common)
    wide = _tile(reader)
    kernels = _core.GemmKernels(
        tiled=True,
        dense16=wide,
        fp8=_narrow_tile(reader, "fp8", wide),
        fp4=_narrow_tile(reader, "fp4", wide),
        l2_bytes_per_clock=reader.number("l2_bytes_per_clock"),
        blend=reader.number("blend"),
        wave_weight=reader.number("wave_weight"),
        split_s=reader.quantity("split", "s"),
        prologue=reader.number("prologue"),
        **common,
    )
    reader.finish("multiprocessors", "clock", "hot")
    return kernels


def _power(reader: _Reader) -> _core.PowerPhases:
    phases = catalog.load("reference", "power_phases")["phases"]
    defaults = _Reader(phases, "reference.power_phases")
    power = _core.PowerPhases(
        limit_w=reader.quantity("tdp", "w"),
        idle_w=reader.quantity("idle", "w"),
        compute_fraction=reader.number("compute_fraction", defaults.number("compute_fraction")),
        exposed_fraction=reader.number("exposed_fraction", defaults.number("exposed_fraction")),
    )
    reader.finish()
    return power


def _accelerator(table: Table) -> _core.Accelerator:
    top = _Reader(table, "")
    compute = top.sub("compute")
    peaks = [compute.quantity(name, "flop_per_s", 0.0) for name in _core.precisions()]
    by_name = dict(zip(_core.precisions(), peaks, strict=True))
    gemm = top.sub("gemm")
    # The fit of the tile form may have assumed another count or clock than the data sheet.
    multiprocessors = gemm.number("multiprocessors", compute.number("multiprocessors", 1))
    clock = gemm.quantity("clock", "hz", compute.quantity("clock", "hz", 1e9))
    compute.finish()
    memory, host = top.sub("memory"), top.sub("host")
    attention, elementwise = top.sub("attention"), top.sub("elementwise")
    accelerator = _core.Accelerator(
        peak_flop_per_s=peaks,
        multiprocessors=int(multiprocessors),
        clock_hz=clock,
        memory_capacity_bytes=memory.quantity("capacity", "bytes"),
        memory_bandwidth_bytes_per_s=memory.quantity("bandwidth", "bytes_per_s"),
        l2_bytes=memory.quantity("l2", "bytes", 0.0),
        host_bandwidth_bytes_per_s=host.quantity("bandwidth", "bytes_per_s"),
        gemm=_gemm(gemm, by_name["bf16"] or by_name["fp16"]),
        attention=_core.AttentionKernels(
            **{
                name: attention.number(name)
                for name in (
                    "flash2_forward",
                    "flash2_backward",
                    "flash3_forward",
                    "flash3_backward",
                )
            },
            launch_s=attention.quantity("launch", "s"),
        ),
        elementwise=_core.ElementwiseKernels(
            add_fraction=elementwise.number("add_fraction"),
            norm_fraction=elementwise.number("norm_fraction"),
            softmax_fraction=elementwise.number("softmax_fraction"),
            launch_s=elementwise.quantity("launch", "s"),
        ),
        power=_power(top.sub("power")),
    )
    for reader in (memory, host, attention, elementwise):
        reader.finish()
    top.finish("name", "title", "vendor", "architecture", "year", "aliases", "kernels", "scale_up")
    return accelerator


@lru_cache(maxsize=64)
def _interconnect(name: str, kind: str) -> dict[str, Any]:
    table = catalog.load("interconnects", name)
    if table.get("kind") != kind:
        raise ScaleModelError(
            f"class={name!r}: is a {table.get('kind')} network, a {kind} network is needed here"
        )
    return table


def _collective(table: Table, op: str) -> _core.CollectiveFit:
    reader = _Reader(table[op], op)
    return _core.CollectiveFit(
        start1_s=reader.quantity("a1", "s"),
        per_rank1_s=reader.quantity("l1", "s"),
        bandwidth_fraction1=reader.number("b1"),
        start2_s=reader.quantity("a2", "s"),
        per_rank2_s=reader.quantity("l2", "s"),
        bandwidth_fraction2=reader.number("b2"),
        pipeline_fill_s=reader.quantity("c", "s"),
    )


@lru_cache(maxsize=64)
def _collectives(link_class: str) -> dict[str, Any]:
    table = _interconnect(link_class, "scale_up")
    p2p = _Reader(table["p2p"], "p2p")
    return {
        **{
            op: _collective(table, op)
            for op in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
        },
        "p2p_latency_s": p2p.quantity("latency", "s"),
        "p2p_fraction": p2p.number("bandwidth_fraction"),
    }


def _scale_up(reader: _Reader) -> _core.ScaleUp:
    link_class = reader.text("class", "pcie5")
    built = _core.ScaleUp(
        domain=reader.count("domain"),
        bandwidth_bytes_per_s=reader.quantity("bandwidth", "bytes_per_s"),
        **_collectives(catalog.find("interconnects", link_class)),
    )
    reader.finish()
    return built


@lru_cache(maxsize=64)
def _fabric_class(name: str) -> dict[str, float]:
    table = _interconnect(name, "fabric")
    reader = _Reader(table, f"interconnects/{name}")
    p2p = reader.sub("p2p")
    constants = {
        f"{hop}_s": reader.quantity(hop, "s")
        for hop in ("ring_hop_ll128", "ring_hop_simple", "tree_hop_ll128", "tree_hop_simple")
    }
    constants["latency_factor"] = reader.number("latency_factor")
    constants["bandwidth_fraction"] = reader.number("bandwidth_fraction")
    constants["all_to_all_fraction"] = reader.number("all_to_all_fraction")
    constants["p2p_latency_s"] = p2p.quantity("latency", "s")
    constants["p2p_fraction"] = p2p.number("bandwidth_fraction")
    return constants


def _fabric(reader: _Reader) -> _core.Fabric:
    fabric_class = catalog.find("interconnects", reader.text("class", "infiniband"))
    built = _core.Fabric(
        bandwidth_bytes_per_s=reader.quantity("bandwidth", "bytes_per_s", 50e9),
        oversubscription=reader.number("oversubscription", 1.0),
        pod=reader.count("pod", 0),
        **_fabric_class(fabric_class),
    )
    reader.finish()
    return built


@lru_cache(maxsize=256)
def _newest_price(accelerator: str) -> tuple[float, str]:
    """Price per second of the newest list price of an accelerator, cheapest first, and its name."""
    best: tuple[str, float, str] | None = None
    for name in catalog.names("prices"):
        entry = catalog.load("prices", name)
        if entry["accelerator"] != accelerator or entry["type"] not in ("on_demand", "neocloud"):
            continue
        price = parse_quantity(
            value_of(entry["usd_per_accelerator_hour"]), "usd_per_s", f"prices/{name}"
        )
        if best is None or (entry["date"], -price) > (best[0], -best[1]):
            best = (entry["date"], price, name)
    return (best[1], best[2]) if best else (0.0, "")


def _cluster_table(source: str | Path | Table) -> tuple[dict[str, Any], str]:
    if isinstance(source, Mapping):
        base = source.get("base")
        table = _cluster_table(str(base))[0] if base is not None else {}
        table = _merged(table, {key: cell for key, cell in source.items() if key != "base"})
        return table, str(source.get("name", table.get("name", "cluster")))
    text = str(source)
    if _is_path(text, (".toml",)):
        return catalog.read_toml(Path(text)), text
    name = catalog.find("clusters", text)
    return dict(catalog.load("clusters", name)), name


def _count(value: object, argument: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 100_000_000:
        raise ScaleModelError(f"{argument}={value!r}: must be a whole number from 1 to 1e8")
    return value


def _freeze(table: object) -> object:
    if isinstance(table, Mapping):
        return tuple(sorted((str(key), _freeze(cell)) for key, cell in table.items()))
    if isinstance(table, list):
        return tuple(_freeze(cell) for cell in table)
    return table


def cluster(
    source: str | Path | Table | Cluster,
    *,
    nodes: int | None = None,
    accelerators: int | None = None,
) -> Cluster:
    """A cluster from the catalogue, a TOML file or a table of overrides.

    Parameters
    ----------
    source : str, Path or mapping
        Catalogue name or alias, path of a ``.toml`` entry, or a mapping with the keys of an entry:
        ``{"base": "dgx_h100", "fabric": {"bandwidth": "800 Gbit/s"}}`` changes an entry,
        ``{"accelerator": "H100"}`` builds one with what is usual for that accelerator. The
        accelerator may itself be a mapping with a ``base``.
    nodes, accelerators : int, optional
        Size of the job; give one of them. Default: the entry's ``nodes``.

    Raises
    ------
    ScaleModelError : unknown name or key, wrong unit, impossible number; the message names it.

    Examples
    --------
    >>> cluster("dgx_h100", nodes=64).accelerators
    512
    >>> faster = cluster({"base": "dgx_h100", "fabric": {"bandwidth": "800 Gbit/s"}}, nodes=2)
    >>> faster.core.fabric.bandwidth_bytes_per_s
    100000000000.0
    """
    if nodes is not None and accelerators is not None:
        raise ScaleModelError(f"nodes={nodes}, accelerators={accelerators}: give one of the two")
    if nodes is not None:
        nodes = _count(nodes, "nodes")
    if accelerators is not None:
        accelerators = _count(accelerators, "accelerators")
    if isinstance(source, Cluster):
        built = source
    elif isinstance(source, (str, Path, Mapping)):
        table, name = _cluster_table(source)
        built = _build_cluster(table, name)
        if nodes is None and accelerators is None:
            nodes = _count(_Reader(table, name).count("nodes", 1), "nodes")
    else:
        raise ScaleModelError(f"cluster={source!r}: must be a catalogue name, a path or a mapping")
    per_node = int(built.core.node_accelerators)
    count = accelerators if accelerators is not None else (nodes or 0) * per_node
    if count == 0:
        return built
    return Cluster(
        name=built.name,
        core=built.core.replace(accelerators=count),
        title=built.title,
        accelerator=built.accelerator,
        price_source=built.price_source,
    )


_BUILT: dict[object, Cluster] = {}


def _build_cluster(table: Table, name: str) -> Cluster:
    """The cluster a table describes; equal tables are built once."""
    if "accelerator" not in table:
        raise ScaleModelError(f"{name}: accelerator: missing")
    given = table["accelerator"]
    if not isinstance(given, (str, Mapping)):
        raise ScaleModelError(f"{name}: accelerator={given!r}: must be a name or a table")
    accelerator = accelerator_table(given)
    key = (name, _freeze(table), _freeze(accelerator))
    if key not in _BUILT:
        if len(_BUILT) >= 512:
            _BUILT.clear()
        _BUILT[key] = _cluster_from_tables(table, accelerator, name)
    return _BUILT[key]


def _cluster_from_tables(table: Table, accelerator: Table, name: str) -> Cluster:
    accelerator_name = str(accelerator.get("name", "accelerator"))
    top = _Reader(table, name)
    node = top.sub("node")
    domain = accelerator.get("scale_up", {})
    scale_up = _Reader(
        _merged(
            _Reader(domain, "accelerator.scale_up").table,
            _Reader(table.get("scale_up", {}), f"{name}.scale_up").table,
        ),
        f"{name}.scale_up",
    )
    power, price = top.sub("power"), top.sub("price")
    price_per_s, price_source = _newest_price(accelerator_name)
    if "usd_per_accelerator_hour" in price.table:
        price_source = f"{name}.price"
    usual_node = min(8, _Reader(domain, "scale_up").count("domain", 8) or 8)
    per_node = node.count("accelerators", usual_node)
    core = _core.Cluster(
        accelerator=_accelerator(accelerator),
        node_accelerators=per_node,
        accelerators=per_node,
        # Without a figure: the share that hosts of 8-GPU H100 nodes draw per accelerator.
        host_power_w=node.quantity("host_power", "w", 220.0 * per_node),
        host_memory_bytes=node.quantity("host_memory", "bytes", 2e12),
        scale_up=_scale_up(scale_up),
        fabric=_fabric(top.sub("fabric")),
        pue=power.number("pue", 1.25),
        price_usd_per_s=price.quantity("usd_per_accelerator_hour", "usd_per_s", price_per_s),
    )
    for reader in (node, power, price):
        reader.finish()
    top.finish("name", "title", "aliases", "accelerator", "nodes", "scale_up")
    return Cluster(
        name=name,
        core=core,
        title=str(table.get("title", name)),
        accelerator=accelerator_name,
        price_source=price_source,
    )


# ------------------------------------------------------------------------------------------ stacks
_STACK_FIELDS = tuple(row["name"] for row in _core.Stack.fields())
_STACK_DIMENSIONS = {"_s": "s", "_bytes": "bytes"}


@lru_cache(maxsize=64)
def stack(name: str) -> _core.Stack:
    """The engine's constants of a named software stack.

    Examples
    --------
    >>> stack("plain").gradients_fp32
    True
    """
    entry = catalog.find("stacks", name)
    table = catalog.load("stacks", entry)
    facts = _Reader(table.get("stack", {}), f"stacks/{entry}.toml: stack")
    given: dict[str, Any] = {}
    for field_name in _STACK_FIELDS:
        key = field_name
        dimension = None
        for suffix, kind in _STACK_DIMENSIONS.items():
            if field_name.endswith(suffix):
                key, dimension = field_name[: -len(suffix)], kind
        facts.known.add(key)
        if key not in facts.table:
            continue
        cell = value_of(facts.table[key])
        given[field_name] = (
            parse_quantity(cell, dimension, f"stacks/{entry}.toml: {key}") if dimension else cell
        )
    facts.finish()
    return _core.Stack(**given)
