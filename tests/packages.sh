#!/usr/bin/env bash
# The packages, made from the programs that the gate builds anyway: twice to the same bytes, and used as people use them.
#
#   tests/packages.sh
#
# - The Debian package is installed in a bare root of Debian, and the README's quick start runs there.
# - The image has the digests that it names, and runs under runc.
# - The tarball's program is whole, and its checksums and its signature hold.
# Without root there is neither a bare root nor runc; that is said. So are a mirror that does not answer, and a missing runc.
source "$(dirname "$0")/static_program.sh"
source "$(dirname "$0")/common.sh"
# The bare root takes a minute to make, so it is kept.
kept=${LARDER_CI_CACHE:-$HOME/.cache/larder-ci}

pack() {
    mkdir -p "$work/programs"
    # Programs of the profile dev are large, and nobody needs their symbols here.
    strip -o "$work/programs/static" "$static"
    strip -o "$work/programs/dynamic" "$larder"
    version=$("$larder" version | cut -d ' ' -f 2)
    export SOURCE_DATE_EPOCH=1700000000 LARDER_LEVEL=0
    if command -v minisign > /dev/null; then
        minisign -G -W -p "$work/key.pub" -s "$work/key" > /dev/null
        export LARDER_MINISIGN_KEY=$work/key
    fi
    "$root/dist/package.sh" "$version" "$work/programs/static" "$work/programs/dynamic" "$work/packages" > /dev/null
    # Another time of day, another mask of modes, another folder.
    (umask 077 && TZ=Asia/Tokyo "$root/dist/package.sh" "$version" "$work/programs/static" "$work/programs/dynamic" "$work/again" > /dev/null)
    diff -r "$work/packages" "$work/again" || fail "the same programs give different packages"
    (cd "$work/packages" && sha256sum --check --quiet SHA256SUMS)
    [ -z "${LARDER_MINISIGN_KEY:-}" ] || minisign -V -q -p "$work/key.pub" -m "$work/packages/SHA256SUMS"
}

