#!/usr/bin/env bash
# Packs two built programs: a tarball, a Debian package, an OCI image, a list of the components, and checksums.
#
#   dist/package.sh VERSION STATIC DYNAMIC FOLDER
#
# STATIC goes into the tarball and the image, and runs on any Linux. DYNAMIC goes into the Debian package: it asks directory
# services (LDAP, SSSD) for names of owners. The same input gives the same bytes; SOURCE_DATE_EPOCH is the time of all files.
# LARDER_MINISIGN_KEY names a key that signs the checksums. LARDER_LEVEL is how hard to compress, from 0 to 9
# (the gate packs quickly).
set -euo pipefail
[ $# -eq 4 ] || { sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2; }
version=$1 static=$(realpath "$2") dynamic=$(realpath "$3")
mkdir -p "$4"
folder=$(cd "$4" && pwd)
cd "$(dirname "$0")/.."
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)} LC_ALL=C TZ=UTC
umask 022
machine=$(uname -m)
level=${LARDER_LEVEL:-9}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# archive FOLDER: a tar of it whose bytes depend on names, contents and modes only.
archive() {
    tar --create --sort=name --format=ustar --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
        --mode=u=rwX,go=rX --directory "$1" .
}

# pages FOLDER: the manual pages. completions BASH ZSH FISH: the completions, in these files.
pages() { mkdir -p "$1" && "$static" --quiet man "$1"; }
completions() {
    mkdir -p "$(dirname "$1")" "$(dirname "$2")" "$(dirname "$3")"
    "$static" completions bash > "$1"
    "$static" completions zsh > "$2"
    "$static" completions fish > "$3"
}

tarball() {
    local name=larder-$version-$machine-linux
    local top=$work/tarball/$name
    mkdir -p "$top"
    install -m 755 "$static" "$top/larder"
    cp README.md CHANGELOG.md LICENSE-APACHE LICENSE-MIT "$top/"
    pages "$top/man"
    completions "$top/completions/larder.bash" "$top/completions/_larder" "$top/completions/larder.fish"
    archive "$work/tarball" | xz --threads=1 "-$level" > "$folder/$name.tar.xz"
}

# libraries: the packages of Debian that the program needs, from the libraries that it names.
libraries() {
    local library glibc
    glibc=$(readelf --version-info --wide "$dynamic" | grep -o 'GLIBC_[0-9.]*' | sed 's/GLIBC_//' | sort --version-sort | tail -n 1)
    for library in $(readelf --dynamic --wide "$dynamic" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
        case $library in
            libc.so.* | libm.so.* | ld-linux*) echo "libc6 (>= $glibc)" ;;
            libgcc_s.so.*) echo "libgcc-s1" ;;
            *) echo "the package has no rule for $library" >&2; return 1 ;;
        esac
    done | sort --unique | sed ':all; N; $!b all; s/\n/, /g'
}

debian() {
    local top=$work/debian architecture depends
    architecture=$(dpkg --print-architecture)
    depends=$(libraries)
    install -D -m 755 "$dynamic" "$top/usr/bin/larder"
    pages "$top/usr/share/man/man1"
    completions "$top/usr/share/bash-completion/completions/larder" "$top/usr/share/zsh/vendor-completions/_larder" \
        "$top/usr/share/fish/vendor_completions.d/larder.fish"
    mkdir -p "$top/usr/share/doc/larder"
    cp README.md "$top/usr/share/doc/larder/"
    # The guide, the schemas of JSON, and the files for Prometheus and Grafana.
    cp -r docs/guide docs/json docs/monitoring "$top/usr/share/doc/larder/"
    cp CHANGELOG.md "$top/usr/share/doc/larder/changelog"
    { echo "Licensed under the Apache License 2.0 or the MIT license, at your option."; echo; cat LICENSE-MIT; echo; cat LICENSE-APACHE; } \
        > "$top/usr/share/doc/larder/copyright"
    gzip -9n "$top/usr/share/man/man1/"* "$top/usr/share/doc/larder/changelog"
    # For configurations, keys and passwords of root.
    mkdir -p "$top/etc/larder" "$top/DEBIAN"
    (cd "$top" && find usr -type f -print0 | sort -z | xargs -0 md5sum) > "$top/DEBIAN/md5sums"
    cat > "$top/DEBIAN/control" <<CONTROL
Package: larder
Version: $version
Architecture: $architecture
Maintainer: The developers of Larder <larder@localhost>
Installed-Size: $(find "$top" -type f -printf '%s\n' | awk '{kib += int(($1 + 1023) / 1024)} END {print kib}')
Depends: $depends
Recommends: ca-certificates, fuse3, openssh-client
Section: admin
Priority: optional
Description: deduplicating, encrypted backups into a folder or a bucket
 Larder backs up files, databases and disk images into a folder, an SFTP
 server or a bucket (S3, Azure, Google). Data is deduplicated, compressed
 and always encrypted. Any number of machines may use one repository at the
 same time, without locks. Any snapshot restores completely, and any can be
 forgotten.
CONTROL
    chmod -R u=rwX,go=rX "$top"
    chmod 700 "$top/etc/larder"
    find "$top" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
    dpkg-deb --root-owner-group -Zxz "-z$level" --threads-max=1 --build "$top" \
        "$folder/larder_${version}_$architecture.deb" > "$work/dpkg-deb.log" || { cat "$work/dpkg-deb.log" >&2; return 1; }
}

image() {
    local top=$work/image
    install -D -m 755 "$static" "$top/usr/bin/larder"
    # A static program has no name service: it reads these two files.
    mkdir -p "$top/etc" "$top/root" "$top/tmp"
    echo "root:x:0:0:root:/root:/usr/bin/larder" > "$top/etc/passwd"
    echo "root:x:0:" > "$top/etc/group"
    dist/oci.py --level "$level" --version "$version" --created "$SOURCE_DATE_EPOCH" --machine "$machine" "$top" "$folder/larder-$version-$machine-oci.tar"
}

tarball
debian
image
dist/sbom.py --version "$version" --created "$SOURCE_DATE_EPOCH" > "$folder/larder-$version.cdx.json"
cd "$folder"
sha256sum -- "larder-$version-$machine-linux.tar.xz" larder_"$version"_*.deb "larder-$version-$machine-oci.tar" "larder-$version.cdx.json" > SHA256SUMS
if [ -n "${LARDER_MINISIGN_KEY:-}" ]; then
    minisign -S -s "$LARDER_MINISIGN_KEY" -t "larder $version" -m SHA256SUMS
fi
