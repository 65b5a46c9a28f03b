"""Expert kernels that were timed on another part of the same architecture."""

from __future__ import annotations

from pathlib import Path

import pytest

from scalemodel import catalog
from scalemodel.resolve.engine_kernels import expert_kernel, in_a_model

ENTRY = Path(catalog.__file__).parent / "accelerators" / "h20.toml"


def own(folder: Path, *left_out: str) -> str:
    """An entry like H20's of another name, without some of its lines."""
    kept = [
        line
        for line in ENTRY.read_text(encoding="utf-8").splitlines()
        if not line.startswith(("name", "aliases", *left_out))
    ]
    (folder / "accelerators").mkdir()
    text = "\n".join(['name = "own_part"', *kept]) + "\n"
    (folder / "accelerators" / "own_part.toml").write_text(text, encoding="utf-8")
    return "own_part"


@pytest.mark.parametrize(("left_out", "moves"), [((), True), (("clock",), False)])
def test_only_a_stated_pace_moves_a_kernel(
    left_out: tuple[str, ...], moves: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCALEMODEL_CATALOG_PATH", str(tmp_path))
    name = own(tmp_path, *left_out)
    timed = expert_kernel(name, "bfloat16", {"engine": "vllm"})
    fraction = in_a_model(timed, name).compute_fraction
    like_h20 = in_a_model(expert_kernel("h20", "bfloat16", {"engine": "vllm"}), "h20")
    assert like_h20.compute_fraction > timed.record.compute_fraction
    assert fraction == (like_h20 if moves else timed.record).compute_fraction
