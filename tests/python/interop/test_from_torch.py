"""Modules of PyTorch as models: the same parameters, the same operations, nothing run for real."""

from __future__ import annotations

import copy
import itertools
import pickle
from typing import Any

import pytest

import scalemodel as sm

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
nn = torch.nn

pytestmark = pytest.mark.filterwarnings("ignore")
CLUSTER = sm.cluster("dgx_h100")


def operations(module: Any, inputs: tuple[Any, ...]) -> float:
    """What PyTorch's own counter counts of a forward pass."""
    from torch.utils.flop_counter import FlopCounterMode

    moved = copy.deepcopy(module).to("meta")
    with FlopCounterMode(display=False) as counter:
        moved(*(each.to("meta") for each in inputs))
    return float(counter.get_total_flops())


def parameters(module: Any) -> int:
    return sum(each.numel() for each in module.parameters())


def forward_flop(model: sm.ComposedModel) -> float:
    """Of one sample."""
    return sum(group.core.forward_flop(1) for group in model.groups)


class Block(nn.Module):  # type: ignore[misc, name-defined, unused-ignore]
    """A pre-norm transformer block with attention of PyTorch's own."""

    def __init__(self, width: int, heads: int, causal: bool = False) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Any) -> Any:
        b, s, w = x.shape
        q, k, v = (
            part.view(b, s, self.heads, w // self.heads).transpose(1, 2)
            for part in self.qkv(self.before(x)).chunk(3, dim=-1)
        )
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.out(y.transpose(1, 2).reshape(b, s, w))
        return x + self.mlp(self.after(x))


class Tower(nn.Module):  # type: ignore[misc, name-defined, unused-ignore]
    """Patches, equal blocks, a head."""

    def __init__(self, depth: int = 6, width: int = 64, causal: bool = False) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, width, 8, stride=8)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.position = nn.Parameter(torch.zeros(1, 17, width))
        self.blocks = nn.ModuleList([Block(width, 4, causal) for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x: Any) -> Any:
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1) + self.position
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


