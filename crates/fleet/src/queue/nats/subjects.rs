//! Subjects of messages: which host may take which task of which batch.

use larder_format::fleet::{Stage, TaskId};
use larder_format::ids::JobId;

/// The word of tasks that any host can do.
pub(super) const ANY: &str = "any";

/// The word of a host: its name may have any characters.
pub(super) fn word(host: &str) -> String {
    format!("h{}", data_encoding::HEXLOWER.encode(&blake3::hash(host.as_bytes()).as_bytes()[..8]))
}

/// The subjects of a batch.
#[derive(Debug)]
pub(super) struct Subjects {
    /// Beginning of all subjects of the repository.
    prefix: String,
    pub(super) batch: JobId,
}

impl Subjects {
    pub(super) fn new(prefix: &str, batch: JobId) -> Self {
        Self { prefix: prefix.to_owned(), batch }
    }

    fn tasks(&self) -> String {
        format!("{}.tasks.{}", self.prefix, self.batch)
    }

    /// Of a task for a host, by its word.
    pub(super) fn task(&self, host: &str, TaskId { stage, round, number }: TaskId) -> String {
        format!("{}.{host}.{}.{round}.{number}", self.tasks(), stage.word())
    }

    /// All tasks for a host.
    pub(super) fn tasks_of(&self, host: &str) -> String {
        format!("{}.{host}.>", self.tasks())
    }

    /// All tasks.
    pub(super) fn all_tasks(&self) -> String {
        format!("{}.>", self.tasks())
    }

    /// Somebody decided a task.
    pub(super) fn news(&self) -> String {
        format!("{}.news.{}", self.prefix, self.batch)
    }
}

/// Somebody decided a task of any batch, or offers one.
pub(super) fn all_news(prefix: &str) -> String {
    format!("{prefix}.news.>")
}

/// The task of a message; `None`: it is of somebody else.
pub(super) fn task_of(subject: &str) -> Option<TaskId> {
    let mut words = subject.rsplit('.');
    let number = words.next()?.parse().ok()?;
    let round = words.next()?.parse().ok()?;
    let stage = Stage::parse(words.next()?)?;
    Some(TaskId { stage, round, number })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn subjects_name_tasks() {
        let task = TaskId { stage: Stage::Resolve, round: 1, number: 7 };
        let subjects = Subjects::new("larder.00aa", JobId([1; 16]));
        let subject = subjects.task(ANY, task);
        assert_eq!(task_of(&subject), Some(task));
        assert!(subjects.news().starts_with(all_news("larder.00aa").trim_end_matches('>')));
        let of_any = subjects.tasks_of(ANY);
        assert!(subject.starts_with(of_any.trim_end_matches('>')) && of_any.ends_with(".any.>"), "{of_any}");
        for wrong in
            ["", "x", "larder.any.resolve.1", "larder.any.resolve.x.7", "larder.any.other.1.7", "a.resolve.1.7.x"]
        {
            assert_eq!(task_of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn names_of_hosts_become_words() {
        let words: HashSet<String> = ["a", "b.c", "d *>", ""].into_iter().map(word).collect();
        assert_eq!(words.len(), 4);
        assert!(words.iter().all(|word| word.chars().all(|char| char.is_ascii_alphanumeric())));
    }
}
