//! Which versions a policy keeps.
//!
//! The rules are restic's. Versions are looked at in groups, of one series each unless something else is asked for, from the
//! newest to the oldest; a version is kept if any rule keeps it.
//!
//! * `last`, `hourly` to `yearly` keep the newest version of each of the last so many periods that have one. While a rule has not
//!   found as many periods as it may keep, it also keeps the oldest version there is, so that history reaches back as far as possible.
//! * Periods are those of the calendar in the time zone of whoever asks: hours, days, ISO weeks, months, years.
//! * `within…` counts back from the newest version that is not in the future, not from now: a machine that is switched off for a
//!   year loses nothing.
//! * Tags, ids and pins keep on top of that and use up nobody's count.
//! * `size` keeps the newest versions whose containers together take no more than so many bytes.
//!
//! Nothing here reads a clock, the system's time zone or the store.

mod group;
mod judge;
mod policy;

pub use group::{GroupBy, GroupKey};
pub use judge::{Calendar, Candidate, Reason, judge};
pub use policy::{Keep, ParseKeepError, ParsePeriodError, Period, Policy};

#[cfg(test)]
mod tests;
