# vLLM 0.8 and later (V1 engine): options of 0.24.0
# VLLM_NIXL_SIDE_CHANNEL_HOST must be an address the other pool reaches
# the prefill pool has 2 replicas, each started so
# the decode pool has 3 replicas, each started so
# prefill-0, decode-0 and so on stand for the hosts of the pools' instances
# prefill
VLLM_NIXL_SIDE_CHANNEL_PORT=5600 vllm serve Qwen/Qwen3-32B --tensor-parallel-size 4 --max-model-len 2001 --max-num-seqs 1024 --max-num-batched-tokens 8192 --enable-chunked-prefill --gpu-memory-utilization 0.9 --block-size 16 --dtype bfloat16 --quantization fp8 --kv-cache-dtype fp8 --no-enable-prefix-caching --kv-transfer-config '{"kv_connector": "NixlConnector", "kv_role": "kv_both"}' --port 8100
# decode
VLLM_NIXL_SIDE_CHANNEL_PORT=5700 vllm serve Qwen/Qwen3-32B --tensor-parallel-size 2 --max-model-len 2500 --max-num-seqs 1024 --max-num-batched-tokens 8192 --enable-chunked-prefill --gpu-memory-utilization 0.9 --block-size 16 --dtype bfloat16 --quantization fp8 --kv-cache-dtype fp8 --no-enable-prefix-caching --kv-transfer-config '{"kv_connector": "NixlConnector", "kv_role": "kv_both"}' --port 8200
# router
vllm-router --vllm-pd-disaggregation --prefill http://prefill-0:8100 --prefill http://prefill-1:8100 --decode http://decode-0:8200 --decode http://decode-1:8200 --decode http://decode-2:8200 --host 0.0.0.0 --port 8000
