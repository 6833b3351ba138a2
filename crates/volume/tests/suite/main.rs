//! Stores on a simulated disk: crashes, damage, faults, a model of the protocol.
#![expect(clippy::unwrap_used, reason = "tests")]

mod basics;
mod crashes;
mod damage;
mod damaged_runs;
mod faults;
mod filters;
mod full;
mod hooked;
mod hydrate;
mod interrupts;
mod joins;
mod keys;
mod leaks;
mod lost_frames;
mod model;
mod neighbours;
mod oracle;
mod panics;
mod put_back;
mod real;
mod restarts;
mod retired;
mod scene;
mod snapshots;
mod space;
mod space_model;
mod stats;
mod tables;
mod threads;
mod trees;
mod unreadable;
