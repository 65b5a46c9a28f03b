"""The small decoder whose matrices are split is the decoder whose matrices are whole."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch (extra torch) is not installed"
)

# Both ranks cut their matrices out of the same whole ones: rows of what makes columns, columns of
# what adds up, biases of sums in halves.
_RANK = """
import json, sys
import torch
from scalemodel.calibration.transformers import modules

rank, meet = int(sys.argv[1]), sys.argv[2]
torch.distributed.init_process_group("gloo", init_method=meet, rank=rank, world_size=2)
sizes = {"layers": 2, "hidden": 32, "heads": 4, "ffn": 64, "vocab": 64, "positions": 16}
stage_of = modules(torch)
torch.manual_seed(0)
whole, split = stage_of(sizes, 1, 0, 1), stage_of(sizes, 2, 0, 1)
cells = {}
for name, own in split.state_dict().items():
    cell = whole.state_dict()[name]
    if "qkv" in name:
        cell = torch.cat([part.chunk(2)[rank] for part in cell.chunk(3)])
    elif cell.shape != own.shape:
        axis = next(i for i in range(cell.dim()) if cell.shape[i] != own.shape[i])
        cell = cell.chunk(2, axis)[rank]
    elif name.endswith(("out.bias", "down.bias")):
        cell = cell / 2
    cells[name] = cell.clone()
split.load_state_dict(cells)
tokens = torch.randint(sizes["vocab"], (2, 16))
found = []
for stage in (whole, split):
    loss = stage.loss(stage(tokens), tokens)
    loss.backward()
    gradients = (stage.norm.weight.grad, stage.places.weight.grad)
    found.append([loss.item(), *(one.abs().sum().item() for one in gradients)])
print(json.dumps(found))
"""


def test_split_matrices_give_the_loss_and_gradients_of_whole_ones(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _RANK]
    meet = f"file://{tmp_path}/meet"
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    started = [
        subprocess.Popen([*command, str(rank), meet], stdout=subprocess.PIPE, env=environment)
        for rank in range(2)
    ]
    for process in started:
        text, _ = process.communicate(timeout=120)
        whole, split = json.loads(text)
        assert split == pytest.approx(whole, rel=1e-5)
