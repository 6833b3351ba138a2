//! The layout `lifecycle`: chunks are kept in containers by the versions that need them. `docs/lifecycle.md` describes it.
//!
//! * [`arranging`]: places chunks that the same versions need together. A pass plans and runs it.
//! * [`categories`]: what lies where of a series, and what forgetting would free.
//! * [`converting`]: series in another layout.
//!
//! This crate never deletes an object and never publishes an index: the pass that runs it does both. It asks that pass about
//! containers through [`ContainerRights`](arranging::ContainerRights). Readers resolve moved chunks without it. Above: `gnode`, `cli`.
//! Below: `rewrite`, `reader`, `writer`, `job`, `index`, `store`, `format`.

pub mod arranging;
pub mod categories;
pub mod converting;
