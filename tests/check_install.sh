#!/bin/sh
# check_install.sh SOURCE_ROOT: installs the library into a folder of its own and builds and runs programs in C, C++ and Fortran against it, with
# pkg-config alone, linked with the shared and with the static library. Exit status 77 if a compiler is missing and all else is well.
set -eu
root=$1
mpiexec=${MPIEXEC:-mpiexec}
programs=$root/tests/consumers
export HWLOC_PLUGINS_PATH=/nonexistent # plugins that are loaded and unloaded look like leaks to LeakSanitizer

fail() {
    echo "FAIL: $*"
    exit 1
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

meson setup "$work/build" "$root" --prefix "$work/prefix" -Dtests=false -Dexamples=false -Dbench=false >"$work/log" 2>&1 &&
    meson install -C "$work/build" >>"$work/log" 2>&1 || {
    cat "$work/log"
    fail "the library cannot be configured, built and installed"
}
rm -rf "$work/build" # nothing of it may be needed from here on

pc=$(find "$work/prefix" -name adjoin.pc)
[ -n "$pc" ] || fail "no adjoin.pc was installed"
PKG_CONFIG_PATH=$(dirname "$pc")${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}
export PKG_CONFIG_PATH
libdir=$(pkg-config --variable=libdir adjoin)
skipped=0

# try LABEL BINARY: runs on two ranks, under a time limit.
try() {
    LD_LIBRARY_PATH=$libdir timeout 60 "$mpiexec" -n 2 "$2" || fail "$1: exit status $?"
    echo "good: $1"
}

# needs_library BINARY: whether it loads libadjoin.so.
needs_library() {
    readelf -d "$1" | grep -q 'NEEDED.*libadjoin'
}

# consume SOURCE COMPILER OPTION...: build it both ways and run both.
consume() {
    source=$1
    compiler=$2
    shift 2
    command -v "$compiler" >/dev/null || {
        echo "SKIPPED: $source: no $compiler"
        skipped=1
        return 0
    }
    # shellcheck disable=SC2046 # lists of words
    "$compiler" "$@" "$programs/$source" -o "$work/shared" $(pkg-config --cflags --libs adjoin) ||
        fail "$programs/$source: does not compile and link with pkg-config --cflags --libs adjoin"
    needs_library "$work/shared" || fail "$source: linked with pkg-config --libs it does not use libadjoin.so"
    try "$source with the shared library" "$work/shared"
    # MPI and OpenBLAS stay shared: only -ladjoin is turned into the archive.
    # shellcheck disable=SC2046
    "$compiler" "$@" "$programs/$source" -o "$work/static" $(pkg-config --cflags --libs --static adjoin | sed 's/-ladjoin/-l:libadjoin.a/') ||
        fail "$programs/$source: does not link with pkg-config --libs --static adjoin and libadjoin.a"
    ! needs_library "$work/static" || fail "$source: linked with the archive it still uses libadjoin.so"
    try "$source with the static library" "$work/static"
}

strict="-Wall -Wextra -Werror -pedantic"
# shellcheck disable=SC2086 # a list of words
{
    consume use.c "${CC:-cc}" -std=c11 $strict
    consume use.cpp "${CXX:-g++}" -std=c++14 $strict
    consume use.f90 "${FC:-gfortran}" -std=f2008 $strict -J "$work"
}
[ $skipped -eq 0 ] || exit 77
