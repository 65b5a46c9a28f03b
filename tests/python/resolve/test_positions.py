"""Sequences beyond the positions that a model has learned."""

from __future__ import annotations

import warnings

import pytest

import scalemodel as sm

WARNED = r"gpt2_xl has a table of 1024 learned positions.*must be at most 1024 tokens"


@pytest.fixture(scope="module")
def cluster() -> sm.Cluster:
    return sm.cluster("dgx_h100")


@pytest.mark.parametrize("sequence", [1, 512, 1024])
def test_sequences_that_fit_are_answered_without_a_word(cluster: sm.Cluster, sequence: int) -> None:
    task = sm.Training(global_batch=64, sequence=sequence)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert sm.estimate("gpt2_xl", cluster, task).verdict == "ok"
        assert len(sm.search("gpt2_xl", cluster, task, {"pp": 1, "cp": 1})) > 0


def test_a_longer_sequence_is_answered_with_a_warning(cluster: sm.Cluster) -> None:
    task = sm.Training(global_batch=64, sequence=4096)
    with pytest.warns(UserWarning, match="sequence=4096: " + WARNED):
        est = sm.estimate("gpt2_xl", cluster, task)
    with pytest.warns(UserWarning, match="sequence=4096: " + WARNED):
        best = sm.search("gpt2_xl", cluster, task, {"pp": 1, "cp": 1})[0]
    with pytest.warns(UserWarning, match="sequence=4096: " + WARNED):
        sm.sweep("gpt2_xl", cluster, task, {"pp": 1, "cp": 1, "tp": 1})
    assert est.verdict == best.verdict == "ok"


def test_a_table_as_long_as_the_sequence_needs_no_warning(cluster: sm.Cluster) -> None:
    shape = sm.model("gpt2_xl").shape.to_dict()
    longer = sm.model({"name": "longer", "architecture": {**shape, "positions": 4096}})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sm.estimate(longer, cluster, sm.Training(global_batch=64, sequence=4096))


def test_documents_of_a_pack_count_from_their_own_start(cluster: sm.Cluster) -> None:
    task = sm.Training(global_batch=8, sequence=4096, lengths=[100, 1024])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sm.estimate("gpt2_xl", cluster, task)
    with pytest.warns(UserWarning, match=WARNED):
        sm.estimate("gpt2_xl", cluster, task.replace(lengths=[100, 1025]))


def test_requests_count_with_their_answers(cluster: sm.Cluster) -> None:
    fits = sm.Inference(input_tokens=1000, output_tokens=24)
    assert sm.serve("gpt2_xl", cluster, fits).verdict == "ok"
    with pytest.warns(UserWarning, match="input_tokens=1000, output_tokens=25: " + WARNED):
        sm.serve("gpt2_xl", cluster, fits.replace(output_tokens=25))
    with pytest.warns(UserWarning, match=WARNED):
        sm.plan_serving("gpt2_xl", cluster, fits.replace(output_tokens=25), checked=False)


def test_other_positions_have_no_last_one(cluster: sm.Cluster) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        task = sm.Training(global_batch=8, sequence=131072)
        sm.estimate("llama3_8b", cluster, task, sm.Strategy(tp=8))
        sm.estimate("bloom_1_1b", cluster, task, sm.Strategy(tp=8))
