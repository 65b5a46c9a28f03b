# TensorRT-LLM 1.1 and later, PyTorch backend: options of 1.2
# weights in fp8: deepseek-ai/DeepSeek-R1-0528 is stored in fp8_block and runs so
# the plan has 2 replicas, each started so
cat > options.yaml <<'END'
enable_attention_dp: true
kv_cache_config:
  free_gpu_memory_fraction: 0.95
  tokens_per_block: 32
  dtype: fp8
  enable_block_reuse: false
speculative_config:
  decoding_type: MTP
  num_nextn_predict_layers: 1
END
srun --mpi pmix --nodes 2 --ntasks 16 --ntasks-per-node 8 trtllm-llmapi-launch trtllm-serve deepseek-ai/DeepSeek-R1-0528 --backend pytorch --tp_size 16 --pp_size 1 --ep_size 16 --max_seq_len 2500 --max_batch_size 128 --max_num_tokens 2048 --extra_llm_api_options options.yaml --gpus_per_node 8
