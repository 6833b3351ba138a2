//! End-to-end tests: the real binary on real folders. One test program for all of them, because linking takes longer than running.

mod arranging;
mod backing_up;
mod closed_domain;
mod collecting;
mod command_line;
mod damaged;
mod dumping;
mod forged_times;
mod forgetting;
mod gnode;
mod interrupted;
mod keys;
mod looking;
mod machine;
mod museum;
mod over_http;
mod passes;
mod repairing;
mod restoring;
mod roles;
mod secrecy;
mod series;
mod serving_blocks;
mod setting_up;
mod support;
mod unreadable;
