"""What the parts of an answer rest on."""

from __future__ import annotations

import pytest

import scalemodel as sm
from scalemodel import catalog

BASES = {"measured", "borrowed", "data sheet", "assumed"}


def basis(model: str, accelerator: str, engine: str, **formats: str) -> dict[str, str]:
    table = sm.coverage(model, accelerator, engine, **formats)
    assert list(table.columns) == ["part", "basis", "accelerator", "detail"]
    assert table.part.is_unique
    assert set(table.basis) <= BASES
    return dict(zip(table.part, table.basis, strict=True))


def test_an_accelerator_of_the_benchmarks_is_measured() -> None:
    found = basis("llama3_8b", "h100_sxm_80", "vllm")
    assert found["linear layers"] == found["decode attention"] == "measured"
    assert found["CPU overhead of a step"] == "measured"
    assert "experts" not in found


def test_an_accelerator_that_was_never_timed_borrows() -> None:
    found = basis("qwen3_30b_a3b", "mi300x", "vllm", precision="fp8")
    assert found["experts"] == found["decode attention"] == "borrowed"


def test_one_accelerator_lends_to_its_sister() -> None:
    table = sm.coverage("deepseek_v3", "H800", "SGLang", precision="fp8").set_index("part")
    assert table.basis["experts of sent tokens"] == "measured"
    assert table.basis["token dispatch, between nodes"] == "measured"
    assert table.accelerator["decode attention"] == "h100_sxm_80"
    assert table.basis["CPU overhead of a step"] == "assumed"


def test_prompts_of_latent_attention_name_the_engine_that_stands_in() -> None:
    table = sm.coverage("deepseek_v3", "H100", "SGLang", precision="fp8").set_index("part")
    assert table.detail["prefill attention"].startswith("trtllm")
    assert table.basis["prefill attention"] == "borrowed"
    assert table.basis["decode attention"] == "measured"


@pytest.mark.parametrize("engine", catalog.names("engines"))
@pytest.mark.parametrize("accelerator", ["h20", "gb200", "a100_sxm_80", "tpu_v5p"])
def test_every_engine_is_covered_somehow(engine: str, accelerator: str) -> None:
    found = basis("deepseek_v3", accelerator, engine)
    assert {"linear layers", "experts", "prefill attention"} <= set(found)


def test_what_is_unknown_is_named() -> None:
    for arguments in (("nothing_8b", "H100"), ("llama3_8b", "Nothing-1"), ("llama3_8b", 100)):
        with pytest.raises(sm.ScaleModelError, match=r"othing|accelerator=100"):
            sm.coverage(*arguments)
    with pytest.raises(sm.ScaleModelError, match="precision='seven'"):
        sm.coverage("llama3_8b", "H100", precision="seven")
