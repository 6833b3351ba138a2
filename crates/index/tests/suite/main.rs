//! Tests of the index on whole stores. One program, because linking takes longer than running.

mod damage;
mod few_requests;
mod oracle;
mod snapshot;
mod sorting;
mod support;
mod tables;
