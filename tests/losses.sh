#!/usr/bin/env bash
# The real binary in the interleavings and accidents in which it once lost what somebody had committed. Each case says what must be there
# in the end; most of them lost it without any error.
#
#   tests/losses.sh            all of them, two at a time
#   tests/losses.sh CASE...    these; `tests/losses.sh list` lists all
#
# LARDER names another binary: `LARDER=/path/larder tests/losses.sh CASE` shows whether an old one loses. Accidents of a store that is
# reached over HTTP are in `lying_s3.py`.
source "$(dirname "$0")/common.sh"

larder() { "$larder" -q "$@"; }

# Begins a repository in a folder of its own.
begin() {
    here=$work/$1
    rm -rf "$here"; mkdir -p "$here"; cd "$here"
    export LARDER_REPOSITORY=$here/repository LARDER_STATE=$here/state
    larder init --insecure-kdf
}

noise() { head -c "$1" /dev/urandom; }

# id_of ARGS: the newest snapshot that fits.
id_of() {
    larder snapshots --json --no-free "$@" | python3 -c 'import json, sys; print(json.load(sys.stdin)[-1]["id"])'
}

# How many data containers there are.
containers() { find repository -path "*/data/*" -type f | wc -l; }

# stored SERIES FILE...: a snapshot of these bytes that shares nothing with others; prints its id.
stored() {
    local series=$1; shift
    cat "$@" | larder backup --stdin --stdin-filename f --series "$series" --force --no-similar
    id_of --series "$series"
}

# whole ID FILE: the snapshot restores to these bytes.
whole() {
    larder dump "$1:/f" > "$here/out" 2> "$here/why" || fail "$case: $3: snapshot $1 is lost: $(head -1 "$here/why")"
    cmp -s "$here/out" "$2" || fail "$case: $3: snapshot $1 restores to something else"
}

# ends CODES COMMAND...: it ends with one of these exit codes.
ends() {
    local codes=$1 code=0; shift
    "$@" > "$here/said" 2>&1 || code=$?
    [[ " $codes " == *" $code "* ]] || fail "$case: ${*:1:4} ended with $code: $(tail -3 "$here/said")"
}

# How many jobs have announced themselves.
leases() { find repository/jobs -name 0 | wc -l; }

# announced N: waits until more than N jobs have announced themselves. The sleep is for what the newest one looks at next.
announced() {
    local _
    for _ in $(seq 300); do
        if [ "$(leases)" -gt "$1" ]; then sleep 1; return; fi
        sleep 0.1
    done
    fail "$case: no job announced itself"
}

# uploaded N: waits until there are more than N data containers.
uploaded() {
    local _
    for _ in $(seq 300); do
        [ "$(containers)" -le "$1" ] || return 0
        sleep 0.1
    done
    fail "$case: the backup uploaded nothing"
}

# Two backups of one series, in two layouts, take over what a third one left that died. CASE: converted, new, aged, or order.
two_layouts() {
    local variant=$1 job=() slow pass
    begin "two-layouts-$variant"
    # Not a function: signals have to reach the program.
    local s=("$larder" -q backup --series s --stdin --stdin-filename f)
    noise 24000000 > dead
    if [ "$variant" != new ]; then noise 3000000 > first; "${s[@]}" < first; fi
    local before; before=$(containers)
    mkfifo p; "${s[@]}" < p & job=$!
    exec 7> p; cat dead >&7
    uploaded $((before + 1))
    sleep 0.5; kill -KILL $job; exec 7>&-; wait $job 2> /dev/null || true
    head -c 7000000 dead > slow
    before=$(leases)
    "${s[@]}" --tag slow < p & job=$!
    exec 7> p; head -c 3000000 slow >&7; announced "$before"
    head -c 7200000 dead | tail -c 700000 > fast
    case $variant in
        new) "${s[@]}" --layout lifecycle --tag fast < fast ;;
        *) larder series convert s --layout lifecycle; "${s[@]}" --tag fast < fast ;;
    esac
    [ "$variant" = order ] || larder optimize
    tail -c +3000001 slow >&7; exec 7>&-; wait $job
    slow=$(id_of --tag slow)
    whole "$slow" slow "before all passes"
    local options=(--dead-after 1s)
    if [ "$variant" = aged ]; then options=(); find repository/jobs -type f -exec touch -d "-3 days" {} +; fi
    for pass in 1 2 3; do
        sleep 1.1
        ends 0 larder optimize "${options[@]}" "${young[@]}"
        whole "$slow" slow "after pass $pass"
        if [ $pass = 1 ]; then noise 5000 | cat fast - > next; "${s[@]}" --tag next < next; fi
    done
    ends 0 larder check --read-data
}

