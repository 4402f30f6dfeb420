#!/bin/sh
# check_format.sh SOURCE_ROOT: the sources are as clang-format writes them. Exit status 77 where that is not installed.
set -eu
cd "$1"
command -v clang-format >/dev/null || {
    echo "SKIPPED: no clang-format"
    exit 77
}
find src include tests examples bench -type f \( -name '*.[ch]' -o -name '*.cpp' \) -exec clang-format --dry-run -Werror {} +
