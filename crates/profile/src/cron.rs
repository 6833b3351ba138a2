//! cron, where there is no systemd: one line that asks every quarter of an hour which profiles are
//! due. Runs that were missed are made up for, because the journal knows the last ones.

use std::path::Path;

/// The first line of what is written here, by which it is found again.
pub const BEGIN: &str = "# larder schedule: begin";
/// The last one.
pub const END: &str = "# larder schedule: end";

/// The lines. `user`: the crontab of the system names one.
pub fn lines(program: &Path, config: &Path, user: Option<&str>) -> String {
    let user = user.map_or_else(String::new, |user| format!("{user} "));
    let (program, config) = (quoted(program), quoted(config));
    format!("{BEGIN}\n*/15 * * * * {user}{program} --quiet --config {config} run --due\n{END}\n")
}

/// A crontab without the lines of this program.
pub fn without(crontab: &str) -> String {
    let mut is_ours = false;
    let mut kept = String::new();
    for line in crontab.split_inclusive('\n') {
        match line.trim_end() {
            BEGIN => is_ours = true,
            END if is_ours => is_ours = false,
            _ if !is_ours => kept.push_str(line),
            _ => {}
        }
    }
    kept
}

/// A path as a word of the shell. In a crontab, `%` ends the command.
fn quoted(path: &Path) -> String {
    let text = path.to_string_lossy().replace('%', "\\%");
    let is_plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._-+@:".contains(&byte));
    if is_plain { text } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_lines_come_and_go_and_others_stay() {
        let ours = lines(Path::new("/usr/bin/larder"), Path::new("/etc/a b.toml"), Some("root"));
        assert!(
            ours.contains("*/15 * * * * root /usr/bin/larder --quiet --config '/etc/a b.toml' run --due\n"),
            "{ours}"
        );
        let crontab = format!("MAILTO=me\n{ours}0 1 * * * other\n");
        assert_eq!(without(&crontab), "MAILTO=me\n0 1 * * * other\n");
        assert_eq!(without("0 1 * * * other"), "0 1 * * * other");
    }
}
