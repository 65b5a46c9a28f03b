# SGLang 0.4 and later: options of 0.5.23
# the prefill pool has 2 replicas, each started so
# the decode pool has 3 replicas, each started so
# prefill-0, decode-0 and so on stand for the hosts of the pools' instances
# prefill
python -m sglang.launch_server --model-path Qwen/Qwen3-32B --tp-size 4 --context-length 2001 --max-running-requests 2048 --chunked-prefill-size 8192 --mem-fraction-static 0.88 --page-size 1 --dtype bfloat16 --quantization fp8 --kv-cache-dtype fp8_e4m3 --disable-radix-cache --disaggregation-mode prefill --disaggregation-transfer-backend nixl --disaggregation-bootstrap-port 8998 --host 0.0.0.0 --port 30000
# decode
python -m sglang.launch_server --model-path Qwen/Qwen3-32B --tp-size 2 --context-length 2500 --max-running-requests 2048 --chunked-prefill-size 8192 --mem-fraction-static 0.88 --page-size 1 --dtype bfloat16 --quantization fp8 --kv-cache-dtype fp8_e4m3 --disable-radix-cache --disaggregation-mode decode --disaggregation-transfer-backend nixl --host 0.0.0.0 --port 30100
# router
python -m sglang_router.launch_router --pd-disaggregation --prefill http://prefill-0:30000 8998 --prefill http://prefill-1:30000 8998 --decode http://decode-0:30100 --decode http://decode-1:30100 --decode http://decode-2:30100 --host 0.0.0.0 --port 8000
