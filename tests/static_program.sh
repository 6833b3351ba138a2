# Sets `static` to a static program of the profile dev. The gate linked one when it built; elsewhere it is built, unoptimised.
# Sourced, not run, before common.sh.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
built=${CARGO_TARGET_DIR:-$root/target}
static=$built/static/larder
if [ "$static" -ot "$built/debug/larder" ]; then
    static=$(CARGO_PROFILE_DEV_OPT_LEVEL=0 "$root/dist/static.sh" dev | tail -n 1)
fi
