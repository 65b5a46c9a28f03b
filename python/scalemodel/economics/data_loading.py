"""Data loading of a training run: whether storage and CPUs keep up with the step."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

import scalemodel._core as _core
from scalemodel import catalog
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.text import count_text, size_text, time_text
from scalemodel.base.words import named_arguments
from scalemodel.economics.arguments import checked, fitting_estimate
from scalemodel.economics.spares import count_of
from scalemodel.economics.storage import (
    free_host_memory_bytes,
    host_link_bytes_per_s,
    network_bytes_per_s,
    storage_tier,
    storage_tiers,
)
from scalemodel.estimator.estimate import Estimate
from scalemodel.estimator.evaluation import degrees_of
from scalemodel.resolve.reader import Reader

Decoder = Literal["dataloader", "decoder"]
#: Bytes of a token, and of a colour of a pixel, on the device.
_TOKEN_BYTES: Final = 8
_PIXEL_BYTES: Final = 3
_PARTS: Final = {
    "storage": "storage reads too slowly",
    "network": "the network to storage is too slow",
    "decode": "CPU cores decode too slowly",
    "host_link": "links from the host are too slow",
}


@dataclass(frozen=True)
class DataLoading:
    """Whether samples come as fast as steps take them. Made by `data_loading`.

    Attributes
    ----------
    verdict, reason : str
        ``"ok"``, or the part that makes steps wait: ``"storage"``, ``"network"``, ``"decode"``,
        ``"host_link"``; ``"no_prefetch"`` where fetching ahead would hide it; ``"host_memory"``
        where batches fetched ahead have no room.
    needed_per_s, available_per_s : float
        Samples of the job.
    rates_per_s : dict of str to float
        What each part passes that a sample asks something of.
    bound : str
        The slowest part.
    exposed_s : float
        Of every step, waiting for samples.
    step_time_s : float
        With it.
    sample_bytes, read_bytes_per_s : float
        Stored bytes of a sample; what a node that loads reads.
    nodes, cores, cores_needed : float
        Nodes that load data, CPU cores of each that decode, and how many would keep up.
    host_memory_bytes : float
        Of batches fetched ahead, in a node.

    Examples
    --------
    >>> import scalemodel as sm
    >>> est = sm.estimate("llama3_8b", sm.cluster("dgx_h100", nodes=4),
    ...                   sm.Training(global_batch=256, sequence=8192),
    ...                   sm.Strategy(sharding="zero3"))
    >>> found = sm.data_loading(est, images=2000, cores=16)
    >>> found.verdict, found.cores_needed > found.cores, found.exposed_s > 0
    ('decode', True, True)
    """

    verdict: str
    reason: str
    needed_per_s: float
    available_per_s: float
    rates_per_s: dict[str, float]
    bound: str
    exposed_s: float
    step_time_s: float
    sample_bytes: float
    read_bytes_per_s: float
    nodes: float
    cores: float
    cores_needed: float
    host_memory_bytes: float

    def to_dict(self) -> dict[str, Any]:
        """Every field, as numbers and texts."""
        return asdict(self)

    def __str__(self) -> str:
        lines = [
            f"{count_text(self.needed_per_s)} samples/s needed, "
            f"{count_text(self.available_per_s)} available, {self.bound} binds",
            f"{time_text(self.exposed_s)} of a step of {time_text(self.step_time_s)} exposed; "
            f"{self.cores_needed:.3g} of {self.cores:g} cores of a node needed",
        ]
        return "\n".join([*lines, f"{self.verdict}: {self.reason}"] if self.reason else lines)


@named_arguments
def data_loading(
    est: Estimate,
    *,
    read: str | float = "shared_file_system",
    shared_bytes_per_s: float | None = None,
    token_bytes: int | None = None,
    images: int | None = None,
    image_bytes: float | None = None,
    frames: int = 0,
    frame_height: int = 1080,
    frame_width: int = 1920,
    decode: Decoder | float = "dataloader",
    cores: float | None = None,
    prefetch: int = 2,
) -> DataLoading:
    """Whether storage, network, CPUs and host links bring samples as fast as steps take them.

    A sample is a sequence: its tokens, images as JPEG and frames of H.264 video. The first ranks of
    a tensor, context and pipeline group read for it, so as many nodes load as there are
    data-parallel ranks, at most all. Caches of data that is read again are left out.

    Parameters
    ----------
    est : Estimate
    read : str or float
        Where samples are: ``"shared_file_system"``, ``"object_store"``, ``"local_disk"``, or bytes
        per second of a node that reads.
    shared_bytes_per_s : float, optional
        What the storage delivers to all nodes together; 0: it does not limit them. Default: the
        scalable units of a DGX SuperPOD that the job fills, no limit of other storage.
    token_bytes : int, optional
        Stored. Default: 2 of a vocabulary below 65,500, else 4, as Megatron-LM stores them.
    images : int, optional
        Of a sample. Default: those of the task.
    image_bytes : float, optional
        Of a JPEG image. Default: 150 kB, those of ImageNet.
    frames, frame_height, frame_width : int
        Of video, per sample.
    decode : {"dataloader", "decoder"} or float
        Images per core as PyTorch's DataLoader passes them on, as the decoder alone does, or bytes
        of JPEG per second and core.
    cores : float, optional
        CPU cores of a node that decode. Default: 14 per accelerator, all of a DGX H100.
    prefetch : int
        Batches fetched ahead; 0: each is loaded when a step needs it.

    Raises
    ------
    ScaleModelError : the strategy cannot run or does not fit; a number out of range or an unknown
        name; the message names it.

    Examples
    --------
    >>> import scalemodel as sm
    >>> est = sm.estimate("llama3_8b", sm.cluster("dgx_h100", nodes=4),
    ...                   sm.Training(global_batch=256, sequence=8192),
    ...                   sm.Strategy(sharding="zero3"))
    >>> text = sm.data_loading(est)
    >>> text.verdict, text.sample_bytes, text.exposed_s
    ('ok', 32768.0, 0.0)
    >>> sm.data_loading(est, images=2000).bound
    'decode'
    """
    est = fitting_estimate(est)
    sample = _sample(
        est, token_bytes, images, image_bytes, (frames, frame_height, frame_width), decode
    )
    path = _path(est, read, shared_bytes_per_s, cores)
    ahead = count_of("prefetch", prefetch, 0, 1_000_000)
    batch, step_s = float(est.task.global_batch), float(est.step_time_s)
    passed = dict(_core.loading_rates(sample, path))
    rates = {part: rate for part, rate in passed.items() if math.isfinite(rate)}
    rate = float(_core.loading_rate_per_s(sample, path))
    needed = batch / step_s
    exposed_s = float(_core.exposed_loading_s(batch, rate, step_s, ahead > 0))
    memory = ahead * batch / float(path.nodes) * float(sample.decoded_bytes)
    bound = min(rates, key=lambda part: rates[part])
    verdict, reason = _verdict(est, bound, memory, exposed_s, ahead)
    read_rate = min(rate, batch / (step_s + exposed_s)) * float(sample.stored_bytes)
    return DataLoading(
        verdict,
        reason,
        needed,
        rate,
        rates,
        bound,
        exposed_s,
        step_s + exposed_s,
        float(sample.stored_bytes),
        read_rate / float(path.nodes),
        float(path.nodes),
        float(path.cores),
        float(_core.loading_cores_needed(sample, needed, path.nodes)),
        memory,
    )


def _verdict(
    est: Estimate, bound: str, memory: float, exposed_s: float, ahead: int
) -> tuple[str, str]:
    left = free_host_memory_bytes(est)
    if memory > left:
        return "host_memory", (
            f"prefetch={ahead}: batches fetched ahead need {size_text(memory)} of host memory in a "
            f"node; training leaves {size_text(left)}"
        )
    if exposed_s <= 0:
        return "ok", ""
    if not ahead and exposed_s <= float(est.step_time_s):
        return "no_prefetch", (
            f"prefetch=0: every step waits {time_text(exposed_s)}; batches fetched ahead "
            "would hide it"
        )
    return bound, f"{_PARTS[bound]}: every step waits {time_text(exposed_s)}"


def _facts() -> Reader:
    return Reader(catalog.load("reference", "data_loading"), "reference/data_loading")


def _token_bytes(est: Estimate, given: int | None) -> int:
    if given is not None:
        return count_of("token_bytes", given, 1, 64)
    tokens = _facts().sub("tokens")
    small = est.model.shape.vocab < tokens.count("small_vocabulary")
    return tokens.count("small_bytes" if small else "large_bytes")


def _sample(
    est: Estimate,
    token_bytes: int | None,
    images: int | None,
    image_bytes: float | None,
    video: tuple[int, int, int],
    decode: Decoder | float,
) -> _core.StoredSample:
    facts = _facts()
    speeds = facts.sub("decode")
    if isinstance(decode, str):
        if decode not in ("dataloader", "decoder"):
            raise ScaleModelError(
                f"decode={decode!r}: must be bytes of JPEG per second and core, or one of "
                "dataloader, decoder"
            )
        speed = speeds.number(decode)
    else:
        speed = checked("decode", decode, 1, 1e15)
    size = facts.sub("image").number("stored") if image_bytes is None else image_bytes
    jpeg = count_of("images", est.task.images if images is None else images, 0, 1_000_000)
    jpeg_bytes = jpeg * checked("image_bytes", size, 1, 1e12)
    pixels = float(count_of("frames", video[0], 0, 100_000_000))
    for name, side in zip(("frame_height", "frame_width"), video[1:], strict=True):
        pixels *= count_of(name, side, 1, 100_000)
    tokens = float(est.task.sequence)
    decoded = jpeg_bytes * facts.sub("image").number("pixels_per_byte") + pixels
    return _core.StoredSample(
        stored_bytes=tokens * _token_bytes(est, token_bytes)
        + jpeg_bytes
        + pixels * facts.sub("video").number("bytes_per_pixel"),
        decoded_bytes=_TOKEN_BYTES * tokens + _PIXEL_BYTES * decoded,
        decode_s=jpeg_bytes / speed + pixels / speeds.number("video_pixels"),
    )


def _path(
    est: Estimate, read: str | float, shared: float | None, cores: float | None
) -> _core.DataPath:
    cluster = est.cluster
    replicas = int(degrees_of(est).dp)
    nodes = min(float(cluster.nodes), float(replicas))
    network, whole = network_bytes_per_s(cluster), 0.0
    if isinstance(read, str):
        tier = storage_tier("read", read, float(cluster.nodes))
        if not tier.node_read:
            known = ", ".join(name for name in storage_tiers() if name != read)
            raise ScaleModelError(f"read={read!r}: holds no data set; must be one of {known}")
        rate, whole = tier.node_read, tier.shared_read
        network = 0.0 if tier.on_nodes else network
    else:
        rate = checked("read", read, 1, 1e15)
    if shared is not None:
        whole = checked("shared_bytes_per_s", shared, 0, 1e18)
    each = int(cluster.core.node_accelerators)
    own = _facts().sub("node").number("cores") * each if cores is None else cores
    return _core.DataPath(
        nodes=nodes,
        devices=replicas,
        cores=checked("cores", own, 1e-3, 1e6),
        node_storage_bytes_per_s=rate,
        shared_bytes_per_s=whole,
        node_network_bytes_per_s=network,
        host_link_bytes_per_s=host_link_bytes_per_s(cluster),
    )
