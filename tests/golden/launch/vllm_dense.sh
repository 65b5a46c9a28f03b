# vLLM 0.8 and later (V1 engine): options of 0.24.0
# the plan has 4 replicas, each started so
vllm serve meta-llama/Meta-Llama-3-70B-Instruct --tensor-parallel-size 4 --max-model-len 2500 --max-num-seqs 256 --max-num-batched-tokens 8192 --enable-chunked-prefill --gpu-memory-utilization 0.9 --block-size 16 --dtype bfloat16 --quantization fp8 --kv-cache-dtype fp8 --no-enable-prefix-caching
