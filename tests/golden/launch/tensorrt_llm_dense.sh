# TensorRT-LLM 1.1 and later, PyTorch backend: options of 1.2
# the plan has 4 replicas, each started so
cat > options.yaml <<'END'
kv_cache_config:
  free_gpu_memory_fraction: 0.95
  tokens_per_block: 32
  dtype: fp8
  enable_block_reuse: false
END
trtllm-serve meta-llama/Meta-Llama-3-70B-Instruct --backend pytorch --tp_size 4 --pp_size 1 --max_seq_len 2500 --max_batch_size 256 --max_num_tokens 8192 --extra_llm_api_options options.yaml
