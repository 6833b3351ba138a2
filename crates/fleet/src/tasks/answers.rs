//! What the join answered to the questions of one image. The answers are read from all partitions
//! and kept in a file, in the order of the questions. Storing the image reads them again.

use std::collections::BTreeSet;

use larder_format::fleet::{Answer, Answers, At};
use larder_index::Cursor;
use larder_spill::{Row, RowFile, RowReader, RowWriter, unnamed_in};

use super::join::damaged_record;
use crate::error::FleetError;
use crate::exchange::{Decided, OutputCursor};
use crate::shared::Batch;

/// Answers of an image that are read at once.
const PAGE_ROWS: u64 = 4096;

/// The name of what is wrong with a damaged answer.
const ANSWER: &str = "answer of a fleet task";

/// The first 8 bytes of keys of an image.
pub(super) fn range_of_image(number: u32) -> std::ops::RangeInclusive<u64> {
    let first = u64::from(number) << 32;
    first..=first | u64::from(u32::MAX)
}

/// An answer in a file.
#[derive(Debug, Clone, Copy)]
struct AnswerRow {
    number: u32,
    answer: [u8; 9],
}

impl Row for AnswerRow {
    const BYTES: usize = 13;

    fn encode(&self, row: &mut RowWriter<'_>) {
        row.u32(self.number);
        row.bytes(&self.answer);
    }

    fn decode(row: &mut RowReader<'_>) -> Self {
        Self { number: row.u32(), answer: row.bytes() }
    }
}

/// The answers to the questions of an image, and what is in them.
pub(super) struct ImageAnswers {
    rows: RowFile<AnswerRow>,
    /// Numbers of containers in the index.
    pub(super) containers: BTreeSet<u32>,
    /// Images that are waited for.
    pub(super) waited_for: BTreeSet<u32>,
}

impl ImageAnswers {
    pub(super) fn read(batch: &Batch<'_>, number: u32, partitions: &[&Decided]) -> Result<Self, FleetError> {
        let scratch = |source| FleetError::Scratch { source };
        let mut rows = RowFile::new(unnamed_in(&batch.options.scratch).map_err(scratch)?);
        let (mut containers, mut waited_for) = (BTreeSet::new(), BTreeSet::new());
        let mut page = Vec::new();
        let mut all = OutputCursor::merged::<Answers>(batch, partitions.iter().copied(), range_of_image(number))?;
        while all.advance()? {
            let at = At::decode(all.key()).map_err(damaged_record(ANSWER))?;
            let answer = Answer::decode(all.value().unwrap_or_default()).map_err(damaged_record(ANSWER))?;
            match answer {
                Answer::Stored(place) => drop(containers.insert(place.container)),
                Answer::Waits(owner) if (owner.image as usize) < batch.plan.images.len() => {
                    waited_for.insert(owner.image);
                }
                Answer::Waits(_) => continue,
                Answer::Owner => {}
            }
            page.push(AnswerRow { number: at.number, answer: answer.encode() });
            if page.len() as u64 >= PAGE_ROWS {
                rows.append(page.drain(..)).map_err(scratch)?;
            }
        }
        rows.append(page).map_err(scratch)?;
        Ok(Self { rows, containers, waited_for })
    }

    /// Goes over the answers by rising number.
    pub(super) fn iter(&self) -> AnswersOf<'_> {
        AnswersOf { rows: &self.rows, next: 0, page: Vec::new().into_iter() }
    }
}

/// The answers, page by page.
pub(super) struct AnswersOf<'a> {
    rows: &'a RowFile<AnswerRow>,
    next: u64,
    page: std::vec::IntoIter<AnswerRow>,
}

impl AnswersOf<'_> {
    /// The answer to the question with this number. Numbers rise from call to call.
    pub(super) fn of(&mut self, number: u32) -> Result<Option<Answer>, FleetError> {
        loop {
            if self.page.len() == 0 {
                let rows = self.rows.read(self.next..self.next + PAGE_ROWS);
                let rows = rows.map_err(|source| FleetError::Scratch { source })?;
                self.next += rows.len() as u64;
                self.page = rows.into_iter();
            }
            match self.page.as_slice().first() {
                Some(row) if row.number < number => drop(self.page.next()),
                Some(row) if row.number == number => {
                    return Answer::decode(&row.answer).map(Some).map_err(damaged_record(ANSWER));
                }
                _ => return Ok(None),
            }
        }
    }
}
