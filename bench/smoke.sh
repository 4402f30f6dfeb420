#!/bin/sh
# smoke.sh ADJOIN_BENCH: every case runs at a small size and prints the line it should; bad options are told. Nothing is timed.
set -u
bench=$1
mpiexec=${MPIEXEC:-mpiexec}
export HWLOC_PLUGINS_PATH=/nonexistent # plugins that are loaded and unloaded look like leaks to LeakSanitizer
failures=0

fail() {
    echo "FAIL: $*"
    failures=$((failures + 1))
}

expected=$("$bench" --help | sed -n '/^Cases:/,/^$/s/^  \([a-z-]*\) .*/\1/p')
[ -n "$expected" ] || fail "--help lists no cases"

number='[0-9]+(\.[0-9]+)?(e[+-][0-9]+)?'
for ranks in 1 2; do
    output=$("$mpiexec" -n $ranks "$bench" --json --n 5) || fail "exit status $? on $ranks ranks"
    echo "$output"
    line="\\{\"case\": \"[a-z-]+\", \"np\": $ranks, \"n\": 5, \"raw_us\": $number, \"adjoin_us\": $number, \"ratio\": $number, \"peak_bytes\": [0-9]+\\}"
    echo "$output" | grep -Evx "$line" && fail "lines that are not the JSON expected, on $ranks ranks"
    [ "$(echo "$output" | sed 's/^{"case": "\([^"]*\)".*/\1/')" = "$expected" ] || fail "not one line for each case, on $ranks ranks"
done

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
expect_refused "whole numbers" --n 0
expect_refused "whole numbers" --n 10,
expect_refused "whole numbers" --n 1e3
expect_refused "whole numbers" --n ''
expect_refused "needs a value" --n
expect_refused "--jsom" --jsom
expect_refused "'extra'" --json extra

[ $failures -eq 0 ]
