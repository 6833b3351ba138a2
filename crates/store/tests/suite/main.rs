//! Tests of this crate through its public interface, in one program: a program for each would take longer to build than to run.
//!
//! Not here: what runs itself as another process (`local_folder`), and what is run against other stores (`conformance`, `other_clouds`).
//!
//! `cargo test -p larder-store --test suite NAME` runs those whose path has `NAME` in it.

mod accounts;
mod cache;
mod chunk_reader;
mod config;
mod generations;
mod http;
mod limits;
mod links;
mod listings;
mod machine_keys;
mod named_versions;
mod one_object;
mod pins;
mod planted;
mod probe;
mod retry;
mod settings;
mod sftp;
mod support;
mod tags;
mod unclear_create;
mod waiting;
