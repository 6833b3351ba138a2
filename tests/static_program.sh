# Sets `static` to a static program of the profile dev. The gate linked one when it built (LARDER_BUILT); elsewhere it is built,
# unoptimised. Sourced, not run, before common.sh.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
static=${CARGO_TARGET_DIR:-$root/target}/static/larder
if [ -z "${LARDER_BUILT:-}" ] || [ ! -x "$static" ] || [ "$static" -ot "${CARGO_TARGET_DIR:-$root/target}/debug/larder" ]; then
    static=$(CARGO_PROFILE_DEV_OPT_LEVEL=0 "$root/dist/static.sh" dev | tail -n 1)
fi
