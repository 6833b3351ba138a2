//! A repository with a key file for every role.

use std::path::{Path, PathBuf};

use larder_format::config::UnverifiedConfig;
use larder_format::key_file::{MachineKey, Unlock, unwrap};
use larder_format::keys::Keys;

use super::{Play, Ran, run};

/// Keys of every role beside a repository with one snapshot, which the password made.
pub(crate) struct Roles {
    pub(crate) play: Play,
    pub(crate) first: String,
}

pub(crate) const ALL: [&str; 5] = ["backup", "restore", "operate", "restore+operate", "all"];

impl Roles {
    pub(crate) fn new() -> Self {
        let play = Play::with_repository();
        play.write("src/a", "the first");
        play.write("src/b", vec![7; 50_000]);
        let first = play.backup(["src", "--series", "s"]);
        Self::beside(play, first)
    }

    /// The same beside another repository and a snapshot in it.
    pub(crate) fn beside(play: Play, first: String) -> Self {
        let roles = Self { play, first };
        for role in ALL {
            roles.add(role, &["--role", role]).ok();
        }
        roles
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.play.path(format!("{name}.key"))
    }

    pub(crate) fn add(&self, name: &str, args: &[&str]) -> Ran {
        let file = self.file(name);
        let mut command = self.play.command(["key", "add", "--file"]);
        run(command.arg(file).args(args))
    }

    /// Runs with a key file and without a password.
    pub(crate) fn run(&self, key: &str, args: &[&str]) -> Ran {
        self.run_with(&self.file(key), args)
    }

    pub(crate) fn run_with(&self, file: &Path, args: &[&str]) -> Ran {
        // Each file is on a machine of its own.
        let state = file.with_extension("state");
        let mut command = self.play.command(args);
        run(command.env_remove("LARDER_PASSWORD").env("LARDER_KEY_FILE", file).env("LARDER_STATE", state))
    }
}

/// Standard output has a text.
#[track_caller]
pub(crate) fn shows(ran: Ran, text: &str) {
    assert!(ran.text().contains(text), "{text:?} is not in:\n{}", ran.text());
}

/// The keys that a key file opens.
pub(crate) fn keys_of(roles: &Roles, key: &str) -> Keys {
    let text = std::fs::read_to_string(roles.file(key)).expect("a key file");
    let machine = MachineKey::read_all(&text).expect("a key").remove(0);
    let object = std::fs::read(roles.play.repository().join(format!("keys/{}", machine.key))).expect("a key object");
    let secrets = unwrap(&object, Unlock::File(&machine.secret), machine.key, machine.repository).expect("opens");
    let config = std::fs::read(roles.play.repository().join("config")).expect("a config");
    UnverifiedConfig::decode(&config).expect("reads").open(secrets).expect("genuine").1
}
