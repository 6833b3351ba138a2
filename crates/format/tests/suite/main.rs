//! Tests of the format through its public side, with a forger that shares no code with it.

#[path = "../support/miniature.rs"]
mod miniature;
#[path = "../support/mutate.rs"]
mod mutate;
#[path = "../support/mod.rs"]
mod support;

mod any_mutation;
mod golden_bytes;
mod keys_of_roles;
mod whole_repository;
