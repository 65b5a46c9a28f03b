"""Models: names, TOML files, Hugging Face configurations and dictionaries to layer groups."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import scalemodel._core as _core
from scalemodel import catalog
from scalemodel.base.errors import ScaleModelError, nearest
from scalemodel.base.reading import read_json
from scalemodel.base.safe_text import plain
from scalemodel.base.units import value_of
from scalemodel.base.words import named_arguments
from scalemodel.resolve.hub import checkpoint_format, entry_format, hub_id, is_hub_id
from scalemodel.resolve.hub_files import HubAddress, hub_address, hub_config
from scalemodel.resolve.hugging_face import architecture_from_config, vision_from_config
from scalemodel.resolve.reader import Table, is_folder, is_path
from scalemodel.resolve.unknown import is_hardware, is_model, no_file, swapped, unknown_model

_TEXTS = ("name", "title", "family", "hub", "checkpoint", "revision", "read_as")


@dataclass(frozen=True)
class Model:
    """An architecture. Made by `model`; hashable, picklable.

    Attributes
    ----------
    name, title, family : str
    shape : DecoderShape
        The numbers a model card gives.
    hub : str
        Id of a checkpoint on the Hugging Face Hub; empty where none is known.
    checkpoint : str
        Format of its weights, as `Inference` names it; empty where they are in 16 bits.
    vision : VisionShape or None
        The tower of a model that reads images.
    revision : str
        Commit on the Hub that the configuration was read from; empty where it came from elsewhere.
    read_as : str
        Shape that a configuration of an unknown family was read as; empty of a known one.
    scalar_head : bool
        Whether it ends in one score in place of words, as reward models do.

    Examples
    --------
    >>> import scalemodel as sm
    >>> sm.model("llama3_8b").shape.layers
    32
    """

    name: str
    shape: _core.DecoderShape
    vision: _core.VisionShape | None = None
    title: str = field(default="", compare=False)
    family: str = field(default="", compare=False)
    hub: str = field(default="", compare=False)
    checkpoint: str = field(default="", compare=False)
    revision: str = field(default="", compare=False)
    read_as: str = field(default="", compare=False)
    scalar_head: bool = False

    def __post_init__(self) -> None:
        for key in _TEXTS:
            object.__setattr__(self, key, plain(getattr(self, key)))

    @cached_property
    def core(self) -> _core.LayeredModel:
        """The engine's layer groups."""
        layered = _core.LayeredModel(self.shape, self.vision)
        return layered.with_scalar_head() if self.scalar_head else layered

    def with_scalar_head(self) -> Model:
        """The same with one score in place of words, and none that are predicted ahead.

        Examples
        --------
        >>> model("llama3_8b").parameters - model("llama3_8b").with_scalar_head().parameters
        525332480
        """
        return replace(self, shape=self.shape.replace(mtp_layers=0), scalar_head=True)

    @property
    def parameters(self) -> int:
        """Parameters of main stack and vision tower (multi-token-prediction modules left out).

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

    def check_generates(self) -> None:
        """An error that names a model which generates nothing, where it is to be served.

        Examples
        --------
        >>> try:
        ...     model("bert_base_uncased").check_generates()
        ... except ScaleModelError as error:
        ...     print(str(error).partition(": ")[2])
        its tokens see those behind them, so that it generates nothing; `estimate` takes it with \
