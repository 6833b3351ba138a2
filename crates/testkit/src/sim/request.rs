//! Requests on their way to the bucket, and its answers.

use bytes::Bytes;
use object_store::Error;
use tokio::sync::oneshot;

/// An object that was created or deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// It is there now.
    Created(String),
    /// It is gone now.
    Deleted(String),
}

/// A request to the bucket.
#[derive(Debug, Clone)]
pub(super) enum Ask {
    Create(String, Bytes),
    Put(String, Bytes),
    Read(String),
    /// The next names of a listing, after one.
    Page(String, Option<String>),
    Delete(String),
    /// Nothing: a process is suspended.
    Linger(u64),
}

impl Ask {
    pub(super) fn has_effect(&self) -> bool {
        matches!(self, Self::Create(..) | Self::Put(..) | Self::Delete(_))
    }

    pub(super) fn told(&self) -> String {
        match self {
            Self::Create(path, _) => format!("create {path}"),
            Self::Put(path, _) => format!("put {path}"),
            Self::Read(path) => format!("read {path}"),
            Self::Page(folder, Some(after)) => format!("list {folder} after {after}"),
            Self::Page(folder, None) => format!("list {folder}"),
            Self::Delete(path) => format!("delete {path}"),
            Self::Linger(_) => "goes on".to_owned(),
        }
    }

    pub(super) fn path(&self) -> &str {
        match self {
            Self::Create(path, _)
            | Self::Put(path, _)
            | Self::Read(path)
            | Self::Page(path, _)
            | Self::Delete(path) => path,
            Self::Linger(_) => "",
        }
    }
}

/// An answer of the bucket.
#[derive(Debug)]
pub(super) enum Answer {
    Done,
    /// An object, and when it was created.
    Bytes(Bytes, u64),
    /// Names, sizes, and when they were created; and whether there are more.
    Page(Vec<(String, u64, u64)>, bool),
}

pub(super) type Reply = oneshot::Sender<Result<Answer, Error>>;

#[derive(Debug)]
pub(super) struct UnderWay {
    pub(super) actor: usize,
    pub(super) ask: Ask,
    /// `None` when no answer will come.
    pub(super) reply: Option<Reply>,
    /// Whether its actor was stopped before it already.
    pub(super) has_waited: bool,
}

impl UnderWay {
    /// Whether anybody waits for the answer.
    pub(super) fn is_awaited(&self) -> bool {
        self.reply.as_ref().is_some_and(|reply| !reply.is_closed())
    }
}
