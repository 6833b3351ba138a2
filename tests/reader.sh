#!/usr/bin/env bash
# The independent reader (tools/larder_read.py) restores the golden repository, and one written just now.
source "$(dirname "$0")/common.sh"
python3 "$root/tests/golden/check.py"
export LARDER_REPOSITORY=$work/repository
"$larder" -q init --insecure-kdf
tree "$work/source" 4
"$larder" -q backup "$work/source"
python3 "$root/tools/larder_read.py" "$work/repository" restore latest "$work/restored"
diff -r --no-dereference "$work/source" "$work/restored$work/source"
echo "reader: both repositories read"
