//! The layout `lifecycle`: containers hold chunks by the versions that need them.
//! `docs/lifecycle.md` describes it.
//!
//! * [`arrange`]: places chunks that the same versions need together. A pass plans and runs it.
//! * [`lifecycle_map`]: the places of a series' data, and the bytes that forgetting would free.
//! * [`convert_layout`]: converts a series to another layout.
//! * [`extents_check`]: whether the records of extents agree with the table of containers.
//!
//! This crate never deletes an object and never publishes an index: passes do both. A conversion
//! commits new generations as a job of its own. Arranging asks its pass about containers through
//! [`ContainerRetention`](arrange::ContainerRetention).
//! Readers resolve moved chunks without it. Above: `gnode`, `cli`. Below: `rewrite`, `reader`,
//! `writer`, `job`, `index`, `store`, `format`.

pub mod arrange;
pub mod convert_layout;
pub mod extents_check;
#[cfg(test)]
mod kind_tests;
pub mod lifecycle_map;
