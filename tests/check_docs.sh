#!/bin/sh
# check_docs.sh SOURCE_ROOT: every public function has a comment: before it, behind it, or at the head of the paragraph it stands in. Every link
# from a page to a file of the repository leads to one.
set -eu
cd "$1"
status=0

# A paragraph ends at an empty line outside comments. Headings, as in ops.h, say nothing about a function.
awk '
    FNR == 1 { documented = inside = pending = 0 }
    inside { if (/\*\//) { inside = 0; documented = 1 } next }
    pending { # a declaration on several lines
        if (/\/\*.*\*\//) documented = 1
        if (/;/) { judge(); documented = own; pending = 0 }
        next
    }
    /^[ \t]*$/ { documented = 0; next }
    /^[ \t]*\/\* ----/ { next }
    /^[ \t]*\/\// { documented = 1; next }
    /^[ \t]*\/\*/ { if (/\*\//) documented = 1; else inside = 1; next }
    /^[ \t]*AJ_API / {
        functions++
        place = FILENAME ":" FNR
        name = $0
        gsub(/^.*[ *]aj_/, "aj_", name)
        if (match($0, /aj_[a-z0-9_]+ *\(/)) name = substr($0, RSTART, RLENGTH - 1)
        own = documented
        if (/\/\*/) documented = 1
        if (/;/) { judge(); documented = own } else pending = 1
    }
    function judge() { if (!documented) { print "FAIL: " place ": " name " has no comment"; failures++ } }
    END { print functions + 0 " functions"; exit failures > 0 || !functions }
' include/adjoin/*.h || status=1

# "file:line target" for each [text](target), outside code.
links() {
    find . \( -name 'build*' -o -name '.git' \) -prune -o -name '*.md' -print | sort | xargs awk '
        FNR == 1 { code = 0 }
        /^ *(```|~~~)/ { code = !code; next }
        code || /^    / { next }
        {
            gsub(/`[^`]*`/, "")
            while (match($0, /\]\([^)]*\)/)) {
                target = substr($0, RSTART + 2, RLENGTH - 3)
                $0 = substr($0, RSTART + RLENGTH)
                sub(/ ".*"$/, "", target)
                sub(/#.*/, "", target)
                if (target != "" && target !~ /^[a-z]+:/) print FILENAME ":" FNR " " target
            }
        }'
}
links_found=$(links)
while read -r place target; do
    [ -n "$place" ] || continue
    [ -e "$(dirname "${place%:*}")/$target" ] || {
        echo "FAIL: ${place#./}: the link leads to $target, which does not exist"
        status=1
    }
done <<LINKS
$links_found
LINKS
exit $status
