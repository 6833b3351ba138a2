#!/usr/bin/env bash
# Installs the tools the benchmark runs beside Larder, for Debian and Ubuntu. What cannot be had is named at the end; the
# benchmark leaves out tools that are not there. About 25 minutes on two cores, nearly all of it compiling Rust.
set -u
missing=()

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

install_apt() {
  as_root apt-get update -q
  # restic and borg from the distribution may be some releases old; `run.py` prints the versions it ran.
  as_root apt-get install -y -q restic borgbackup e2fsprogs build-essential pkg-config libsodium-dev || missing+=("restic, borgbackup (apt)")
}

install_cargo() { # crate, program
  command -v "$2" >/dev/null && return
  nice -n 15 cargo install "$1" --locked || missing+=("$2 (cargo install $1)")
}

install_go() { # package, program
  command -v "$2" >/dev/null && return
  nice -n 15 go install "$1@latest" || missing+=("$2 (go install $1)")
}

install_apt
install_cargo bupstash bupstash
install_cargo rustic-rs rustic
install_go github.com/minio/minio minio
install_go github.com/kopia/kopia kopia

for program in restic borg bupstash rustic kopia minio; do
  printf '%-9s %s\n' "$program" "$(command -v "$program" || echo 'not found in PATH')"
done
if [ ${#missing[@]} -gt 0 ]; then
  printf 'could not be installed: %s\n' "${missing[@]}"
  exit 1
fi
