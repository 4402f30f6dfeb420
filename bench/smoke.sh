#!/bin/sh
# smoke.sh ADJOIN_BENCH: every case runs at a small size and prints the line it should; bad options are told. No time is judged.
set -u
bench=$1
mpiexec=${MPIEXEC:-mpiexec}
export HWLOC_PLUGINS_PATH=/nonexistent # plugins that are loaded and unloaded look like leaks to LeakSanitizer
export OPENBLAS_NUM_THREADS=1
failures=0

fail() {
    echo "FAIL: $*"
    failures=$((failures + 1))
}

number='[0-9]+(\.[0-9]+)?(e[+-][0-9]+)?'

# expect_lines RANKS N CASES OPTION...: one line of JSON for each of the cases; their numbers go together.
expect_lines() {
    ranks=$1 n=$2 cases=$3
    shift 3
    output=$("$mpiexec" -n "$ranks" "$bench" --json --samples 1 --n "$n" "$@") || fail "exit status $? on $ranks ranks, $*"
    echo "$output"
    line="\\{\"case\": \"[a-z_-]+\", \"np\": $ranks, \"n\": $n, \"raw_us\": $number, \"adjoin_us\": $number, \"ratio\": $number, \"peak_bytes\": [1-9][0-9]*\\}"
    echo "$output" | grep -Evx "$line" && fail "lines that are not the JSON expected, on $ranks ranks"
    [ "$(echo "$output" | sed 's/^{"case": "\([^"]*\)".*/\1/')" = "$cases" ] || fail "not one line for each case, on $ranks ranks"
    echo "$output" | tr -d ',{}' |
        awk '{ q = $10 / $8 / $12; if (q < 0.998 || q > 1.002) { print "FAIL: " $0 ": the ratio"; bad = 1 } } END { exit bad }' ||
        fail "the ratio is not that of the times, on $ranks ranks"
}

all=$("$bench" --help | sed -n '/^Cases:/,/^$/s/^  \([a-z_-]*\) .*/\1/p')
[ -n "$all" ] || fail "--help lists no cases"
for ranks in 1 2 3; do
    expect_lines $ranks 5 "$all"
done
expect_lines 1 1 "$all" # a single row, a single column
expect_lines 2 512 allen_cahn --case allen_cahn # compares with the known numbers

[ -z "$("$bench" --repeat 2 --n 3)" ] || fail "--repeat prints something"
message=$("$mpiexec" -n 2 "$bench" --case allen_cahn --n 1 2>&1) && fail "one row for two ranks goes through"
case $message in
*"fewer rows than ranks"*) ;;
*) fail "one row for two ranks: the message is '$message'" ;;
esac

# expect_refused WORDS OPTION...: exit status 2 and a message with the words.
expect_refused() {
    words=$1
    shift
    message=$("$bench" "$@" 2>&1)
    status=$?
    [ $status -eq 2 ] || fail "$*: exit status $status instead of 2"
    case $message in
    "adjoin-bench: "*"$words"*) ;;
    *) fail "$*: the message is '$message'" ;;
    esac
}
expect_refused "not one of the cases" --case nonsense
expect_refused "not one of the cases" --case ''
expect_refused "not one of the cases" --case allen
expect_refused "whole numbers" --n 0
expect_refused "whole numbers" --n 10,
expect_refused "whole numbers" --n 1e3
expect_refused "whole numbers" --n ''
expect_refused "needs a value" --n
expect_refused "--repeat: '0'" --repeat 0
expect_refused "--repeat: ''" --repeat ''
expect_refused "--samples: '2,3'" --samples 2,3
expect_refused "--samples: '2x'" --samples 2x
expect_refused "--jsom" --jsom
expect_refused "'extra'" --json extra

[ $failures -eq 0 ]
