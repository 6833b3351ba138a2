//! The server and the client, against each other and against peers that break the protocol.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

mod any_peer;
#[allow(unreachable_pub, reason = "the fuzz targets share it")]
mod checks;
mod client_checks;
mod codec;
mod harm;
mod listeners;
mod negotiation;
mod oracle;
mod power_cuts;
mod recorded;
#[allow(unreachable_pub, reason = "the fuzz targets share it")]
mod sessions;
mod support;
mod tls;
mod transmission;
