//! Stores on a simulated disk: crashes, damage, a model of the protocol.
#![expect(clippy::unwrap_used, reason = "tests")]

mod basics;
mod crashes;
mod damage;
mod model;
mod scene;
