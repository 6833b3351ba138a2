//! How much memory the processes of this machine, or of this container, can use.

use std::path::Path;

const GROUPS: &str = "/sys/fs/cgroup";

/// Bytes of memory of this machine, or the limit of this process's control group if that is less.
pub(crate) fn bytes() -> u64 {
    let machine = rustix::system::sysinfo();
    let machine = machine.totalram.saturating_mul(machine.mem_unit.into());
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    machine.min(limit(Path::new(GROUPS), &groups).unwrap_or(u64::MAX))
}

/// The least limit of a control group and of those that it is in. `None`: there is none.
fn limit(root: &Path, groups: &str) -> Option<u64> {
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let group = root.join(group);
    let groups = group.ancestors().take_while(|group| group.starts_with(root));
    let limit = |group: &Path| std::fs::read_to_string(group.join("memory.max")).ok()?.trim().parse().ok();
    groups.filter_map(limit).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_limit_counts() {
        let root = tempfile::tempdir().unwrap();
        let inner = root.path().join("a/b");
        std::fs::create_dir_all(&inner).unwrap();
        let groups = "1:cpu:/x\n0::/a/b\n";
        assert_eq!(limit(root.path(), groups), None);
        std::fs::write(inner.join("memory.max"), "max\n").unwrap();
        assert_eq!(limit(root.path(), groups), None);
        std::fs::write(root.path().join("memory.max"), "3000\n").unwrap();
        std::fs::write(root.path().join("a/memory.max"), "2000\n").unwrap();
        assert_eq!(limit(root.path(), groups), Some(2000));
        std::fs::write(inner.join("memory.max"), "4000\n").unwrap();
        assert_eq!(limit(root.path(), groups), Some(2000));
        assert_eq!(limit(root.path(), "0::/\n"), Some(3000));
        assert_eq!(limit(root.path(), ""), None);
        assert!(bytes() > 1 << 20);
    }
}