tarball() {
    mkdir "$work/unpacked"
    tar --extract --directory "$work/unpacked" --file "$work"/packages/*-linux.tar.xz
    local top
    top=$(echo "$work"/unpacked/larder-"$version"-*-linux)
    [ "$("$top/larder" version | cut -d ' ' -f 2)" = "$version" ] || fail "the program of the tarball does not run"
    [ -s "$top/man/larder-backup.1" ] || fail "the tarball has no manual pages"
    bash -n "$top/completions/larder.bash"
    python3 - "$work/packages/larder-$version.cdx.json" <<'PY' || fail "the list of components is not whole"
import json, sys
names = {component["name"] for component in json.load(open(sys.argv[1]))["components"]}
assert {"larder-store", "zstd-sys", "blake3"} <= names and not {"proptest", "larder-testkit"} & names
PY
}

# whole SHELL...: the README's quick start, by a shell somewhere else, and the comparison of what came back.
quick_start=$(awk '/^```sh$/ {inside = 1; text = ""; next} /^```$/ {if (text ~ /larder init/) {print text; exit} inside = 0} inside {text = text $0 "\n"}' "$root/README.md")
whole() {
    [ -n "$quick_start" ] || fail "the README has no quick start"
    "$@" sh -euc "
        mkdir -p ~/Documents && cp -a /usr/share/doc /usr/lib/locale ~/Documents/
        $quick_start
        cp=/tmp/restored\$HOME/Documents
        diff -r ~/Documents \$cp && [ \$(find \$cp -type f | wc -l) -gt 20 ]
    "
}

# The mirror and the suite of Debian that this machine installs from.
mirror() {
    local codename
    # shellcheck source=/dev/null
    codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
    apt-get indextargets --format '$(CODENAME) $(REPO_URI)' 'Created-By: Packages' 2> /dev/null |
        awk -v codename="$codename" '$1 == codename {print $1, $2; exit}'
}

bare_root() {
    local suite uri tar
    [ "$(id -u)" = 0 ] || { echo "skipped: a bare Debian needs root"; return; }
    command -v debootstrap > /dev/null || { echo "skipped: debootstrap is not installed"; return; }
    read -r suite uri <<< "$(mirror)" || true
    [ -n "${uri:-}" ] || { echo "skipped: this machine names no mirror of Debian"; return; }
    tar=$kept/$suite-minbase-$(dpkg --print-architecture).tar
    if [ ! -s "$tar" ]; then
        curl --silent --fail --location --max-time 30 --output "$work/release" "${uri%/}/dists/$suite/Release" ||
            { echo "skipped: the mirror $uri does not answer"; return; }
        timeout 400 debootstrap --variant=minbase "$suite" "$work/bare" "$uri" > "$work/debootstrap.log" 2>&1 ||
            { tail "$work/debootstrap.log" >&2; fail "no bare root of $suite from $uri"; }
        mkdir -p "$kept"
        # Devices are made by the system that runs it.
        tar --create --file "$tar.$$" --directory "$work/bare" --exclude=./dev --exclude=./var/cache/apt . && mv "$tar.$$" "$tar"
        rm -rf "$work/bare"
    fi
    mkdir "$work/bare"
    tar --extract --file "$tar" --directory "$work/bare"
    mkdir -p "$work/bare/dev" "$work/bare/var/cache/apt/archives/partial"
    mknod -m 666 "$work/bare/dev/null" c 1 3
    cp "$work"/packages/*.deb "$work/bare/larder.deb"
    local inside=(env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C DEBIAN_FRONTEND=noninteractive
        timeout 300 chroot "$work/bare")
    # All that it depends on is there already, so nothing is fetched.
    "${inside[@]}" apt-get install --quiet --quiet --yes -o Dpkg::Use-Pty=0 \
        --no-install-recommends /larder.deb > "$work/apt.log" 2>&1 ||
        { cat "$work/apt.log" >&2; fail "the package cannot be installed in a bare root"; }
    whole "${inside[@]}" > "$work/quick.log" 2>&1 || { cat "$work/quick.log" >&2; fail "the quick start fails in a bare root"; }
    "${inside[@]}" dpkg --verify larder || fail "files of the package are not what it says"
    local path
    for path in usr/share/man/man1/larder-restore.1.gz usr/share/bash-completion/completions/larder \
        usr/share/zsh/vendor-completions/_larder usr/share/fish/vendor_completions.d/larder.fish; do
        [ -s "$work/bare/$path" ] || fail "the package lacks $path"
    done
    [ "$(stat -c %a "$work/bare/etc/larder")" = 700 ] || fail "others may look into /etc/larder"
    "${inside[@]}" dpkg --purge larder > /dev/null 2>&1
    [ ! -e "$work/bare/usr/bin/larder" ] || fail "the package cannot be removed"
    echo "packages: the Debian package works in a bare $suite"
}

image() {
    mkdir -p "$work/layout" "$work/bundle/rootfs"
    tar --extract --directory "$work/layout" --file "$work"/packages/*-oci.tar
    python3 - "$work/layout" "$work/bundle" <<'PY' || fail "the image is not whole"
import gzip, hashlib, io, json, sys, tarfile
layout, bundle = sys.argv[1:]
def blob(descriptor):
    name, digest = descriptor["digest"].split(":")
    content = open(f"{layout}/blobs/{name}/{digest}", "rb").read()
    assert (hashlib.sha256(content).hexdigest(), len(content)) == (digest, descriptor["size"])
    return content
manifest = json.loads(blob(json.load(open(f"{layout}/index.json"))["manifests"][0]))
config = json.loads(blob(manifest["config"]))
layers = [gzip.decompress(blob(layer)) for layer in manifest["layers"]]
assert config["rootfs"]["diff_ids"] == ["sha256:" + hashlib.sha256(layer).hexdigest() for layer in layers]
for layer in layers:
    tarfile.open(fileobj=io.BytesIO(layer)).extractall(f"{bundle}/rootfs")
# The entry point of the image, with the arguments of a whole round.
entry = config["config"]["Entrypoint"]
mount = lambda place, kind, *options: {"destination": place, "type": kind, "source": kind, "options": list(options)}
json.dump({
    "ociVersion": "1.0.2", "root": {"path": "rootfs", "readonly": False}, "hostname": "image",
    "process": {"terminal": False, "user": {"uid": 0, "gid": 0}, "cwd": config["config"]["WorkingDir"], "args": entry,
                "env": config["config"]["Env"] + ["LARDER_PASSWORD=secret", "LARDER_REPOSITORY=/tmp/repository"]},
    "mounts": [mount("/proc", "proc"), mount("/dev", "tmpfs", "nosuid", "mode=755")],
    "linux": {"namespaces": [{"type": kind} for kind in ("pid", "mount", "ipc", "uts")], "rootfsPropagation": "rprivate"},
}, open(f"{bundle}/config.json", "w"))
PY
    [ "$(id -u)" = 0 ] || { echo "skipped: runc needs root"; return; }
    command -v runc > /dev/null || { echo "skipped: runc is not installed"; return; }
    local arguments round=0
    for arguments in '"version"' '"init","--insecure-kdf"' '"backup","/usr","/etc"' '"check","--read-data"' \
        '"restore","latest:/usr","--target","/tmp/back","--verify"'; do
        round=$((round + 1))
        python3 - "$work/bundle/config.json" "[$arguments]" <<'PY'
import json, sys
path, more = sys.argv[1], json.loads(sys.argv[2])
config = json.load(open(path))
config["process"]["args"] = config["process"]["args"][:1] + more
json.dump(config, open(path, "w"))
PY
        timeout 60 runc --root "$work/runc" run --bundle "$work/bundle" "larder-$$-$round" > "$work/runc.log" 2>&1 < /dev/null ||
            { cat "$work/runc.log" >&2; fail "the image does not run: $arguments"; }
    done
    cmp "$work/bundle/rootfs/usr/bin/larder" "$work/bundle/rootfs/tmp/back/bin/larder" || fail "the image restores something else"
    echo "packages: the image runs under runc"
}

pack
tarball
bare_root
image
echo "packages: equal twice ($(du --bytes --summarize "$work/packages" | cut -f 1) bytes, built for tests)"
