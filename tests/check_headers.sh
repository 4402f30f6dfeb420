#!/bin/sh
# check_headers.sh INCLUDE_DIR: every public header compiles alone, and included twice, as C11 and as C++14, without a warning.
# Exit status 77 if there is no C++ compiler and all else is well.
set -eu
include=$1
status=0

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mpi=$(pkg-config --cflags-only-I mpich | sed 's/-I/-isystem /g') # warnings in MPI's own header are not ours

# compile COMPILER STANDARD FILE: the compiler's messages name file and line.
compile() {
    # shellcheck disable=SC2086 # a list of words
    "$1" "-std=$2" -Wall -Wextra -Werror -pedantic -fsyntax-only -I"$include" $mpi "$3" || {
        echo "FAIL: $include/adjoin/$header: does not compile as $2"
        status=1
    }
}

cxx=${CXX:-g++}
command -v "$cxx" >/dev/null || cxx=
for path in "$include"/adjoin/*.h; do
    header=$(basename "$path")
    printf '#include <adjoin/%s>\n#include <adjoin/%s>\n' "$header" "$header" | tee "$work/twice.c" >"$work/twice.cpp"
    compile "${CC:-cc}" c11 "$work/twice.c"
    [ -z "$cxx" ] || compile "$cxx" c++14 "$work/twice.cpp"
done
if [ $status -eq 0 ] && [ -z "$cxx" ]; then
    echo "SKIPPED: C++: no ${CXX:-g++}"
    exit 77
fi
exit $status
