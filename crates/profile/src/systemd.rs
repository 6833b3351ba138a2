//! Units of systemd for profiles: a service that runs one once, and a timer.
//!
//! The service may read everything and write only where backups do. A profile that needs more
//! leaves protections out by name (`relax`).

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::calendar::Schedule;

/// The first words of every file that is written here, by which it is found again.
pub const MARK: &str = "# Written by `larder schedule install`";
/// The beginning of the names of all units.
pub const PREFIX: &str = "larder-run-";

/// Protections of the service, in the order of its file. Each can be left out.
const PROTECTIONS: [(&str, &str); 25] = [
    ("NoNewPrivileges", "yes"),
    ("ProtectSystem", "strict"),
    ("ProtectHome", "read-only"),
    ("PrivateTmp", "yes"),
    ("PrivateDevices", "yes"),
    ("ProtectKernelTunables", "yes"),
    ("ProtectKernelModules", "yes"),
    ("ProtectKernelLogs", "yes"),
    ("ProtectControlGroups", "yes"),
    ("ProtectClock", "yes"),
    ("ProtectHostname", "yes"),
    ("ProtectProc", "invisible"),
    ("RestrictNamespaces", "yes"),
    ("RestrictRealtime", "yes"),
    ("RestrictSUIDSGID", "yes"),
    ("LockPersonality", "yes"),
    ("MemoryDenyWriteExecute", "yes"),
    ("KeyringMode", "private"),
    ("RemoveIPC", "yes"),
    ("SystemCallArchitectures", "native"),
    ("SystemCallFilter", "@system-service"),
    ("SystemCallErrorNumber", "EPERM"),
    ("RestrictAddressFamilies", "AF_UNIX AF_INET AF_INET6 AF_NETLINK"),
    ("CapabilityBoundingSet", "CAP_DAC_READ_SEARCH"),
    ("LimitCORE", "0"),
];

/// Those that the manager of a user cannot give without more rights.
const NOT_FOR_USERS: [&str; 15] = [
    "ProtectSystem",
    "ProtectHome",
    "PrivateTmp",
    "PrivateDevices",
    "ProtectKernelTunables",
    "ProtectKernelModules",
    "ProtectKernelLogs",
    "ProtectControlGroups",
    "ProtectClock",
    "ProtectHostname",
    "ProtectProc",
    "RemoveIPC",
    "KeyringMode",
    "CapabilityBoundingSet",
    "RestrictNamespaces",
];

/// A profile, as its units need it.
#[derive(Debug)]
pub struct Unit<'a> {
    /// Its name.
    pub profile: &'a str,
    /// The program.
    pub program: &'a Path,
    /// The configuration file.
    pub config: &'a Path,
    /// When it runs.
    pub schedule: &'a Schedule,
    /// It starts up to this much later.
    pub random_delay: Option<Duration>,
    /// The manager is that of a user, and not the one of the system.
    pub is_user: bool,
    /// Its sources: where they are decides about some protections.
    pub sources: &'a [PathBuf],
    /// Folders that it writes to.
    pub writable: &'a [PathBuf],
    /// Protections that are left out.
    pub relax: &'a [String],
}

/// Whether a protection has this name.
pub fn is_protection(name: &str) -> bool {
    PROTECTIONS.iter().any(|(known, _)| *known == name)
}

/// Names of all protections.
pub fn protections() -> impl Iterator<Item = &'static str> {
    PROTECTIONS.iter().map(|(name, _)| *name)
}

impl Unit<'_> {
    /// Name of the service and of the timer without their endings.
    pub fn name(&self) -> String {
        format!("{PREFIX}{}", self.profile)
    }

    /// The file of the service.
    pub fn service(&self) -> String {
        let (program, config) = (quoted(self.program), quoted(self.config));
        let mut text = format!(
            "{MARK}. `larder schedule install {profile}` writes it again.\n\
             [Unit]\n\
             Description=Back up the profile {profile} with Larder\n\
             Wants=network-online.target\n\
             After=network-online.target\n\
             \n\
             [Service]\n\
             Type=oneshot\n\
             ExecStart={program} --config {config} run {profile}\n\
             # 3: the snapshot exists, some files could not be read. The log names them.\n\
             SuccessExitStatus=3\n\
             KillSignal=SIGINT\n\
             TimeoutStopSec=10min\n\
             Nice=10\n\
             IOSchedulingClass=idle\n",
            profile = self.profile,
        );
        if !self.is_user {
            // The manager of the system sets no HOME. A value such as ${HOME} must be what it is by
            // hand.
            text.push_str(
                "Environment=HOME=%h\nStateDirectory=larder\nStateDirectoryMode=0700\nEnvironment=LARDER_STATE=%S/larder\n\
                 CacheDirectory=larder\nCacheDirectoryMode=0700\nEnvironment=LARDER_CACHE_DIR=%C/larder\n",
            );
        }
        for (name, value) in PROTECTIONS {
            if self.has(name) {
                text.push_str(&format!("{name}={value}\n"));
            }
        }
        if self.has("ProtectSystem") {
            for folder in self.writable {
                // The dash: a folder that is missing, such as a disk that is not plugged in, is an
                // error of the run with a message, and not of the unit.
                text.push_str(&format!("ReadWritePaths=-{}\n", path_word(folder)));
            }
        }
        text
    }

    /// The file of the timer.
    pub fn timer(&self) -> String {
        let profile = self.profile;
        let mut text = format!(
            "{MARK}. `larder schedule install {profile}` writes it again.\n\
             [Unit]\n\
             Description=Back up the profile {profile} with Larder on schedule\n\
             \n\
             [Timer]\n"
        );
        for expression in self.schedule.systemd() {
            text.push_str(&format!("OnCalendar={}\n", expression.replace('%', "%%")));
        }
        if let Some(delay) = self.random_delay {
            text.push_str(&format!("RandomizedDelaySec={}s\nFixedRandomDelay=yes\n", delay.as_secs()));
        }
        text.push_str("# A run that was missed is made up for.\nPersistent=yes\n\n[Install]\nWantedBy=timers.target\n");
        text
    }

    /// Whether the service has a protection.
    fn has(&self, name: &str) -> bool {
        let below = |folders: &[&str]| {
            let is_below = |source: &PathBuf| folders.iter().any(|folder| source.starts_with(folder));
            self.sources.iter().any(is_below) || self.writable.iter().any(is_below)
        };
        // A source such as / has them below it: the timer would back up other folders than a run by
        // hand.
        let has_below = |folders: &[&str]| {
            self.sources.iter().any(|source| folders.iter().any(|folder| Path::new(folder).starts_with(source)))
        };
        const TEMPORARY: [&str; 2] = ["/tmp", "/var/tmp"];
        let is_in_the_way = match name {
            "PrivateTmp" => below(&TEMPORARY) || has_below(&TEMPORARY),
            "PrivateDevices" => below(&["/dev"]),
            _ => false,
        };
        let is_for = !self.is_user || !NOT_FOR_USERS.contains(&name);
        is_for && !is_in_the_way && !self.relax.iter().any(|relaxed| relaxed == name)
    }
}

