#!/usr/bin/env bash
# The store's promises and a whole round of a repository against Azure Blob Storage and Google Cloud Storage, as far as emulators
# go: Azurite and fake-gcs-server, installed when they are missing (npm, go). Each is also spoken to through a server that is
# busy and loses answers.
#
#   tests/clouds.sh [azure] [gcs]
#
# What these emulators do not have, and no test here therefore shows:
# * Azurite: identities (Entra ID, managed identity) and hierarchical namespaces; it never throttles. Names, conditions, SAS and
#   keys, batches and pages are its own.
# * fake-gcs-server: any look at credentials, and most of the XML interface; cloud_front.py makes that of the JSON interface.
#   Google's limit of one change a second for each name does not bite: Larder never changes an object.
source "$(dirname "$0")/common.sh"
source "$(dirname "$0")/round.sh"
source "$(dirname "$0")/servers.sh"
cached=${LARDER_CI_CACHE:-$HOME/.cache/larder-ci}

# front PORT EMULATOR_PORT OPTION...: see cloud_front.py.
front() {
    python3 "$root/tests/cloud_front.py" "$@" 2>> "$work/front.log" & cleanup+=("kill $!")
    reachable "$1"
}

# everything: what is run against each, with LARDER_REPOSITORY set and a source made.
everything() {
    validated
    round "$1"
    forgotten "$1"
}

say() { echo "$1 ($SECONDS s)"; }

# refused WHAT SAYS VERB...: ends with 15, and says why in two lines at most.
refused() {
    local code=0
    "$larder" -q --timeout 3 "${@:3}" > "$work/out" 2> "$work/error" || code=$?
    [ $code -eq 15 ] && grep -q "$2" "$work/error" && [ "$(wc -l < "$work/error")" -le 2 ] ||
        fail "$1: ended with $code: $(cat "$work/error")"
}

azure() {
    local azurite=$cached/azurite/node_modules/.bin/azurite-blob port
    if ! [ -x "$azurite" ]; then
        command -v npm > /dev/null || fail "no npm to install Azurite with"
        npm install --silent --no-audit --no-fund --prefix "$cached/azurite" azurite@3.37.0
    fi
    port=$(free_port)
    # In memory, and strict: what it does not know, it refuses.
    "$azurite" --blobPort "$port" --inMemoryPersistence --silent --disableTelemetry > "$work/azurite.log" 2>&1 & cleanup+=("kill $!")
    reachable "$port"
    # Known to everybody, like the account itself.
    local account=devstoreaccount1
    local key=Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==
    # A container is made, and a SAS for it, which is for creating, reading, listing and deleting, and not for replacing.
    local sas
    sas=$(python3 "$root/tests/azure_container.py" "http://127.0.0.1:$port/$account" "$account" "$key" box)

    say "azure: a key"
    export AZURE_STORAGE_ACCOUNT_NAME=$account AZURE_STORAGE_ACCOUNT_KEY=$key
    export AZURE_STORAGE_ENDPOINT=http://127.0.0.1:$port/$account
    export LARDER_REPOSITORY=azure://box/some/prefix
    tree "$work/azure" 5
    round "$work/azure"
    forgotten "$work/azure"
    LARDER_REPOSITORY=azure://nothing/x refused "a container that is not there" "does not exist" init --insecure-kdf
    AZURE_STORAGE_ACCOUNT_KEY=AAAA refused "a wrong key" "access denied" snapshots
    unset AZURE_STORAGE_ACCOUNT_NAME AZURE_STORAGE_ACCOUNT_KEY AZURE_STORAGE_ENDPOINT

    say "azure: a connection string with a SAS that may not replace"
    export AZURE_STORAGE_CONNECTION_STRING="AccountName=$account;BlobEndpoint=http://127.0.0.1:$port/$account;SharedAccessSignature=$sas"
    LARDER_REPOSITORY=azure://box/by-sas
    tree "$work/by-sas" 6
    everything "$work/by-sas"
    unset AZURE_STORAGE_CONNECTION_STRING

    say "azure: busy, and answers get lost"
    local rough
    rough=$(free_port)
    front "$rough" "$port" --trouble 19
    export AZURE_STORAGE_CONNECTION_STRING="DefaultEndpointsProtocol=http;AccountName=$account;AccountKey=$key;BlobEndpoint=http://127.0.0.1:$rough/$account;"
    LARDER_REPOSITORY=azure://box/rough
    round "$work/azure"
    forgotten "$work/azure"
    unset AZURE_STORAGE_CONNECTION_STRING
}

gcs() {
    local server=$cached/bin/fake-gcs-server port plain rough
    server=$(command -v fake-gcs-server || echo "${GOBIN:-$cached/bin}/fake-gcs-server")
    if ! [ -x "$server" ]; then
        command -v go > /dev/null || fail "no go to install fake-gcs-server with"
        GOBIN=${GOBIN:-$cached/bin} go install github.com/fsouza/fake-gcs-server@v1.56.1
    fi
    port=$(free_port)
    "$server" -backend memory -scheme http -host 127.0.0.1 -port "$port" -public-host "127.0.0.1:$port" -log-level error \
        > "$work/gcs.log" 2>&1 & cleanup+=("kill $!")
    reachable "$port"
    python3 - "$port" <<'PY'
import sys, urllib.request
request = urllib.request.Request(f"http://127.0.0.1:{sys.argv[1]}/storage/v1/b?project=p", b'{"name":"bucket"}', {"Content-Type": "application/json"})
urllib.request.urlopen(request).read()
PY
    plain=$(free_port)
    front "$plain" "$port" --gcs

    say "gcs: the emulator's address"
    export STORAGE_EMULATOR_HOST=127.0.0.1:$plain
    export LARDER_REPOSITORY=gs://bucket/some/prefix
    tree "$work/gcs" 7
    everything "$work/gcs"
    LARDER_REPOSITORY=gs://nothing/x refused "a bucket that is not there" "does not exist" init --insecure-kdf
    unset STORAGE_EMULATOR_HOST

    say "gcs: busy, and answers get lost"
    rough=$(free_port)
    front "$rough" "$port" --gcs --trouble 19
    export GOOGLE_BASE_URL=http://127.0.0.1:$rough GOOGLE_ACCESS_TOKEN=token
    LARDER_REPOSITORY=gs://bucket/rough
    round "$work/gcs"
    forgotten "$work/gcs"
    unset GOOGLE_BASE_URL GOOGLE_ACCESS_TOKEN
}

[ $# -gt 0 ] || set -- azure gcs
for cloud in "$@"; do "$cloud"; done
[ ! -s "$work/front.log" ] || fail "the server in front: $(cat "$work/front.log")"
say "clouds: everything whole"
