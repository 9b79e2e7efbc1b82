#!/bin/sh
# Installs what is missing, and says so in one line when that is nothing.
#   ci/install.sh system       compilers, QEMU and libraries, as Debian packages
#   ci/install.sh venv         .venv with this project (editable) and the versions in constraints.txt
#   ci/install.sh beside ENV   into an environment that has this project: what its tests need and cannot import
# PYTHON names the interpreter; otherwise the first suitable one on PATH.
set -eu
cd "$(dirname "$0")/.."

LABGRID=26.0.1

die() {
    printf 'install: %s\n' "$*" >&2
    exit 1
}

has() { command -v "$1" >/dev/null 2>&1; }

has_header() { printf '#include <%s>\n' "$2" | "$1" -x c++ -E - >/dev/null 2>&1; }

# For the test of the report's page. Ubuntu's is a snap, which sees no file in /tmp: there Google's is used where it is.
has_browser() { has chromium || has google-chrome || grep -q '^ID=ubuntu' /etc/os-release 2>/dev/null; }

find_python() {
    for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11 python3.10}; do
        if "$candidate" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info < (3, 14))' 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
    return 1
}

has_venv() { python=$(find_python) && "$python" -c 'import ensurepip, venv' 2>/dev/null; }

missing_packages() {
    has arm-none-eabi-g++ || echo gcc-arm-none-eabi
    has_header arm-none-eabi-g++ stdio.h || echo libnewlib-arm-none-eabi
    has_header arm-none-eabi-g++ vector || echo libstdc++-arm-none-eabi-newlib
    has qemu-system-arm || echo qemu-system-arm
    has flatc || echo flatbuffers-compiler
    has_header g++ flatbuffers/flatbuffers.h || echo libflatbuffers-dev
    has cmake || echo cmake
    has ninja || echo ninja-build
    has ccache || echo ccache
    has clang-format || echo clang-format
    has run-clang-tidy || echo clang-tidy
    has g++ || echo g++
    has_header g++ doctest/doctest.h || echo doctest-dev
    has unshare || echo util-linux
    has openocd || echo openocd
    has_browser || echo chromium
    has ser2net || [ -x /usr/sbin/ser2net ] || echo ser2net
    has_venv || echo python3-venv
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif has sudo; then
        sudo "$@"
    else
        die "needs root or sudo for: $*"
    fi
}

apt_get() { as_root env DEBIAN_FRONTEND=noninteractive apt-get "$@" </dev/null; }

install_system() {
    # Unquoted below: one word per package.
    packages=$(missing_packages | tr '\n' ' ')
    if [ -z "$packages" ]; then
        echo "Debian packages: nothing to install"
        return
    fi
    has apt-get || die "missing, and there is no apt-get to install them: $packages"
    echo "Debian packages to install: $packages"
    apt_get update -qq
    # shellcheck disable=SC2086
    apt_get install -y -qq --no-install-recommends $packages
    packages=$(missing_packages | tr '\n' ' ')
    case $packages in
        '') ;;
        'python3-venv ') explain_python ;;
        *) die "installed, but still not found: $packages" ;;
    esac
}

explain_python() {
    python=$(find_python) ||
        die "no Python 3.10 to 3.13 among: ${PYTHON:-python3 on PATH}. Name one: make install PYTHON=python3.11"
    die "$python cannot create virtual environments (no ensurepip). Install its venv package, or name another" \
        "interpreter: make install PYTHON=python3.11"
}

install_venv() {
    has_venv || explain_python
    python=$(find_python)
    echo "Installing into .venv with $("$python" --version); the first time takes some minutes"
    .venv/bin/python -m pip --version >/dev/null 2>&1 || "$python" -m venv --clear .venv
    install_labgrid .venv &
    # One resolve under the constraints: torch must never be looked up without its exact version.
    pip_install .venv --constraint constraints.txt --editable '.[dev,docs,maintainers]'
    wait $!
    install_rp2040js .venv
    touch .venv/.installed
}

pip_install() {
    # Not compiled: of 18,000 modules, a quarter is ever imported, and Python compiles what it imports.
    environment=$1
    shift
    "$environment/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile "$@"
}

install_labgrid() {
    # For the tests of board farms. It brings a fork of pyserial, so it has an environment of its own.
    "$1/bin/python" -m venv --clear "$1/labgrid"
    pip_install "$1/labgrid" "labgrid==$LABGRID"
}

install_rp2040js() {
    # For the virtual Pico, which nothing else needs: not worth the hundreds of packages that Debian's npm brings.
    version=$("$1/bin/python" -c 'from cortex_m_hil.host.toolchain import RP2040JS; print(RP2040JS)')
    has npm && npm install --silent --no-audit --no-fund --fetch-timeout=60000 --prefix "$1" "rp2040js@$version" ||
        echo "No npm, or no rp2040js from it: no virtual Pico (hil board virtual pico), and its tests are skipped"
}

case ${1-} in
    system) install_system ;;
    venv) install_venv ;;
    beside) install_labgrid "${2:?which environment}" && install_rp2040js "$2" ;;
    *) die "usage: ci/install.sh system|venv|beside ENV" ;;
esac
