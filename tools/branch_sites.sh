#!/bin/sh
# Counts and lists the branches on the layout outside the crates `lifecycle` and `format`, which own it.
#
#   tools/branch_sites.sh            lists them, and fails if there are LIMIT or more
#   tools/branch_sites.sh --equal    lists comparisons of one layout with another instead
#
# A site is a line of the program, not of tests, examples, comments or imports, that
#   - compares with a layout, or filters or selects by one: `== Layout::X`, `(Layout::X)` as an argument,
#     `[Layout::X]`, and `layouts != [Layout::X..]`,
#   - matches on a layout: the `match`, not its arms,
#   - compares with the state of an arranged container, or
#   - asks whether containers are arranged or only named: a call of is_placed, is_lifecycle, is_asked, is_object,
#     is_arranged or are_arranged.
# Not counted: methods of an implementation that was selected for a layout, values that name a layout (`layout: Layout::X`)
# or print its name, and comparisons of two layouts, which treat no layout in its own way.
set -eu
LIMIT=15
cd "$(dirname "$0")/.."

variant='(larder_format::layout::)?Layout::(Standard|Lifecycle)'
site="[!=]= *(Some\()?\[?$variant|[(\[]$variant[])]|match ([a-z_.&*]*\.)?layout(\(\))? \{|matches!\([^)]*($variant|layout)"
site="$site|(==|!=|matches!.*) *ContainerState::Arranged|ContainerState::Arranged( if)? =>"
site="$site|\.(is_placed|is_lifecycle|is_asked|is_object|is_arranged|are_arranged)\("
equal='layout *(==|!=) *[a-z(]|layout\(?\)? *(==|!=) *[a-z(]'
[ "${1:-}" = --equal ] && site=$equal

found=$(find crates -name '*.rs' -path '*/src/*' | grep -vE '^crates/(lifecycle|format|testkit)/|/tests?(/|\.rs$)|_tests\.rs$' |
    sort | while read -r file; do
        # What follows `mod tests {` at the end of a file is a test.
        awk -v file="$file" '/^#\[cfg\(test\)\]/ { held = 1; next } held && /^mod .*\{/ { exit } { held = 0; print file ":" FNR ":" $0 }' "$file"
    done | grep -E "$site" | grep -vE '^[^:]*:[0-9]*: *(//|use |pub use )' || true)
count=$(printf '%s' "$found" | grep -c '' || true)
printf '%s\n' "$found"
echo "$count sites"
[ "${1:-}" = --equal ] || [ "$count" -lt $LIMIT ]
