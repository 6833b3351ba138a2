# One round of everything a repository goes through, on whatever store it lies. Sourced after common.sh, with LARDER_REPOSITORY set:
#
#   validated                every promise of the store, tried out beside the repository
#   round SOURCE             init, backups, check, restores, forget; SOURCE is a tree, and is changed

validated() { "$larder" validate-store "$LARDER_REPOSITORY-validate"; }

# restored SNAPSHOT SOURCE: it comes back as it is in the tree.
restored() {
    rm -rf "$work/restored"
    "$larder" -q restore "$1:$2" --target "$work/restored"
    same "$2" "$work/restored"
    rm -rf "$work/restored"
}

round() {
    local source=$1
    "$larder" -q init --insecure-kdf
    "$larder" -q backup "$source"
    echo changed > "$source/d1/e1/changed"
    head -c 3000000 /dev/urandom > "$source/new"
    "$larder" -q backup "$source"
    "$larder" -q check --read-data
    restored latest "$source"
    # Without what the machine remembers.
    rm -rf "$work/cache"
    restored latest "$source"
}

# forgotten SOURCE: all snapshots but the newest go with what only they needed, and what stays is whole.
forgotten() {
    "$larder" -q forget --keep-last 1 --prune
    local count
    count=$("$larder" snapshots --json | python3 -c 'import json, sys; print(len(json.load(sys.stdin)))')
    [ "$count" -eq 1 ] || fail "$count snapshots are left"
    "$larder" -q check --read-data
    restored latest "$1"
}
