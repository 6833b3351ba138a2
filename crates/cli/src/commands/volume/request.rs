//! What a store can be asked: by a command that opens it, and over the control socket of a server.
//!
//! A request and its answer are JSON. The answer is the one that a command prints with `--json`,
//! so both ways have one result. Before it there may be parts: progress, or what would be too much
//! for one value. A new verb is one value of [`Request`] and one arm of `Host::execute`.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::exit::{Exit, TABLE};
use crate::failure::Failure;

/// Takes parts of an answer. An error ends the request: nobody waits for the answer.
pub(super) type Parts<'a> = &'a mut dyn FnMut(Value) -> Result<(), Failure>;

/// A question, or something to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Request {
    /// All volumes.
    List,
    /// A new volume.
    Create {
        /// Its name.
        name: String,
        /// Its size in bytes.
        size: u64,
    },
    /// A new volume with the content of a volume, or of a snapshot `NAME@SNAP`.
    Clone {
        /// Its name.
        name: String,
        /// The volume or the snapshot.
        of: String,
    },
    /// A new snapshot.
    Snapshot {
        /// The volume.
        volume: String,
        /// Name of the snapshot.
        snapshot: String,
        /// A text that the store keeps with it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mark: Option<String>,
    },
    /// Set the text that the store keeps with a snapshot.
    Mark {
        /// The number of the snapshot.
        id: u32,
        /// The text.
        mark: String,
    },
    /// Delete a snapshot by its number, unless clients use it.
    DeleteSnapshot {
        /// The number.
        id: u32,
    },
    /// The blocks that changed between two snapshots of a volume. Parts have the ranges.
    Changes {
        /// The number of the earlier snapshot.
        since: u32,
        /// The number of the later one.
        until: u32,
    },
    /// Speak NBD on this connection from the answer on.
    Attach,
    /// Copy everything that a volume still reads from a repository. Parts have the progress.
    Hydrate {
        /// The volume.
        name: String,
    },
    /// A new volume over a file of a snapshot of the server's repository.
    CreateOver {
        /// Its name.
        name: String,
        /// Repository, snapshot and path, as the store keeps them.
        below: String,
    },
    /// Another size.
    Resize {
        /// The volume.
        name: String,
        /// Its new size in bytes.
        size: u64,
        /// It may be smaller.
        #[serde(default, skip_serializing_if = "is_false")]
        shrink: bool,
    },
    /// Another name.
    Rename {
        /// The volume.
        name: String,
        /// Its new name.
        to: String,
    },
    /// Delete a volume, or a snapshot `NAME@SNAP`.
    Delete {
        /// Its name.
        name: String,
        /// A volume: its snapshots too.
        #[serde(default)]
        snapshots: bool,
        /// Also if clients use it.
        #[serde(default, skip_serializing_if = "is_false")]
        force: bool,
    },
    /// Free the space of containers with few live chunks.
    Collect {
        /// Until this percentage of the file system is free.
        #[serde(default)]
        until_free: Option<u64>,
    },
    /// Numbers of the store.
    Stats {
        /// Only this volume.
        #[serde(default)]
        volume: Option<String>,
        /// Also the space of volumes, which takes time in proportion to their data.
        #[serde(default)]
        usage: bool,
    },
}

impl Request {
    /// Whether the volumes may be others afterwards.
    pub(super) fn changes_volumes(&self) -> bool {
        match self {
            Self::List
            | Self::Stats { .. }
            | Self::Snapshot { .. }
            | Self::Mark { .. }
            | Self::DeleteSnapshot { .. }
            | Self::Changes { .. }
            | Self::Attach
            | Self::Hydrate { .. }
            | Self::Collect { .. } => false,
            Self::Create { .. }
            | Self::CreateOver { .. }
            | Self::Clone { .. }
            | Self::Resize { .. }
            | Self::Rename { .. }
            | Self::Delete { .. } => true,
        }
    }
}

fn is_false(value: &bool) -> bool {
    !value
}

/// The answer to a request, as a line of the control socket has it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Reply {
    /// Comes before the answer, any number of times.
    Part(Value),
    /// What `--json` prints.
    Ok(Value),
    /// Why it failed.
    Error {
        /// The exit code.
        code: i32,
        /// One line.
        message: String,
        /// One line.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        advice: Option<String>,
    },
}

impl From<Result<Value, Failure>> for Reply {
    fn from(result: Result<Value, Failure>) -> Self {
        match result {
            Ok(value) => Self::Ok(value),
            Err(Failure { exit, message, advice }) => Self::Error { code: exit.code(), message, advice },
        }
    }
}

impl From<Reply> for Result<Value, Failure> {
    fn from(reply: Reply) -> Self {
        match reply {
            // The last line is none.
            Reply::Part(value) | Reply::Ok(value) => Ok(value),
            Reply::Error { code, message, advice } => {
                let known = TABLE.iter().find(|(exit, _)| exit.code() == code);
                Err(Failure { exit: known.map_or(Exit::Failed, |(exit, _)| *exit), message, advice })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_lines_of_json() {
        let read = |text: &str| serde_json::from_str::<Request>(text);
        assert_eq!(read(r#"{"verb":"list"}"#).expect("known"), Request::List);
        let create = Request::Create { name: "a".to_owned(), size: 512 };
        assert_eq!(read(r#"{"verb":"create","name":"a","size":512}"#).expect("known"), create);
        assert_eq!(serde_json::to_string(&create).expect("JSON"), r#"{"verb":"create","name":"a","size":512}"#);
        let resize = Request::Resize { name: "a".to_owned(), size: 512, shrink: false };
        assert_eq!(read(r#"{"verb":"resize","name":"a","size":512}"#).expect("known"), resize);
        assert_eq!(serde_json::to_string(&resize).expect("JSON"), r#"{"verb":"resize","name":"a","size":512}"#);
        assert_eq!(read(r#"{"verb":"attach"}"#).expect("known"), Request::Attach);
        assert_eq!(read(r#"{"verb":"stats"}"#).expect("known"), Request::Stats { volume: None, usage: false });
        for wrong in [
            "",
            "7",
            "{}",
            r#"{"verb":"drink"}"#,
            r#"{"verb":"create","name":"a"}"#,
            r#"{"verb":"create","name":"a","size":-1}"#,
            r#"{"verb":"create","name":"a","size":1,"more":1}"#,
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn failures_are_the_same_on_both_sides() {
        let failure = Failure::new(Exit::Full, "no space").advise("buy some");
        let line = serde_json::to_string(&Reply::from(Err(failure.clone()))).expect("JSON");
        let reply: Reply = serde_json::from_str(&line).expect("JSON");
        assert_eq!(Result::from(reply), Err(failure));
        let reply: Reply = serde_json::from_str(r#"{"error":{"code":77,"message":"x"}}"#).expect("JSON");
        assert_eq!(Result::from(reply), Err::<Value, _>(Failure::new(Exit::Failed, "x")));
    }
}
