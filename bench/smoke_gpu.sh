#!/bin/sh
# smoke_gpu.sh ADJOIN_BENCH STANDIN: the cases of --device cuda run on the tests' stand-in for NVIDIA's libraries, and both sides come to the same numbers. No
# time is judged, and none means anything there.
set -u
bench=$1
standin=$(readlink -f "$2")
mpiexec=${MPIEXEC:-mpiexec}
export HWLOC_PLUGINS_PATH=/nonexistent OPENBLAS_NUM_THREADS=1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failures=0

fail() {
    echo "FAIL: $*"
    failures=$((failures + 1))
}

# Without the libraries: skipped, and it says so. On a machine that has a GPU this says nothing.
if ! ldconfig -p 2>/dev/null | grep -q 'libcuda\.so\.1'; then
    message=$("$bench" --device cuda 2>&1)
    status=$?
    [ $status -eq 77 ] || fail "without a GPU: exit status $status instead of 77"
    case $message in
    *"--device cuda: no GPU: "*libcuda.so.1*) ;;
    *) fail "without a GPU: the message is '$message'" ;;
    esac
fi

for name in libcuda.so.1 libnvrtc.so.13 libcublas.so.13; do
    ln -s "$standin" "$folder/$name"
done
export LD_LIBRARY_PATH="$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"

all=$("$bench" --device cuda --help | sed -n '/^Cases:/,/^$/s/^  \([a-z_-]*\) .*/\1/p')
[ -n "$all" ] || fail "--help lists no cases"
number='[0-9]+(\.[0-9]+)?(e[+-][0-9]+)?'
for ranks in 1 2; do
    output=$("$mpiexec" -n $ranks "$bench" --device cuda --json --samples 1 --n 37) || fail "exit status $? on $ranks ranks"
    echo "$output"
    line="\\{\"case\": \"cuda_[a-z_-]+\", \"np\": $ranks, \"n\": 37, \"raw_us\": $number, \"adjoin_us\": $number, \"ratio\": $number, \"peak_bytes\": [1-9][0-9]*\\}"
    echo "$output" | grep -Evx "$line" && fail "lines that are not the JSON expected, on $ranks ranks"
    [ "$(echo "$output" | sed 's/^{"case": "\([^"]*\)".*/\1/')" = "$all" ] || fail "not one line for each case, on $ranks ranks"
done
[ "$("$bench" --device cuda --case cuda_sum --samples 1 --n 1,2 | grep -c '^cuda_sum')" -eq 4 ] || fail "--case cuda_sum with two sizes has not four lines"
[ -z "$("$bench" --device cuda --repeat 2 --n 3)" ] || fail "--repeat prints something"
"$bench" --device gpu 2>/dev/null
[ $? -eq 2 ] || fail "--device gpu goes through"
[ $failures -eq 0 ]
