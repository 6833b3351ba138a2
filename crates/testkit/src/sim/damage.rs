//! Violations of a store's promises: it answers wrongly once, loses an object, damages one, or
//! overwrites an existing one.

use bytes::Bytes;
use object_store::Error;

use super::request::Answer;

/// The error in an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wrong {
    /// A page of a listing lacks an entry; or, if it has only one, the listing ends with it.
    Lacks,
    /// An object that is there is said not to be.
    Missing,
    /// Of an object other bytes are given.
    Garbage,
}

/// One request that is answered wrongly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WrongAnswer {
    /// How the name of the actor begins.
    pub actor: &'static str,
    /// How the request begins, as the trace tells it.
    pub to: &'static str,
    /// How it must not end.
    pub not: &'static str,
    /// The error.
    pub wrong: Wrong,
    /// This number of such requests is answered rightly before.
    pub after: u64,
}

impl WrongAnswer {
    /// Whether a request is meant that has this answer.
    fn fits(&self, actor: &str, request: &str, answer: &Result<Answer, Error>) -> bool {
        let is_told = match (self.wrong, answer) {
            (Wrong::Lacks, Ok(Answer::Page(names, _))) => !names.is_empty(),
            (Wrong::Missing | Wrong::Garbage, Ok(Answer::Bytes(..))) => true,
            _ => false,
        };
        let is_meant = self.not.is_empty() || !request.ends_with(self.not);
        is_told && is_meant && actor.starts_with(self.actor) && request.starts_with(self.to)
    }
}

/// Answers a request wrongly if it is meant. Says whether it did: each is told once.
pub(super) fn tell(
    lies: &mut Vec<WrongAnswer>,
    actor: &str,
    request: &str,
    path: &str,
    answer: &mut Result<Answer, Error>,
) -> bool {
    let Some(at) = lies.iter().position(|lie| lie.fits(actor, request, answer)) else { return false };
    if lies[at].after > 0 {
        lies[at].after -= 1;
        return false;
    }
    match (lies.remove(at).wrong, &mut *answer) {
        (Wrong::Lacks, Ok(Answer::Page(names, _))) => {
            // Not the last one of several: the next page begins after that.
            names.remove((names.len() - 1) / 2);
        }
        (Wrong::Garbage, Ok(Answer::Bytes(bytes, _))) => {
            *bytes = Bytes::from(bytes.iter().map(|byte| byte ^ 0x55).collect::<Vec<_>>());
        }
        _ => *answer = Err(Error::NotFound { path: path.to_owned(), source: "so it is said".into() }),
    }
    true
}