# Two snapshots with the same contents, of which a pass keeps one copy: sets `gone`, whose container is retired, and `kept`.
one_copy_retired() {
    begin "$1"
    noise 6000000 > X; noise 3000000 > Y1; noise 3000000 > Y2; noise 1000000 > E
    a=$(stored a X); b=$(stored b X); stored a Y1 > /dev/null; stored b Y2 > /dev/null
}
retire() {
    larder optimize --max-unused 0 "${young[@]}"
    if [ -e "repository/data/$a" ]; then kept=$a gone=$b series=b; else kept=$b gone=$a series=a; fi
    [ ! -e "repository/data/$gone" ] || fail "$case: nothing was retired"
}

# The index is rebuilt while a backup builds on a forgotten snapshot whose chunks have moved.
rebuild_beside() {
    local variant=$1 parent=() job
    one_copy_retired "rebuild-beside-$variant"
    retire
    case $variant in
        noparent) larder forget "$(id_of --series $series)"; larder optimize --task collect ;;
        *) parent=(--parent "$gone") ;;
    esac
    find repository/jobs -type f -name 0 -exec rm {} +
    mkfifo p; "$larder" -q backup --stdin --stdin-filename f --series $series "${parent[@]}" --no-similar < p & job=$!
    exec 7> p; announced 0
    larder forget "$gone"
    [ "$variant" = noparent ] || larder forget "$kept"
    case $variant in
        lost) rm -r repository/index ;;
        control) ;;
        *) ends "0 13" larder repair index ;;
    esac
    [ "$variant" != noparent ] || larder forget "$kept"
    ends "0 11 13" larder optimize --task collect --list-all "${young[@]}"
    ends "0 11 13" larder optimize --task collect --list-all "${young[@]}"
    cat X E > XE; cat XE >&7; exec 7>&-; wait $job
    ends "0 13" larder repair index
    whole "$(id_of --series $series)" XE "after the rebuild"
}

# The newest index object alone is lost.
newest_index_lost() {
    local variant=$1 newest options=()
    one_copy_retired "newest-index-$variant"
    larder optimize --task collect
    if [ "$variant" != plain ]; then
        larder repair index; stored a Y2 > /dev/null; larder optimize --task collect
        a=$(stored a2 X); b=$(stored b2 X); stored a2 Y1 > /dev/null; stored b2 Y2 > /dev/null
        larder optimize --task collect
    fi
    [ "$variant" != listed ] || options=(--list-all)
    retire
    newest=$(ls repository/index | grep -v runs | sort -n | tail -1)
    rm "repository/index/$newest"
    larder forget "$kept"
    for _ in 1 2; do ends "0 11 13" larder optimize "${options[@]}" "${young[@]}"; done
    ends "0 13" larder repair index
    whole "$gone" X "after the newest index was lost"
}

