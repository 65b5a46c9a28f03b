# SGLang 0.4 and later: options of 0.5.23
# the plan has 4 replicas, each started so
python -m sglang.launch_server --model-path meta-llama/Meta-Llama-3-70B-Instruct --tp-size 4 --context-length 2500 --max-running-requests 256 --chunked-prefill-size 8192 --mem-fraction-static 0.88 --page-size 1 --dtype bfloat16 --quantization fp8 --kv-cache-dtype fp8_e4m3 --disable-radix-cache