/// A path as a word of a command in a unit file. Variables are replaced in these alone.
fn quoted(path: &Path) -> String {
    path_word(Path::new(&path.to_string_lossy().replace('$', "$$")))
}

/// A path as a word of any other setting of a unit file.
fn path_word(path: &Path) -> String {
    let text = path.to_string_lossy().replace('%', "%%");
    match text.contains([' ', '"', '\'', '\\', ';', '\t']) {
        true => format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with<T>(change: impl FnOnce(Unit<'_>) -> T) -> T {
        let schedule = Schedule::all(vec![Schedule::parse("daily 02:30").expect("a schedule")]).expect("rules");
        let (sources, writable) = ([PathBuf::from("/home")], [PathBuf::from("/srv/my backups")]);
        change(Unit {
            profile: "home",
            program: Path::new("/usr/bin/larder"),
            config: Path::new("/etc/larder/larder.toml"),
            schedule: &schedule,
            random_delay: Some(Duration::from_secs(1800)),
            is_user: false,
            sources: &sources,
            writable: &writable,
            relax: &[],
        })
    }

    #[test]
    fn the_service_runs_one_profile_and_is_protected() {
        let text = with(|unit| unit.service());
        for line in [
            "ExecStart=/usr/bin/larder --config /etc/larder/larder.toml run home",
            "SuccessExitStatus=3",
            "NoNewPrivileges=yes",
            "ProtectSystem=strict",
            "PrivateTmp=yes",
            "ReadWritePaths=-\"/srv/my backups\"",
            "Environment=LARDER_STATE=%S/larder",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn the_timer_catches_up_and_waits_at_random() {
        let text = with(|unit| unit.timer());
        for line in ["OnCalendar=*-*-* 02:30", "RandomizedDelaySec=1800s", "Persistent=yes", "WantedBy=timers.target"] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn protections_go_where_sources_or_the_profile_need_it() {
        let has = |text: &str, name: &str| text.lines().any(|line| line.starts_with(&format!("{name}=")));
        let (tmp, device) = ([PathBuf::from("/tmp/x")], [PathBuf::from("/dev/vg0/snap")]);
        let relaxed = ["SystemCallFilter".to_owned()];
        let text = with(|unit| Unit { sources: &tmp, relax: &relaxed, ..unit }.service());
        assert!(!has(&text, "PrivateTmp") && !has(&text, "SystemCallFilter") && has(&text, "PrivateDevices"));
        // What is below the source must not be another folder under the timer.
        for all in ["/", "/var"] {
            let all = [PathBuf::from(all)];
            assert!(!has(&with(|unit| Unit { sources: &all, ..unit }.service()), "PrivateTmp"));
        }
        let text = with(|unit| Unit { sources: &device, ..unit }.service());
        assert!(has(&text, "PrivateTmp") && !has(&text, "PrivateDevices"));
        let text = with(|unit| Unit { is_user: true, ..unit }.service());
        assert!(!has(&text, "ProtectSystem") && !has(&text, "StateDirectory") && has(&text, "NoNewPrivileges"));
        assert!(NOT_FOR_USERS.iter().all(|name| is_protection(name)));
    }

    #[test]
    fn paths_are_quoted() {
        assert_eq!(quoted(Path::new("/a b%c\"$d")), "\"/a b%%c\\\"$$d\"");
        // Only commands replace variables.
        assert_eq!(path_word(Path::new("/srv/$a b")), "\"/srv/$a b\"");
        assert_eq!(quoted(Path::new("/plain/path")), "/plain/path");
    }
}
