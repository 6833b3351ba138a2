//! The name of a series when the user gives none.

use std::path::Path;

use larder_format::manifest::Statistics;
use larder_gnode::retention::GroupBy;
use larder_source::PathText;

use crate::args::BackupArgs;
use crate::output::summary;

/// `host:/abs/path[,/abs/path2]` for trees and devices, `host:name` for streams.
pub(in crate::commands) fn default_series(host: &str, names: &[Vec<u8>]) -> String {
    let names: Vec<String> = names.iter().map(|name| PathText(name).to_string()).collect();
    format!("{host}:{}", names.join(","))
}

/// The name that `--group-by` asks for: these parts with colons between them.
pub(super) fn series_of_group(by: GroupBy, host: &str, names: &[Vec<u8>], tags: &[String]) -> String {
    if by == (GroupBy { series: false, host: true, paths: true, tags: false }) {
        return default_series(host, names);
    }
    let names: Vec<String> = names.iter().map(|name| PathText(name).to_string()).collect();
    let mut tags = tags.to_vec();
    tags.sort_unstable();
    tags.dedup();
    let parts = [(by.host, host.to_owned()), (by.paths, names.join(",")), (by.tags, tags.join(","))];
    let parts: Vec<String> = parts.into_iter().filter(|(is_wanted, _)| *is_wanted).map(|(_, part)| part).collect();
    // Without tags, and by nothing, all backups are one series.
    let name = parts.join(":");
    if name.is_empty() { "all".to_owned() } else { name }
}

/// Whether the series is named after standard input. Then all streams, or all lists of files, of a
/// host share it.
pub(super) fn is_unnamed(args: &BackupArgs) -> bool {
    let is_stream = args.stdin || args.stdin_from_command;
    let lists = [&args.files_from, &args.files_from_verbatim, &args.files_from_raw];
    let mut lists = lists.into_iter().flatten();
    args.series.is_none()
        && if is_stream { args.stdin_filename.is_none() } else { lists.any(|list| list == Path::new("-")) }
}

/// Whether nine tenths of a snapshot are new to its series: of its chunks for a stream, otherwise
/// of its files.
pub(super) fn is_nearly_new(statistics: &Statistics, is_stream: bool) -> bool {
    let (new, all) = match is_stream {
        true => (statistics.new_chunks, statistics.chunks),
        false => (statistics.files_new, summary::files(statistics)),
    };
    new > 0 && new.saturating_mul(10) >= all.saturating_mul(9)
}

/// Above this number of paths, only their common folder is recorded.
const PATHS_MAX: usize = 256;

/// The paths to record for the given ones, all absolute.
pub(super) fn recorded(paths: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    if paths.len() <= PATHS_MAX {
        return paths;
    }
    let mut common: Option<Vec<&[u8]>> = None;
    for path in &paths {
        let names: Vec<&[u8]> = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).collect();
        match &mut common {
            None => common = Some(names),
            Some(common) => {
                let same = common.iter().zip(&names).take_while(|(a, b)| a == b).count();
                common.truncate(same);
            }
        }
    }
    let folder = common.unwrap_or_default().join(&b"/"[..]);
    vec![[b"/", &*folder].concat()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_is_named_after_host_and_paths() {
        let series =
            |names: &[&[u8]]| default_series("host", &names.iter().map(|name| name.to_vec()).collect::<Vec<_>>());
        assert_eq!(series(&[b"/home", b"/etc"]), "host:/home,/etc");
        assert_eq!(series(&[b"dump.sql"]), "host:dump.sql");
        assert_eq!(series(&[b"/\xff\n"]), "host:/\\xff\\n");
    }

    #[test]
    fn a_group_names_a_series() {
        let of = |host, paths, tags, with: &[&str]| {
            let by = GroupBy { series: false, host, paths, tags };
            let with: Vec<String> = with.iter().map(|tag| (*tag).to_owned()).collect();
            series_of_group(by, "host", &[b"/home".to_vec(), b"/etc".to_vec()], &with)
        };
        assert_eq!(of(true, true, false, &["a"]), "host:/home,/etc");
        assert_eq!(of(true, false, false, &[]), "host");
        assert_eq!(of(true, false, true, &["b", "a", "b"]), "host:a,b");
        assert_eq!(of(false, true, false, &[]), "/home,/etc");
        assert_eq!([of(false, false, false, &[]), of(false, false, true, &[])], ["all", "all"]);
    }

    #[test]
    fn very_many_paths_are_recorded_as_the_folder_above() {
        let few = vec![b"/a".to_vec(), b"/b".to_vec()];
        assert_eq!(recorded(few.clone()), few);
        let many: Vec<Vec<u8>> = (0..1000).map(|n| format!("/srv/data/{n}").into_bytes()).collect();
        assert_eq!(recorded(many), [b"/srv/data".to_vec()]);
        let apart: Vec<Vec<u8>> = (0..1000).map(|n| format!("/{n}/x").into_bytes()).collect();
        assert_eq!(recorded(apart), [b"/".to_vec()]);
    }
}
