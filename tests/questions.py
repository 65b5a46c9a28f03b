"""Questions and checks that several test files share."""

from __future__ import annotations

import html.parser
from typing import Any

import scalemodel as sm
from scalemodel import catalog

TASK = sm.Training(global_batch=1024, sequence=8192)

DENSE, ROUTED = "llama3_70b", "mixtral_8x7b"
SMALL = sm.Training(global_batch=48, sequence=8192)
ILLEGAL: dict[str, tuple[str, int, sm.Training, dict[str, Any]]] = {
    "mesh": (DENSE, 64, TASK, {"tp": 7}),
    "tp_heads": (DENSE, 6, SMALL, {"tp": 12}),
    "tp_ffn": ("tp_ffn", 1, SMALL, {"tp": 8}),
    "pp_layers": (DENSE, 64, TASK, {"pp": 128}),
    "vpp_without_pp": (DENSE, 64, TASK, {"vpp": 2}),
    "vpp_schedule": (DENSE, 64, TASK, {"tp": 8, "pp": 4, "vpp": 2, "schedule": "gpipe"}),
    "dualpipe_stages": (DENSE, 3, SMALL, {"tp": 8, "pp": 3, "schedule": "dualpipe"}),
    "dualpipe_v_batches": (DENSE, 64, SMALL, {"tp": 8, "pp": 4, "schedule": "dualpipe_v"}),
    "cp_sequence": (DENSE, 3, SMALL, {"cp": 3}),
    "cp_heads": (DENSE, 64, TASK, {"tp": 8, "cp": 64, "context": "all_to_all"}),
    "sp_sequence": (DENSE, 1, sm.Training(global_batch=48, sequence=8190), {"tp": 8}),
    "ep_experts": (DENSE, 64, TASK, {"ep": 8}),
    "ep_mesh": (ROUTED, 1, SMALL, {"tp": 4, "pp": 2, "ep": 8, "etp": 1}),
    "etp_ffn": (ROUTED, 64, TASK, {"tp": 8, "etp": 3}),
    "batch": (DENSE, 64, sm.Training(global_batch=1000, sequence=8192), {"tp": 8, "pp": 4}),
    "shard_degree": (DENSE, 64, TASK, {"tp": 8, "sharding": "hsdp", "shard_degree": 48}),
    "quantized_sharding": (DENSE, 64, TASK, {"tp": 8, "quantized_gather": True}),
    "secondary_degree": (DENSE, 64, TASK, {"tp": 8, "sharding": "zero3", "secondary_degree": 48}),
    "recompute_layers": (
        DENSE,
        64,
        TASK,
        {"tp": 8, "pp": 4, "recompute": "full", "recompute_layers": 100},
    ),
    "precision": (
        DENSE,
        64,
        sm.Training(global_batch=1024, sequence=8192, precision="fp4"),
        {"tp": 8, "pp": 4},
    ),
    "offload": (
        "llama3_1_405b",
        1,
        sm.Training(global_batch=8, sequence=8192),
        {"sharding": "ddp", "offload_optimizer": True},
    ),
}


def illegal_estimate(reason: str) -> sm.Estimate:
    name, nodes, task, knobs = ILLEGAL[reason]
    model: Any = name
    if name == "tp_ffn":
        shape = {**catalog.load("models", DENSE)["architecture"], "ffn": 28668}
        model = {"name": "odd_width", "architecture": shape}
    return sm.estimate(model, sm.cluster("dgx_h100", nodes=nodes), task, sm.Strategy(**knobs))


class Markup(html.parser.HTMLParser):
    """Checks that tags are balanced and remembers what they were."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.attributes += attrs
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def checked_markup(text: str) -> Markup:
    markup = Markup()
    markup.feed(text)
    assert not markup.open
    # Self-contained: nothing is fetched, nothing runs.
    assert not {"script", "link", "img", "iframe"} & set(markup.seen)
    assert not {"src", "href", "onclick"} & {name for name, _ in markup.attributes}
    return markup
