# For the scripts beside this file, which source it from the root of the repository: installing what is missing, configuring, building.
# shellcheck shell=sh

say() {
    printf '==> %s\n' "$*"
}

die() {
    printf '%s: %s\n' "$0" "$*" >&2
    exit 1
}

has_command() {
    command -v "$1" >/dev/null 2>&1
}

has_library() {
    has_command pkg-config && pkg-config --exists "$1"
}

has_c_headers() {
    has_command gcc && printf '#include <math.h>\n' | gcc -E - >/dev/null 2>&1
}

# MPICH's launcher: where another MPI is installed too, mpiexec may be that one's.
mpich_launcher() {
    command -v mpiexec.mpich || command -v mpiexec
}

# missing_packages build|tests: Debian's names of what the build, or the build and the tests, need and this machine lacks.
missing_packages() {
    has_command gcc || echo gcc
    has_c_headers || echo libc6-dev
    has_command pkg-config || echo pkg-config
    has_command meson || echo meson
    has_command ninja || echo ninja-build
    mpich_launcher >/dev/null || echo mpich
    has_library mpich || echo libmpich-dev
    has_library openblas || echo libopenblas-dev
    [ "$1" = tests ] || return 0
    has_library criterion || echo libcriterion-dev
    has_command valgrind || echo valgrind
    has_command g++ || echo g++
    has_command gfortran || echo gfortran
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    else
        sudo "$@"
    fi
}

# install_missing build|tests: install those.
install_missing() {
    packages=$(missing_packages "$1" | tr '\n' ' ')
    [ -n "$packages" ] || return 0
    has_command apt-get || die "missing: $packages(names of Debian packages). Without apt-get they must be installed by hand"
    [ "$(id -u)" -eq 0 ] || has_command sudo || die "missing: $packages. Neither root nor sudo: install them as root"
    say "Installing $packages"
    as_root apt-get update
    # shellcheck disable=SC2086 # a list of words
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $packages
    packages=$(missing_packages "$1" | tr '\n' ' ')
    [ -z "$packages" ] || die "still missing after the installation: $packages"
}

# configure FOLDER OPTION...: set the build folder up, or give an existing one the options.
configure() {
    folder=$1
    shift
    say "Configuring $folder"
    if [ -f "$folder/build.ninja" ]; then
        meson setup --reconfigure "$folder" "$@"
    else
        meson setup "$folder" "$@"
    fi
}

# build FOLDER [TARGET...]
build() {
    say "Building in $1"
    folder=$1
    shift
    meson compile -C "$folder" "$@"
}
