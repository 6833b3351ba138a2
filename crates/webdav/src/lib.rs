//! Snapshots over WebDAV, read-only: requests of clients for a [`larder_tree::Tree`].
//!
//! * [`Server`]: a listener, its connections and their limits.
//! * `answer`: which requests are answered, and with which status.
//! * `files`: the tree as the file system that `dav-server` knows. Only this module, `body` and
//!   `answer` know that crate.
//! * `walk`: from paths to files. Links appear as their target.
//! * `access`, `tls`, `peers`: who may ask, and how often at once.
//!
//! Above: `cli`. Below: `tree`.

mod access;
mod answer;
mod body;
mod files;
mod index;
mod left_out;
mod lists;
mod outcome;
mod peers;
mod server;
mod slow;
mod time;
mod tls;
mod walk;
mod wrong;

pub use access::Credentials;
pub use left_out::LeftOut;
pub use server::{Options, Server};
pub use tls::{Tls, TlsError};
pub use wrong::OnWrongPassword;
