"""Models of layer groups: composed, laid out group by group, estimated.

A model is an ordered list of groups (`compose`); a `GroupStrategy` gives each its mesh; the usual
verbs take both:

>>> import scalemodel as sm
>>> model = sm.compose("tiny_dlrm", groups=[
...     sm.EmbeddingTables(name="embedding", tables=64, rows=1e6, dim=128, pooling=20),
...     sm.Mlp(name="bottom_mlp", widths=(1024, 512, 128), after=()),
...     sm.Interaction(name="interaction", features=65, dim=128, after=("embedding", "bottom_mlp")),
...     sm.Mlp(name="top_mlp", widths=(2208, 1024, 1024, 1)),
... ])
>>> plan = sm.GroupStrategy({"embedding": "table_wise", "mlp": "ddp"})
>>> task = sm.Training(global_batch=65536, sequence=1, precision="tf32")
>>> est = sm.estimate(model, sm.cluster("zionex", nodes=2), task, plan)
>>> est.verdict, est.meshes["embedding"]
('ok', 'table_wise@16')
"""

from __future__ import annotations

from scalemodel.layer_groups.estimate import GroupEstimate
from scalemodel.layer_groups.group import Group
from scalemodel.layer_groups.layers import (
    Convolution,
    EmbeddingTables,
    Head,
    Interaction,
    Mlp,
    PatchEmbedding,
    TokenEmbedding,
    Transformer,
)
from scalemodel.layer_groups.model import ComposedModel, compose
from scalemodel.layer_groups.strategy import BatchInference, GroupStrategy

__all__ = [
    "BatchInference",
    "ComposedModel",
    "Convolution",
    "EmbeddingTables",
    "Group",
    "GroupEstimate",
    "GroupStrategy",
    "Head",
    "Interaction",
    "Mlp",
    "PatchEmbedding",
    "TokenEmbedding",
    "Transformer",
    "compose",
]