# A copy of the repository that was made while a pass moved chunks lacks a container: said, and nothing is deleted for it.
# CASE: whole, where passes list everything, or part, where there is so much that they list only what is new.
copy_lacks_container() {
    local variant=$1 name moves=() collects=()
    begin "copy-$variant"
    if [ "$variant" = part ]; then moves=(--task dedup) collects=(--task collect); fi
    # More than one listing brings.
    [ "$variant" = whole ] || seq 510 | xargs -P 2 -I{} sh -c 'echo {} | "$0" -q backup --stdin --series t{} --no-similar' "$larder"
    for name in one two three n1 n2; do noise 2000000 > $name; done
    cat one two > onetwo; cat one three > onethree
    a=$(stored a onetwo); b=$(stored b onethree); stored a n1 > /dev/null; stored b n2 > /dev/null
    larder optimize --task collect
    mkdir copy; cp -a repository/config repository/data copy/
    larder optimize "${moves[@]}" --max-unused 0 "${young[@]}"
    local part; for part in repository/*; do [ -e "copy/$(basename "$part")" ] || cp -a "$part" copy/; done
    diff -rq repository/data copy/data > lacks || true
    grep -q "Only in repository" lacks || fail "$case: the copy lacks nothing: $(cat lacks)"
    export LARDER_REPOSITORY=$here/copy
    if [ "$variant" = whole ]; then ends 13 larder check; ends 13 larder check --read-data; fi
    find copy/data -type f | sort > before
    ends "0 11 13" larder optimize "${collects[@]}" "${young[@]}"
    ends "0 11 13" larder optimize "${collects[@]}" "${young[@]}"
    find copy/data -type f | sort > after
    [ -z "$(comm -23 before after)" ] || fail "$case: a pass deleted $(comm -23 before after)"
    # With what was missing put back everything is whole.
    cp -an repository/data/. copy/data/
    whole "$a" onetwo "in the copy"; whole "$b" onethree "in the copy"
}

# The register of a snapshot that no pass has seen is hidden from one pass.
hidden_register() {
    local register id
    begin hidden
    noise 3000000 > old; stored s old > /dev/null; larder optimize
    noise 3000000 > new; id=$(stored s new)
    register=$(find repository/versions -path "*$id/0")
    mkdir hidden; mv "$register" hidden/
    ends 13 larder optimize
    ends 13 larder check
    mv hidden/0 "$register"
    whole "$id" new "after the pass"
    ends 0 larder optimize
}

# Folders of a repository that are links into another one.
symlinked_repository() {
    local id job
    begin symlinked
    noise 3000000 > secret; id=$(stored s secret)
    mkdir -p evil; "$larder" -q -r "$here/evil" init --insecure-kdf
    noise 1000 | "$larder" -q -r "$here/evil" backup --stdin --series e
    for job in repository/data/*; do ln -s "$here/$job" "evil/data/$(basename "$job")"; done
    for job in repository/meta/*; do ln -s "$here/$job" "evil/meta/$(basename "$job")"; done
    ends "0 11 13 14 15" "$larder" -q -r "$here/evil" optimize --list-all "${young[@]}"
    whole "$id" secret "after a pass over the other repository"
}

# Folders of a repository are swapped for links into another one, again and again, while passes delete in them.
swapped_folders() {
    local id round keep swapping
    begin swapped
    noise 3000000 > secret; id=$(stored s secret)
    "$larder" -q -r "$here/evil" init --insecure-kdf
    mkdir away
    # By the names of its own containers, which the other repository has as well.
    cat > swap.py <<'PY'
import glob, os, random, time
others = {kind: glob.glob(os.path.abspath(f"repository/{kind}/*"))[0] for kind in ("data", "meta")}
swaps = 0
while not os.path.exists("enough"):
    for kind, other in others.items():
        for job in glob.glob(f"evil/{kind}/*"):
            try:
                os.rename(job, "away/job")
                os.symlink(other, job)
                swaps += 1
                time.sleep(random.choice([0, 0.0005, 0.002]))
                os.remove(job)
                os.rename("away/job", job)
                time.sleep(random.choice([0, 0.0005, 0.002]))
            except FileNotFoundError:
                pass
            except OSError:
                # A new folder was made in its place meanwhile.
                os.rename("away/job", f"away/{swaps}")
print(swaps)
PY
    for round in 1 2 3; do
        rm -f enough
        for _ in $(seq 16); do noise 300000 | "$larder" -q -r "$here/evil" backup --stdin --series e --force; done
        python3 swap.py > swaps & swapping=$!
        for keep in 12 8 4 1; do
            ends "0 3 11 13 14 15" "$larder" -q -r "$here/evil" forget --series e --keep-last $keep
            ends "0 3 11 13 14 15" "$larder" -q -r "$here/evil" optimize --list-all "${young[@]}"
        done
        touch enough; wait $swapping
        [ "$(cat swaps)" -gt 0 ] || fail "$case: no folder was ever swapped"
        [ "$(find repository/data repository/meta -type f | wc -l)" = 2 ] || fail "$case: a pass deleted what another repository has"
        rm -rf evil away; mkdir away; "$larder" -q -r "$here/evil" init --insecure-kdf
    done
    whole "$id" secret "after passes over the other repository"
    ends 0 larder check --read-data
}

# Two backups take over what a third one left, which sleeps; one of them is forgotten and collected. This has always held.
two_adopters() {
    local n v1 job=()
    begin two-adopters
    noise 30000000 > big
    for n in 0 1 2; do mkfifo p$n; done
    start() { "$larder" -q backup --stdin --stdin-filename f --series s < p$1 2> said$1 5>&- 6>&- & job[$1]=$!; }
    start 0; exec 5> p0; cat big >&5; uploaded 1; sleep 0.5; kill -STOP "${job[0]}"
    # Of the store's clock: as if it had not renewed for a while.
    find repository/jobs -type f -exec touch -d "-2 minutes" {} +
    start 1; exec 6> p1; start 2; exec 7> p2; announced 2
    cat big >&6; exec 6>&-; wait "${job[1]}" || fail "$case: the first adopter ended with $?: $(cat said1)"
    v1=$(id_of)
    larder optimize --dead-after 100s --list-all "${young[@]}"
    larder forget "$v1"
    for n in 1 2; do larder optimize --dead-after 100s --list-all "${young[@]}"; done
    cat big >&7; exec 7>&-; wait "${job[2]}" || fail "$case: the second adopter ended with $?: $(cat said2)"
    kill -CONT "${job[0]}"; exec 5>&-
    n=0; wait "${job[0]}" || n=$?
    [ $n = 11 ] || fail "$case: the job that slept ended with $n"
    for n in 1 2; do larder optimize --list-all "${young[@]}"; done
    whole "$(id_of)" big "after the job woke"
    ends 0 larder check --read-data
}

# What is damaged stops passes with words that name it, and the way out that they name works. This has always held.
stuck() {
    local first second newest object
    begin stuck
    for n in 1 2 3; do noise 300000 > x$n; stored s$n x$n > id$n; done
    larder optimize
    first=$(cat id1) second=$(cat id2)
    cp -a repository base
    reset() { chmod -R u+w repository; rm -rf repository "$LARDER_STATE"; cp -a base repository; }
    flip() { chmod u+w "$1"; python3 -c 'import sys; p = sys.argv[1]; b = bytearray(open(p, "rb").read()); b[60] ^= 1; open(p, "wb").write(b)' "$1"; }
    # A manifest that an index knows is lost.
    rm "$(find repository/versions -path "*$first/0")"
    ends 13 larder optimize; ends "0 13" larder repair index; ends 0 larder optimize
    whole "$second" x2 "after a manifest was lost"
    # A manifest that no index knows is rotten.
    reset; stored s4 x1 > id4; flip "$(find repository/versions -path "*$(cat id4)/0")"
    ends 13 larder optimize; ends "0 3 13" larder forget "$(cat id4)"; ends 0 larder optimize
    whole "$first" x1 "after a rotten manifest was forgotten"
    # The newest index is rotten, then all its runs.
    reset; newest=$(ls repository/index | grep -v runs | sort -n | tail -1); flip "repository/index/$newest"
    ends 13 larder optimize; ends 0 larder repair index; ends 0 larder optimize
    reset; for object in $(find repository/index/runs -type f); do flip "$object"; done
    date > x9; stored s9 x9 > /dev/null
    ends 13 larder optimize; ends 0 larder repair index; ends 0 larder optimize
    for n in 1 2 3; do whole "$(cat id$n)" x$n "after the index was rotten"; done
}

# A client that may only create objects makes a later generation of an old snapshot, with other contents. Readers give the truth, `check`
# names the object, nobody builds on it, and no pass deletes what the snapshot needs. ROOTS: those in its summary, kept or own; or unsigned.
forged_generation() {
    local roots=$1 victim forged before
    begin "forged-generation-$roots"
    for n in 1 2; do noise 200000 > x$n; stored victim x$n > id$n; done
    victim=$(cat id1)
    ends 0 larder optimize
    head -c 200000 /dev/zero | tr "\0" E > evil; stored attacker evil > /dev/null
    before=$(find repository -path "*/data/*" -type f | sort)
    forged=$(python3 "$root/tests/forge_generation.py" repository victim attacker "$roots")
    whole "$victim" x1 "beside a forged generation"
    larder restore "$victim" --target restored; cmp -s restored/f x1 || fail "$case: the restore is not the truth"
    ends 13 larder check --read-data
    grep -q "$forged" "$here/said" || fail "$case: check does not name $forged: $(cat "$here/said")"
    # A manifest that does not open stops passes; one that is no generation of the snapshot is passed over.
    ends 13 larder optimize; ends 13 larder optimize
    grep -q "$forged" "$here/said" || fail "$case: the pass does not name $forged: $(cat "$here/said")"
    [ "$(find repository -path "*/data/*" -type f | sort)" = "$before" ] || fail "$case: a pass deleted data"
    noise 1000 >> x2; stored victim x2 > id3; whole "$(cat id3)" x2 "a snapshot after it"
    rm "repository/$forged"
    for n in 1 3; do whole "$(cat id$n)" "$([ $n = 1 ] && echo x1 || echo x2)" "without the forged generation"; done
    ends 0 larder check --read-data; ends 0 larder optimize; ends 0 larder check --read-data
}

all=(copy-lacks-container-part copy-lacks-container-whole two-layouts-converted two-layouts-new two-layouts-aged two-layouts-order
    rebuild-beside-repair rebuild-beside-lost rebuild-beside-control rebuild-beside-noparent
    newest-index-plain newest-index-rebuilt newest-index-listed hidden-register symlinked-repository swapped-folders two-adopters stuck
    forged-generation-kept forged-generation-own forged-generation-unsigned)

# Passes that must free what is young say so, where they know the word.
young=()
if "$larder" optimize --help | grep -q -- --min-age; then young=(--min-age 0s); fi

play() {
    local began=$SECONDS
    case=$1
    case $case in
        two-layouts-*) two_layouts "${case#two-layouts-}" ;;
        rebuild-beside-*) rebuild_beside "${case#rebuild-beside-}" ;;
        newest-index-*) newest_index_lost "${case#newest-index-}" ;;
        forged-generation-*) forged_generation "${case#forged-generation-}" ;;
        copy-lacks-container-*) copy_lacks_container "${case#copy-lacks-container-}" ;;
        hidden-register | symlinked-repository | swapped-folders | two-adopters | stuck) "${case//-/_}" ;;
        *) fail "there is no case $case" ;;
    esac
    cd /
    echo "$case holds ($((SECONDS - began)) s)"
}

cases=("$@")
[ ${#cases[@]} -gt 0 ] || cases=("${all[@]}")
if [ "${cases[0]}" = list ]; then printf '%s\n' "${all[@]}"; exit; fi
if [ ${#cases[@]} -eq 1 ]; then play "${cases[0]}"; exit; fi
# Each case is a process of its own, and one that hangs has failed.
export LARDER=$larder
printf '%s\n' "${cases[@]}" | xargs -P 2 -I{} timeout -k 10 300 "$root/tests/losses.sh" {} || fail "not all of these hold: ${cases[*]}"
echo "losses: ${#cases[@]} cases hold ($SECONDS s)"
