#!/usr/bin/env bash
# Hours rather than seconds: fuzzing guided by coverage, the thread sanitizer, mutation testing.
#   tests/fuzz/long.sh [fuzz|importers|threads|mutation]...   (default: all)
# RUNS: executions of each fuzzer (default 20,000,000 and 200,000); WORK: folder for builds.
set -euo pipefail
cd "$(dirname "$0")/../.."
root=$PWD
work=${WORK:-${TMPDIR:-/tmp}/scalemodel_long}
mkdir -p "$work"

configure() {  # configure NAME OPTIONS...
  local name=$1
  shift
  cmake -S . -B "$work/$name" -G Ninja -DSCALEMODEL_BINDINGS=OFF \
    -DCMAKE_PREFIX_PATH="$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" \
    "$@" >/dev/null
}

fuzz() {  # evaluate, under the address and undefined-behaviour sanitizers, on every processor
  configure fuzz -DCMAKE_BUILD_TYPE=Release -DSCALEMODEL_SANITIZE=ON -DSCALEMODEL_FUZZ=ON \
    -DSCALEMODEL_FUZZ_COVERAGE=ON
  cmake --build "$work/fuzz" --target scalemodel_fuzz
  python3 tests/fuzz/records.py "$work/records.txt"
  export SCALEMODEL_FUZZ_RECORDS=$work/records.txt
  # Stacks of allocations and long quarantine cost half of the time and find nothing more here.
  export ASAN_OPTIONS=malloc_context_size=2:quarantine_size_mb=16
  local processors part runs=${RUNS:-20000000} jobs=()
  processors=$(nproc)
  for ((part = 1; part <= processors; ++part)); do
    mkdir -p "$work/part$part"
    cp -rn tests/fuzz/corpus/evaluate "$work/part$part/"
    (cd "$work/part$part" &&
      "$work/fuzz/scalemodel_fuzz" -runs=$((runs / processors)) -seed="$part$(date +%s)" \
        -max_len=1024 evaluate) &
    jobs+=($!)
  done
  for part in "${jobs[@]}"; do wait "$part"; done
}

importers() {  # what reads others' files; guided where atheris is installed
  cp -rn tests/fuzz/corpus/importers "$work/"
  (cd "$work" && python3 "$root/tests/fuzz/importers.py" -runs="${RUNS:-200000}" -max_len=128 importers)
}

threads() {  # searches, sweeps and serving searches of the C++ tests
  configure threads -DCMAKE_BUILD_TYPE=Debug -DSCALEMODEL_TESTS=ON \
    -DCMAKE_CXX_FLAGS="-fsanitize=thread -O1"
  cmake --build "$work/threads" --target scalemodel_tests
  "$work/threads/scalemodel_tests" --no-colors=true --test-case="*thread*,*team*,*exception of a worker*,*poll*,*sweep*,*search*"
}

mutation() {  # formulas: does a test notice a changed sign?
  configure mutation -DCMAKE_BUILD_TYPE=Debug -DSCALEMODEL_TESTS=ON
  local file status=0 build="$work/mutation"
  for file in cpp/scalemodel/{schedule,economics,collectives,estimator,power,ops}/*.cpp; do
    python3 tests/fuzz/mutate.py "$file" "${MUTANTS:-20}" sh -c \
      "cmake --build $build --target scalemodel_tests && $build/scalemodel_tests" || status=1
  done
  for file in base/units search/pareto estimator/uncertainty estimator/comparison; do
    python3 tests/fuzz/mutate.py "python/scalemodel/$file.py" "${MUTANTS:-20}" \
      python3 -m pytest -q -x "tests/python/${file%/*}/test_${file#*/}.py" || status=1
  done
  return $status
}

(($#)) || set -- fuzz importers threads mutation
for step in "$@"; do
  echo "===== $step"
  "$step"
done
