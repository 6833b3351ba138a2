#!/bin/sh
# Makes the golden repository of this version of the format: make.sh LARDER, with the path of the program. Run as root on a
# file system with extended attributes; refuses to touch a golden repository that exists, because those never change.
#
# The tree is made and backed up at /larder-golden, so that no path of the machine gets into the repository.
set -eu

larder=$(realpath "${1:?usage: make.sh LARDER}")
here=$(dirname "$(realpath "$0")")
repository=$here/repository-v2
tree=/larder-golden
[ ! -e "$repository" ] || { echo "$repository exists; golden repositories never change" >&2; exit 1; }
mkdir "$tree"
trap 'rm -rf "$tree" "$tree.state"' EXIT

export LARDER_REPOSITORY="$repository/objects" LARDER_PASSWORD=golden HOME=/nonexistent LARDER_STATE="$tree.state"
mkdir -p "$repository"
"$larder" init --insecure-kdf
for version in 1 2; do
    "$here/make_tree.py" "$tree" $version
    "$larder" backup --no-cache --series golden --host golden --tag "version-$version" \
        --time "2023-11-1$version 12:00:00" "$tree"
    "$here/list_tree.py" "$tree" >"$repository/version-$version.txt"
done
cat >"$repository/README.md" <<EOF
Made by \`tests/golden/make.sh\` with $("$larder" --version). Password: \`golden\`, with a key derivation that protects nothing.
\`objects\` is the repository, \`version-n.txt\` what the folder \`larder-golden\` of its n-th version must look like
(\`list_tree.py\`). It stays as it is for ever; every later release must restore it.
EOF
