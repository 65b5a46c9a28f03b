"""Configurations of 2025-26 are read without the transformers library, to the published counts.

`configs_2026.json` holds, per model, the keys of its ``config.json`` that bear on its shape and the
parameters that the reference class counts (in billions; `formula`: no class is public). All files
of ``configs_2026`` are read where ``SCALEMODEL_DATA`` names a folder that has them.
"""

from __future__ import annotations

import csv
import json
import warnings
from pathlib import Path
from typing import Any

import pytest

import scalemodel as sm
from reference.corpora import given
from scalemodel.base.errors import ScaleModelError
from scalemodel.cli import main
from scalemodel.resolve.hugging_face import architecture_from_config

HERE = Path(__file__).parent
MODELS: list[dict[str, Any]] = json.loads((HERE / "configs_2026.json").read_text("utf-8"))
ROUTED = [facts for facts in MODELS if facts["active"] is not None]
#: Whole configurations, where the environment names a folder that has them.
FOLDER = next(
    (at / "configs_2026" for at in [given()] if at and (at / "configs_2026").is_dir()), None
)
each_model = pytest.mark.parametrize("facts", MODELS, ids=[m["model"] for m in MODELS])

#: Router outputs of LongCat that pass a token on count as experts of a token in its class, which so
#: gives the most a token may meet; here is their mean, as its report has it (27 B of 19 to 31).
MEAN_OF_ZERO_EXPERTS = {"meituan-longcat/LongCat-Flash-Chat": 27.955}


def read(config: dict[str, Any]) -> sm.Model:
    """The model of a configuration, whatever keys of its format are left out."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return sm.model(config)


@each_model
def test_total_parameters_are_those_counted(facts: dict[str, Any]) -> None:
    assert read(facts["config"]).parameters / 1e9 == pytest.approx(facts["total"], rel=0.001)


@pytest.mark.parametrize("facts", ROUTED, ids=[m["model"] for m in ROUTED])
def test_active_parameters_are_those_counted(facts: dict[str, Any]) -> None:
    active = MEAN_OF_ZERO_EXPERTS.get(facts["model"], facts["active"])
    assert read(facts["config"]).active_parameters / 1e9 == pytest.approx(active, rel=0.005)


if FOLDER is not None:

    def test_every_given_configuration_is_read() -> None:
        with (FOLDER / "index.csv").open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        far = []
        for row in rows:
            counted = float(row["counted_total_B"])
            config = json.loads((FOLDER / row["file"]).read_text("utf-8"))
            if abs(read(config).parameters / 1e9 / counted - 1) > 0.005:
                far.append(row["file"])
        assert far == []


def test_an_unknown_key_is_named() -> None:
    config = {**MODELS[0]["config"], "new_kind_of_router_width": 3}
    assert "new_kind_of_router_width" in architecture_from_config(config)[1]


@pytest.mark.parametrize(
    ("says", "position", "unknown"),
    [("nope", "none", False), ("rope", "rope", False), ("relative", "rope", True)],
)
def test_layers_without_positions_rotate_nothing(says: str, position: str, unknown: bool) -> None:
    config = next(m for m in MODELS if m["config"]["model_type"] == "granitemoehybrid")["config"]
    read, unread = architecture_from_config({**config, "position_embedding_type": says})
    assert read["position"] == position
    assert ("position_embedding_type" in unread) is unknown


def test_an_unknown_family_of_a_known_shape_is_read_as_that_and_says_so() -> None:
    config = next(m for m in MODELS if m["config"]["model_type"] == "deepseek_v32")["config"]
    strange = {**config, "model_type": "a_new_family"}
    with pytest.raises(ScaleModelError, match="a_new_family"):
        sm.model(strange)
    with pytest.warns(UserWarning, match="unknown family read as latent attention with experts"):
        model = sm.model(strange, approximate=True)
    assert model.parameters == pytest.approx(read(config).parameters, rel=1e-6)
    assert "latent attention with experts" in model.title


@pytest.fixture(scope="module")
def strange() -> sm.Model:
    config = next(m for m in MODELS if m["config"]["model_type"] == "deepseek_v32")["config"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return sm.model({**config, "model_type": "a_new_family"}, approximate=True)


def test_every_answer_says_what_an_unknown_family_was_read_as(strange: sm.Model) -> None:
    says = "read as latent attention with experts"
    cluster = sm.cluster("dgx_h200", nodes=16)
    task = sm.Training(global_batch=128, sequence=4096, precision="fp8")
    est = sm.estimate(strange, cluster, task, sm.Strategy(tp=8, ep=16))
    assert says in repr(est)
    assert says in str(est.explain())
    assert says in est._repr_html_()
    assert says in est.message()
    found = sm.search(strange, cluster, task, sm.Space(tp=[8], ep=[8, 16], pp=[4]))
    assert says in str(found)
    inference = sm.Inference(input_tokens=1000, output_tokens=100, precision="fp8")
    plan = sm.serve(strange, "dgx_h200", inference, sm.ServingLayout(tp=8), concurrency=8)
    assert says in repr(plan)
    assert says in plan.note
    assert strange.name in strange.label
    assert says in strange.label


def test_the_command_line_reads_an_unknown_family_where_asked_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = next(m for m in MODELS if m["config"]["model_type"] == "deepseek_v32")["config"]
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**config, "model_type": "a_new_family"}), "utf-8")
    question = [str(path), "--cluster", "dgx_h200", "--nodes", "16", "--global-batch", "128"]
    question += ["--sequence", "4096", "--precision", "fp8", "--tp", "8", "--ep", "16"]
    assert main(["estimate", *question]) == 2
    assert "a_new_family" in capsys.readouterr().err
    main(["estimate", *question, "--approximate"])
    assert "read as latent attention with experts" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("hybrid_override_pattern", "MEM", "3 letters"),
        ("hybrid_override_pattern", "X" * 52, "letters of"),
        ("ssm_state_size", 0, "ssm_state_size"),
        ("n_groups", 7, "scan_groups=7: must divide"),
    ],
)
def test_what_no_hybrid_can_have_is_refused(key: str, value: object, message: str) -> None:
    config = next(m for m in MODELS if "hybrid_override_pattern" in m["config"])["config"]
    with pytest.raises(ScaleModelError, match=message):
        read({**config, key: value})
