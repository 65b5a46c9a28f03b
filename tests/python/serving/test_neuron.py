"""Serving on Trainium: an engine of its own, of which no constant was fitted."""

from __future__ import annotations

import pytest

import scalemodel as sm
from scalemodel.resolve.engines import engine_for

#: Published by aws-neuron/aws-neuron-sdk: libraries/nxd-inference/tutorials,
#: llama70b_perf_comparison.csv and llama405b_perf_comparison.csv (Trn2, BF16, one sequence of
#: 10,000 tokens and 1,500 more); general/benchmarks/trn1/trn1_throughput_data_LLM.csv (release
#: 2.14); general/benchmarks/inf2, latency_data_LLM.csv and throughput_data_LLM.csv (2.13).
#: Model, cluster, devices, sequences, tokens in and out, milliseconds per token.
TOKEN_TIMES = [
    ("llama3.3-70b", "aws_trn2", 16, 1, 10_000, 1_500, 19.8),
    ("llama3.1-405b", "aws_trn2", 16, 1, 10_000, 1_500, 37.9),
    ("opt_13b", "aws_trn1", 4, 256, 9, 119, 59.4),
    ("opt_30b", "aws_trn1", 4, 256, 9, 119, 96.9),
    ("opt_13b", "aws_inf2", 4, 1, 9, 2_039, 19.8),
    ("opt_30b", "aws_inf2", 4, 1, 9, 2_039, 40.1),
    ("opt_66b", "aws_inf2", 12, 1, 9, 2_039, 35.4),
    ("opt_13b", "aws_inf2", 4, 256, 9, 119, 76.2),
    ("opt_30b", "aws_inf2", 4, 256, 9, 119, 141.8),
    ("opt_66b", "aws_inf2", 12, 256, 9, 119, 122.4),
]


@pytest.mark.parametrize("label", ["vLLM 0.9 (Neuron)", "NxD Inference", "vllm-neuron", "neuronx"])
def test_neuron_is_an_engine_of_its_own(label: str) -> None:
    assert engine_for(label) == "neuronx_2025"


def test_times_per_token_on_trainium() -> None:
    errors = []
    for model, cluster, tp, concurrency, given, wanted, measured_ms in TOKEN_TIMES:
        plan = sm.serve(
            model,
            cluster,
            sm.Inference(input_tokens=given, output_tokens=wanted),
            sm.ServingLayout(tp=tp),
            engine="neuronx_2025",
            concurrency=concurrency,
            replicas=1,
        )
        errors.append(1e3 * plan.tpot_s / measured_ms - 1)
    # Releases of 2023 read weights at half of the bandwidth: all six of Inferentia2 come too fast.
    assert max(map(abs, errors)) < 0.32
    assert sum(map(abs, errors)) / len(errors) < 0.18


@pytest.mark.parametrize(
    ("model", "measured_ms"), [("llama3.3-70b", 575.6), ("llama3.1-405b", 2442.0)]
)
def test_prompts_on_trainium_are_padded_to_their_bucket(model: str, measured_ms: float) -> None:
    """Buckets are powers of two up to the longest context, of 12,288 tokens in these runs.

    Their 10,000 tokens alone would be 30 % too fast. The first token in the same tables; buckets of
    libraries/nxd-inference/tutorials/trn2-llama3.3-70b-tutorial.rst: --max-context-length 12288.
    """
    task = sm.Inference(input_tokens=12_288, output_tokens=1_500)
    plan = sm.serve(
        model,
        "aws_trn2",
        task,
        sm.ServingLayout(tp=16),
        engine="neuronx_2025",
        concurrency=1,
        replicas=1,
    )
    assert 1e3 * plan.ttft_s == pytest.approx(measured_ms, rel=0.15)
