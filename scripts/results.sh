# For the scripts that run tests, after common.sh: running them with Meson, counting, the last line.
# shellcheck shell=sh

total_passed=0
total_failed=0
total_skipped=0

# Read Meson's log: one number each of passed, failed, skipped. A Criterion program counts with its own numbers, any other test as one; one that
# ends badly although all its tests passed (a leak at exit, say) is one failure more.
count_log() {
    awk '
        function finish() {
            if (!open) return
            if (summary) {
                if (!good && !bad_inside) failed++
            } else if (good) passed++
            else if (skip) skipped++
            else failed++
            open = 0
        }
        /^=+ +[0-9]+\/[0-9]+ +=+$/ { finish(); open = 1; summary = good = skip = bad_inside = judged = 0 }
        /^result: / && !judged {
            judged = 1
            good = /exit status 0$/
            skip = /exit status 77$/ || /SKIP/
        }
        /^\[SKIP\]/ { skipped++ }
        /^\[====\] Synthesis: / {
            summary = 1
            for (i = 1; i < NF; i++) {
                if ($i == "Tested:") bad_inside = $(i + 1)
                if ($i == "Passing:") { passed += $(i + 1); bad_inside -= $(i + 1) }
            }
            failed += bad_inside
        }
        END { finish(); print passed + 0, failed + 0, skipped + 0 }
    ' "$1"
}

# add_results LABEL PASSED FAILED SKIPPED
add_results() {
    say "$1: $2 passed, $3 failed, $4 skipped"
    total_passed=$((total_passed + $2))
    total_failed=$((total_failed + $3))
    total_skipped=$((total_skipped + $4))
}

# run_tests FOLDER LABEL OPTION...: meson test with these options. One at a time: the launched ranks need the cores.
run_tests() {
    folder=$1
    label=$2
    shift 2
    say "Running $label"
    log=$folder/meson-logs/testlog-$(printf %s "$label" | tr -c 'a-z0-9' '-')
    rm -f "$log"*
    status=0
    meson test -C "$folder" --num-processes 1 --print-errorlogs --logbase "$(basename "$log")" "$@" || status=$?
    results="0 0 0"
    for text in "$log"*.txt; do # Meson adds the wrapper to the name
        [ ! -f "$text" ] || results=$(count_log "$text")
    done
    # shellcheck disable=SC2086 # three words
    set -- $results
    failed=$2
    if [ "$failed" -eq 0 ] && { [ "$status" -ne 0 ] || [ $(($1 + $3)) -eq 0 ]; }; then
        failed=1 # Meson itself failed, or there was nothing to run
    fi
    add_results "$label" "$1" "$failed" "$3"
}

# finish WITH_SKIPPED: the last line, and the exit status. WITH_SKIPPED 0: skipped tests are named only where there are some.
finish() {
    skipped=
    [ "$1" -eq 0 ] && [ "$total_skipped" -eq 0 ] || skipped=", $total_skipped skipped"
    echo "$total_passed passed, $total_failed failed$skipped"
    [ "$total_failed" -eq 0 ]
}
