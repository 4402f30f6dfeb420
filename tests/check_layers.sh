#!/bin/sh
# check_layers.sh SOURCE_ROOT: includes point downwards: tensor <- autograd <- mpi <- optim. Between folders only internal headers and lists (.def) are
# included; only src/mpi and comm.h know mpi.h; examples and benchmarks use the public headers alone.
set -eu
cd "$1"

find include src examples bench tests/consumers -type f \( -name '*.[ch]' -o -name '*.def' -o -name '*.cpp' -o -name '*.cu' \) -exec \
    grep -nE '^[ \t]*#[ \t]*include' /dev/null {} + | sort | awk '
    BEGIN {
        level["tensor"] = 0; level["cuda"] = 1; level["autograd"] = 1; level["mpi"] = 2; level["optim"] = 3; level["io"] = 3
        folder_of["context"] = folder_of["tensor"] = folder_of["device"] = "tensor"
        folder_of["ops"] = folder_of["autograd"] = folder_of["custom"] = "autograd"
        folder_of["comm"] = "mpi"; folder_of["optim"] = "optim"; folder_of["io"] = "io"
    }
    function wrong(why) { print "FAIL: " place ": " why; failures++ }
    function exists(file,   line, found) {
        found = (getline line < file) >= 0
        close(file)
        return found
    }
    # Includes of a public header, as "adjoin/x.h", by a file that belongs to a folder of src.
    function check_public(folder, header,   name, other) {
        name = header
        sub(/^adjoin\//, "", name)
        sub(/\.h$/, "", name)
        if (!(name in folder_of)) { wrong(header " is none of the headers of one layer"); return }
        other = folder_of[name]
        if (other != folder && level[other] >= level[folder]) wrong("src/" folder " and its headers must not include " header)
    }
    function check_source(folder, header,   parts, other) {
        if (header ~ /^adjoin\//) {
            if (!exists("include/" header)) wrong("there is no include/" header)
            check_public(folder, header)
            return
        }
        split(header, parts, "/")
        other = parts[1]
        if (!(other in level) || !exists("src/" header)) { wrong("\"" header "\" is no file under src, written from there"); return }
        if (other == folder) return
        if (level[other] >= level[folder]) wrong("src/" folder " must not include " header ": that layer is not below it")
        if (header !~ /^[a-z]+\/[a-z_]+_internal\.h$/ && header !~ /^[a-z]+\/[a-z_]+\.def$/) wrong(header " is private to src/" other)
    }
    {
        match($0, /:[0-9]+:/)
        file = substr($0, 1, RSTART - 1)
        place = substr($0, 1, RSTART + RLENGTH - 2)
        text = substr($0, RSTART + RLENGTH)
        header = text
        gsub(/^[^"<]*["<]|[">].*$/, "", header)
        quoted = text ~ /"/
        files[file]
        split(file, path, "/")

        if (header ~ /(^|\/)mpi\.h$/ && path[1] ~ /^(src|include)$/ && file !~ /^src\/mpi\// && file != "include/adjoin/comm.h")
            wrong("only src/mpi and comm.h include mpi.h")
        if (path[1] == "src") {
            if (!(path[2] in level)) wrong("src/" path[2] " has no place among the layers")
            else if (quoted || header ~ /^adjoin\//) check_source(path[2], header)
        } else if (path[1] == "include") {
            name = path[3]
            sub(/\.h$/, "", name)
            if (name == "adjoin") next
            if (!(name in folder_of)) wrong(file " belongs to no layer: enter it here")
            else if (quoted) check_public(folder_of[name], header)
        } else if (quoted) {
            directory = file
            sub(/[^\/]*$/, "", directory)
            if (header ~ /\.\./ || !exists(directory header)) wrong("\"" header "\" is not beside this file; only <adjoin/...> of the library is public")
        } else if (header ~ /^(tensor|autograd|mpi|optim|cuda|io)\//) wrong("<" header "> is internal")
    }
    END {
        for (file in files) count++
        print count " files with includes"
        exit failures > 0 || count < 10
    }'