class Clicks(nn.Module):  # type: ignore[misc, name-defined, unused-ignore]
    """A recommendation model: bags, two MLPs, all pairs."""

    def __init__(self) -> None:
        super().__init__()
        self.bags = nn.ModuleList([nn.EmbeddingBag(1000 * (i + 1), 16) for i in range(4)])
        self.bottom = nn.Sequential(nn.Linear(13, 64), nn.ReLU(), nn.Linear(64, 16))
        self.top = nn.Sequential(nn.Linear(26, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, dense: Any, ids: Any) -> Any:
        rows = [self.bottom(dense), *(bag(ids) for bag in self.bags)]
        features = torch.stack(rows, dim=1)
        pairs = torch.bmm(features, features.transpose(1, 2)).flatten(1)
        return self.top(torch.cat([rows[0], pairs[:, :10]], dim=1))


class Tied(nn.Module):  # type: ignore[misc, name-defined, unused-ignore]
    """Tokens in and out through the same table."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(500, 32)
        self.layer = nn.Linear(32, 32, bias=False)
        self.head = nn.Linear(32, 500, bias=False)
        self.head.weight = self.table.weight

    def forward(self, ids: Any) -> Any:
        return self.head(self.layer(self.table(ids)))


def mlp() -> Any:
    return nn.Sequential(
        nn.Linear(48, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, 5)
    )


def convolutions() -> Any:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, groups=4),
        nn.GroupNorm(4, 32),
        nn.ConvTranspose2d(32, 8, 4, stride=2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 4),
    )


IMAGES = (torch.zeros(4, 3, 32, 32),)
CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "mlp": (mlp(), (torch.zeros(7, 48),)),
    "mlp over tokens": (mlp(), (torch.zeros(7, 11, 48),)),
    "convolutions": (convolutions(), IMAGES),
    "tower": (Tower(), IMAGES),
    "recommendation": (Clicks(), (torch.zeros(8, 13), torch.zeros(8, 5, dtype=torch.long))),
    "tied": (Tied(), (torch.zeros(2, 9, dtype=torch.long),)),
    "encoder": (
        nn.TransformerEncoder(
            nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), 3, enable_nested_tensor=False
        ),
        (torch.zeros(2, 10, 32),),
    ),
    "transformer": (
        nn.Transformer(32, 4, 2, 2, 64, batch_first=True),
        (torch.zeros(2, 10, 32), torch.zeros(2, 7, 32)),
    ),
    "recurrent": (nn.LSTM(16, 24, 2, batch_first=True), (torch.zeros(3, 6, 16),)),
}


@pytest.mark.parametrize("case", CASES)
def test_parameters_and_operations_are_those_of_pytorch(case: str) -> None:
    module, inputs = CASES[case]
    model = sm.from_torch(module, inputs)
    assert model.parameters == parameters(module)
    samples = inputs[0].shape[0]
    assert forward_flop(model) == pytest.approx(operations(module, inputs) / samples, rel=1e-9)


@pytest.mark.parametrize("case", CASES)
def test_the_number_of_samples_changes_nothing(case: str) -> None:
    module, inputs = CASES[case]
    doubled = tuple(torch.cat([each, each]) for each in inputs)
    one, other = (sm.from_torch(module, given) for given in (inputs, doubled))
    assert forward_flop(one) == pytest.approx(forward_flop(other), rel=1e-12)
    assert one.parameters == other.parameters


@pytest.mark.parametrize("case", CASES)
def test_a_step_of_it_can_be_estimated(case: str) -> None:
    model = sm.from_torch(*CASES[case])
    task = sm.Training(global_batch=4096, sequence=1)
    for mesh in ("ddp", "fsdp"):
        layers = [slot.name for slot in model.slots]
        plan = sm.GroupStrategy(
            {name: "table_wise" if name == "tables" else mesh for name in layers}
        )
        est = sm.estimate(model, CLUSTER, task, plan)
        assert est.verdict == "ok"
        assert est.step_time_s > 0


def test_equal_blocks_are_one_group() -> None:
    model = sm.from_torch(Tower(depth=12), IMAGES)
    (blocks,) = [group for group in model.groups if getattr(group, "layers", 1) > 1]
    assert isinstance(blocks, sm.RecordedLayers)
    assert blocks.layers == 12
    assert blocks.tokens == 17
    attention = [op for _, _, ops in blocks.units for op in ops if op.kind == "attention"]
    assert [(op.heads, op.width, op.causal) for op in attention] == [(4, 16, False)]
    assert len(model.groups) == 3


def test_causal_attention_is_half_of_it() -> None:
    """PyTorch counts the masked half, which no kernel need compute."""
    full, causal = (forward_flop(sm.from_torch(Tower(causal=c), IMAGES)) for c in (False, True))
    scores = 6 * 4 * 17 * 17 * 64
    assert full - causal == pytest.approx(scores / 2, rel=0.1)


def test_a_vision_transformer_is_that_of_the_catalogue() -> None:
    """Written in PyTorch and imported, or as an entry: the step takes the same time."""

    class Vision(Tower):
        def __init__(self) -> None:
            super().__init__(depth=12, width=768)
            self.patch = nn.Conv2d(3, 768, 16, stride=16)
            self.position = nn.Parameter(torch.zeros(1, 197, 768))
            self.blocks = nn.ModuleList([Block(768, 12) for _ in range(12)])
            self.head = nn.Linear(768, 1000)

    with torch.device("meta"):
        module = Vision()
    model = sm.from_torch(module, torch.zeros(1, 3, 224, 224, device="meta"))
    entry = sm.compose("vit_b")
    assert model.parameters == pytest.approx(entry.parameters, rel=1e-3)
    task = sm.Training(global_batch=4096, sequence=197)
    mine, theirs = (
        sm.estimate(each, CLUSTER, task, sm.GroupStrategy({s.name: "ddp" for s in each.slots}))
        for each in (model, entry)
    )
    assert mine.step_time_s == pytest.approx(theirs.step_time_s, rel=0.01)


def test_models_travel() -> None:
    model = sm.from_torch(Tower(), IMAGES, name="tower")
    assert pickle.loads(pickle.dumps(model)) == model
    assert hash(model) == hash(sm.from_torch(Tower(), IMAGES, name="tower"))
    assert model.freeze("blocks_0").groups[1].trained is False


def test_weights_stay_where_they_are() -> None:
    module = mlp()
    before = [each.clone() for each in module.parameters()]
    sm.from_torch(module, torch.zeros(7, 48))
    assert all(torch.equal(a, b) for a, b in zip(before, module.parameters(), strict=True))
    assert not any(each.is_meta for each in module.parameters())
    assert not module._forward_hooks


@pytest.mark.parametrize(
    "module, inputs, message",
    [
        ("net", torch.zeros(1), "module=str: must be a torch.nn.Module"),
        (mlp(), 3, "example_inputs: must hold a tensor"),
        (mlp(), torch.zeros(2, 9), "does not run on the meta device .*9"),
        (nn.ReLU(), torch.zeros(2, 9), "nothing in it multiplies"),
    ],
)
def test_what_cannot_be_imported_is_told(module: Any, inputs: Any, message: str) -> None:
    with pytest.raises(sm.ScaleModelError, match=message):
        sm.from_torch(module, inputs)


def test_too_many_different_layers_are_told() -> None:
    widths = list(range(10, 10 + 70 * 16))
    module = nn.Sequential(*(nn.Linear(a, b) for a, b in itertools.pairwise(widths)))
    with pytest.raises(sm.ScaleModelError, match="equal blocks into a Sequential"):
        sm.from_torch(module, torch.zeros(1, 10))