a task `BatchInference`; must be a decoder to serve answers
        """
        why = _core.why_no_answers(self.core)
        if why:
            raise ScaleModelError(f"model={self.name!r}: {why}", code="malformed")

    @property
    def reads_source(self) -> bool:
        """Whether layers attend to a source: what an encoder reads, or an image that stands apart.

        Examples
        --------
        >>> model("t5_11b").reads_source, model("gemma3_12b").reads_source
        (True, False)
        """
        return bool(self.core.reads_source)

    @property
    def source_positions(self) -> int:
        """Positions of every source; 0 where each has its own, or none is read.

        Examples
        --------
        >>> model("whisper_large_v3").source_positions
        1500
        """
        return int(self.core.source_positions)

    @property
    def label(self) -> str:
        """Its name as answers give it: with the shape that an unknown family was read as.

        Examples
        --------
        >>> model("llama3_8b").label
        'llama3_8b'
        """
        return f"{self.name} (read as {self.read_as})" if self.read_as else self.name

    def image_tokens(self, height: int, width: int) -> int:
        """Tokens of the sequence that an image of `height` x `width` pixels becomes.

        None where layers attend to it apart.

        Raises
        ------
        ScaleModelError : the model reads no images.

        Examples
        --------
        >>> model("gemma3_12b").image_tokens(1024, 768)
        256
        """
        if self.vision is None:
            raise ScaleModelError(f"model={self.name!r}: has no vision tower, and reads no images")
        return int(self.core.image_tokens(height, width))

    def __getstate__(self) -> dict[str, object]:
        return {key: getattr(self, key) for key in ("shape", "vision", "scalar_head", *_TEXTS)}

    def __repr__(self) -> str:
        billions = self.parameters / 1e9
        shape = f", read as {self.read_as}" if self.read_as else ""
        return f"Model({self.name!r}, {billions:.3g}B parameters{shape})"


#: What stands for a model in a question.
ModelLike = str | Path | Model | dict[str, Any]


_MODEL_KEYS = (
    "name",
    "title",
    "family",
    "hub",
    "aliases",
    "architecture",
    "vision",
    "parameters",
    "checkpoint",
    "source",
)
_KINDS = ("models", "composed")
_SHAPE_FIELDS = tuple(row["name"] for row in _core.DecoderShape.fields())
_VISION_FIELDS = tuple(row["name"] for row in _core.VisionShape.fields())


def _given(table: Table, section: str, known: tuple[str, ...], where: str) -> dict[str, Any]:
    """Values of a section of an entry by field."""
    given: dict[str, Any] = {}
    for key, cell in table.items():
        if key == "source":
            continue
        if key not in known:
            raise ScaleModelError(
                f"{where}: {section}.{key}: unknown key; {nearest(key, known)}",
                code="unknown_key",
            )
        given[key] = value_of(cell)
    return given


def _vision(table: object, hidden: int, where: str) -> _core.VisionShape | None:
    if table is None:
        return None
    if not isinstance(table, Mapping):
        raise ScaleModelError(f"{where}: vision={table!r}: must be a table", code="malformed")
    given = _given(table, "vision", _VISION_FIELDS, where)
    for key in ("layers", "hidden", "heads", "ffn", "patch"):
        if key not in given:
            raise ScaleModelError(f"{where}: vision.{key}: missing")
    try:
        vision = _core.VisionShape(**given)
        _core.check_vision(vision, hidden)
    except ScaleModelError as error:
        raise ScaleModelError(f"{where}: {error}", code=error.code) from None
    return vision


def _shape(architecture: Table, where: str) -> _core.DecoderShape:
    given = _given(architecture, "architecture", _SHAPE_FIELDS, where)
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


def _model_from_table(table: Table, where: str, *, approximate: bool = False) -> Model:
    if "architecture" in table and isinstance(table["architecture"], Mapping):
        for key in table:
            if key not in _MODEL_KEYS:
                raise ScaleModelError(
                    f"{where}: {key}: unknown key; {nearest(str(key), _MODEL_KEYS)}",
                    code="unknown_key",
                )
        name = str(table.get("name", where))
        shape = _shape(table["architecture"], where)
        return Model(
            name=name,
            shape=shape,
            vision=_vision(table.get("vision"), shape.hidden, where),
            title=str(table.get("title", name)),
            family=str(table.get("family", "")),
            hub=hub_id(table),
            checkpoint=entry_format(table),
        )
    architecture, unknown = architecture_from_config(table, approximate=approximate)
    vision, left_out = vision_from_config(table)
    stored = checkpoint_format(table)
    unknown = sorted({*unknown, *left_out} - ({"quantization_config"} if stored else set()))
    if unknown:
        warnings.warn(
            f"{where}: keys not understood and left out: {', '.join(unknown)}", stacklevel=4
        )
    name = str(table.get("_name_or_path") or _name_of_file(where) or table.get("model_type"))
    read_as = str(architecture["source"]).partition(", an unknown family read as ")[2]
    if read_as:
        warnings.warn(f"{where}: an unknown family read as {read_as}", stacklevel=4)
    shape = _shape(architecture, where)
    return Model(
        name=name,
        shape=shape,
        vision=_vision(vision, shape.hidden, where),
        title=f"{name} (read as {read_as})" if read_as else name,
        family=str(table.get("model_type", "")),
        hub=name if is_hub_id(name) else "",
        checkpoint=stored,
        read_as=read_as,
    )


@catalog.kept(256)
def _catalogue_model(name: str, label: str) -> Model:
    table = catalog.load("models", name)
    return replace(_model_from_table(table, f"models/{name}.toml"), hub=hub_id(table, label))


def _entry_name(label: str) -> str:
    """Catalogue entry of a model; one that is made of layer groups is named as such."""
    try:
        return catalog.find("models", label)
    except ScaleModelError as unknown:
        try:
            composed = catalog.find("composed", label)
        except ScaleModelError:
            raise unknown_model(label, unknown) from None
        raise ScaleModelError(
            f"model={label!r}: is made of layer groups; write sm.compose({composed!r})",
            code=unknown.code,
            details=unknown.details,
        ) from None


def _no_model(source: object) -> ScaleModelError:
    """What is said of something that can be no model."""
    kind = type(source).__name__
    if kind == "Cluster":
        return swapped("model", source)
    legal = "must be a catalogue name, a path or a mapping, such as 'llama3_8b'"
    if kind == "ComposedModel":
        legal = (
            "only decoders have an answer here; estimate, sweep, search, serve take layer groups"
        )
    return ScaleModelError(f"model={source!r}: {legal}", code="malformed")


@named_arguments
def model(source: str | Path | Table | Model, *, approximate: bool = False) -> Model:
    """A model from the catalogue, a TOML file, a Hugging Face ``config.json`` or a dictionary.

    Parameters
    ----------
    source : str, Path or mapping
        Catalogue name or alias; path of a ``.toml`` entry, of a ``config.json`` or of a directory
        that holds one; a mapping with an ``architecture`` table or the contents of a
        ``config.json``; an id of the Hugging Face Hub, ``org/name`` or ``org/name@revision``, of
        which only ``config.json`` is fetched (needs the extra ``hub``). A name or id of the
        catalogue wins over a file or folder of that name, and a folder over an id that the
        catalogue does not have: write ``./llama3_8b`` for the folder and ``org/name@main`` for the
        Hub, which is asked for nothing else.
    approximate : bool
        Read a ``config.json`` of an unknown family as the nearest shape that is known. A warning
        and the title say which.

    Raises
    ------
    ScaleModelError : unknown name or family (the nearest known ones are named), missing or
        malformed number (the key is named), a Hub that cannot be asked or does not answer.

    Examples
    --------
    >>> model("Llama-3-70B").parameters
    70553706496
    >>> model({"name": "toy", "architecture": {"layers": 2, "hidden": 64, "vocab": 100,
    ...        "heads": 4, "ffn": 256}}).parameters
    111424
    """
    if isinstance(source, Model):
        return source
    if isinstance(source, Mapping):
        where = str(source.get("name", "model"))
        return _model_from_table(source, where, approximate=approximate)
    if isinstance(source, (str, Path)):
        try:
            return _model_of_text(source, approximate)
        except ScaleModelError as error:
            if error.code == "unreadable_file" and not os.path.exists(source):
                raise no_file("model", source, error) from None
            raise
    raise _no_model(source)


def _model_of_text(source: str | Path, approximate: bool = False) -> Model:
    """The model of a name or a path."""
    text = str(source)
    path = Path(text)
    address = hub_address(text) if isinstance(source, str) else None
    if address and address.revision:
        return _model_of_hub(address, text, approximate)
    if is_path(source, (".toml",), _KINDS):
        return _model_from_table(catalog.read_toml(path), text)
    if is_path(source, (".json",), _KINDS):
        return _model_from_table(read_json(path), text, approximate=approximate)
    if is_folder(source, "config.json", _KINDS):
        table = read_json(path / "config.json")
        return _model_from_table(table, text, approximate=approximate)
    if address and not is_model(text) and not is_hardware(text):
        if path.exists():
            raise ScaleModelError(
                f"model={text!r}: lies here without a config.json; write '{text}@main' for the "
                "model on the Hugging Face Hub, or give the path of its config.json"
            )
        return _model_of_hub(address, text, approximate)
    return _catalogue_model(_entry_name(text), text)


def _model_of_hub(address: HubAddress, text: str, approximate: bool) -> Model:
    """The model of an id, named by the commit it was read from, so that its name is repeatable."""
    config = hub_config(address)
    revision = config.commit or address.revision
    name = f"{address.repository}@{revision}" if revision else address.repository
    table = {**config.table, "_name_or_path": name}
    try:
        read = _model_from_table(table, text, approximate=approximate)
    except ScaleModelError as error:
        raise ScaleModelError(f"model={text!r}: {error}", error.code, error.details) from None
    return replace(read, hub=address.repository, revision=config.commit)
