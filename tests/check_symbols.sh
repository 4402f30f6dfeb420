#!/bin/sh
# check_symbols.sh LIBRARY INCLUDE_DIR: the library exports what the public headers declare, nothing more and nothing less; no name ends in an
# underscore, which Fortran compilers append to theirs; the soname is that of the ABI.
set -eu
library=$1
headers=$2/adjoin
failures=0

fail() {
    echo "FAIL: $*"
    failures=$((failures + 1))
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# "name file:line" for every function declared in the headers, "plain" in a third word where AJ_API is missing.
awk '
    FNR == 1 { open = 0 }
    /^[ \t]*AJ_API / || /^[a-z].*[ *]aj_[a-z0-9_]*\(/ && !/^(typedef|static|extern "C")/ {
        open = 1
        text = ""
        line = FNR
        mark = /AJ_API / ? "" : " plain"
    }
    open {
        text = text " " $0
        if (match(text, /aj_[A-Za-z0-9_]+ *\(/)) {
            name = substr(text, RSTART, RLENGTH - 1)
            sub(/ *$/, "", name)
            print name " " FILENAME ":" line mark
            open = 0
        }
    }' "$headers"/*.h >"$work/declarations"

nm -D --defined-only "$library" | awk '{ sub(/@.*/, "", $3); print $3 }' | sort >"$work/exported"
awk '{ print $1 }' "$work/declarations" | sort -u >"$work/declared"
[ -s "$work/declared" ] || fail "$headers: no declaration found"

while read -r name place mark; do
    [ -z "$mark" ] || fail "$place: $name is declared without AJ_API"
    grep -qx "$name" "$work/exported" || fail "$place: $name is declared but not exported by $library"
done <"$work/declarations"
for name in $(comm -23 "$work/exported" "$work/declared"); do
    fail "$library: exports $name, which no public header declares"
done
for name in $(sort -u "$work/exported" "$work/declared" | grep '_$'); do
    fail "$library: $name ends in an underscore: $(grep "^$name " "$work/declarations" || echo "in no header")"
done
soname=$(readelf -d "$library" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p')
[ "$soname" = libadjoin.so.0 ] || fail "$library: the soname is '$soname' instead of libadjoin.so.0"

echo "$(wc -l <"$work/declared") functions declared, $(wc -l <"$work/exported") exported"
[ $failures -eq 0 ]
