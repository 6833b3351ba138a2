//! Which versions a policy keeps.
//!
//! The rules are restic's. Versions are grouped, by default by series. Within a group they are
//! judged from the newest to the oldest. A version is kept if any rule keeps it.
//!
//! * `last`, `hourly` to `yearly` keep the newest version of each of the last periods that have
//!   one. A rule with periods left also keeps the oldest version, so that history reaches back as
//!   far as possible.
//! * Periods are those of the calendar in the caller's time zone: hours, days, ISO weeks, months,
//!   years.
//! * `within…` counts back from the newest version that is not in the future, not from now. So a
//!   machine that is switched off for a year loses nothing.
//! * Tags, ids and pins keep versions in addition and count for no rule.
//! * Versions whose claimed time nothing confirms are kept in addition, too
//!   ([`Reason::Unconfirmed`]). They change nothing for the others.
//! * The last complete version of a series is kept in addition to newer ones that are kept and are
//!   not complete ([`Reason::LastComplete`]).
//! * `size` keeps the newest versions whose containers together take at most this number of bytes.
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
