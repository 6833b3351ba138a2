//! The configuration file, and the parts of `larder run` and `larder schedule` that need no
//! repository.
//!
//! The file has repositories by name, profiles, schedules and hooks ([`config`]). Options of verbs
//! are kept as they are written, with their places: this crate does not know which options exist.
//! The command line does, and turns them into arguments.
//!
//! [`calendar`] reads schedules and computes times; `systemd` and `cron` write them for these
//! programs. [`hooks`] starts programs of users. [`lock`] keeps two runs of a profile apart, and
//! [`journal`] remembers how runs ended.

pub mod calendar;
pub mod config;
pub mod cron;
pub mod document;
pub mod duration;
pub mod hooks;
pub mod journal;
pub mod lock;
pub mod nearest;
pub mod systemd;
